"""A run folder written by hand, with round numbers."""

import json
from pathlib import Path
from typing import Any

import yaml
from report_files import write_lines


def write_run(
    path: Path,
    *,
    rule: str = "none",
    seed: int = 1,
    kept: float = 8.0,
    generated: float = 8.0,
    seconds: float = 100.0,
    update: float = 60.0,
    after: float = 0.75,
    rewards: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8),
    **config: Any,
) -> Path:
    """Four generation batches of 2 prompts, by default 8 rollouts, each one update."""
    settings = {"recipe": "by_hand", "prune_rule": rule, "num_generations": 4, "seed": seed}
    settings |= {"weighting": "kept", "similarity_threshold": 0.2, "hub_token": "hidden"} | config
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(settings))
    count = len(rewards)
    lines = [
        {
            "step": number,
            "seconds": seconds * number / count,
            "fastrl/generated": generated,
            "fastrl/kept": kept,
            "fastrl/kept_per_prompt": kept / 2,
            "fastrl/num_generations": generated / 2,
            "fastrl/groups_without_contrast": 0.5,
            "fastrl/reward": reward,
            "fastrl/time/generate": (seconds - update - 20) / count,
            "fastrl/time/old_logps": 20 * kept / 8 / count,
            "fastrl/time/update": update / count,
            "fastrl/time/other": (20 - 20 * kept / 8) / count,
        }
        for number, reward in enumerate(rewards, start=1)
    ]
    write_lines(path / "metrics.jsonl", lines)
    score = {"greedy": 0.5, "in_format": 1.0, "pictures": 64, "samples": 4}
    summary = {
        "before": {"sampled": 0.25, **score},
        "after": {"sampled": after, **score},
        "versions": {"python": "3.11.7"},
        "machine": {"accelerator": "cpu"},
        "finished": "2026-01-01 00:00:00",
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def write_scores(
    run: Path, sampled: tuple[float, ...], seconds: float = 100.0, steps: int = 4
) -> Path:
    """Scorings evenly over a run of so many seconds and updates, the first before training."""
    last = len(sampled) - 1
    lines = [
        {
            "step": steps * number // last,
            "seconds": seconds * number / last,
            "sampled": value,
            "greedy": None,
            "in_format": 1.0,
            "pictures": 64,
            "samples": 4,
        }
        for number, value in enumerate(sampled)
    ]
    return write_lines(run / "scores.jsonl", lines)


def write_comparison(folder: Path) -> Path:
    """Plain against a pruned arm, two seeds: ratios 2 and 8."""
    for seed, plain, pruned in ((1, 100.0, 50.0), (2, 400.0, 50.0)):
        write_run(folder / f"none-seed{seed}", seed=seed, seconds=plain, update=20.0)
        write_run(
            folder / f"differential-seed{seed}",
            rule="differential",
            seed=seed,
            seconds=pruned,
            update=5.0,
            kept=2.0,
            after=0.70 + 0.1 * seed,
        )
    return folder


def rollout(row: int, **values: Any) -> dict[str, Any]:
    return {
        "step": 0,
        "generation_step": 0,
        "group": row // 4,
        "row": row,
        "prompt": f"question {row // 4}",
        "completion": f"answer {row}",
        "reward": 1.0,
        "reward/accuracy": 1.0,
        "advantage": 0.5,
        "kept": True,
        "reason": "seed",
        "duplicate_of": -1,
        "similarity": None,
        **values,
    }


def write_rollouts(run: Path, generation: int, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = run / "rollouts"
    folder.mkdir(exist_ok=True)
    rows = [{**row, "generation_step": generation, "step": 4 * generation} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"generation_{generation:06d}.parquet")
