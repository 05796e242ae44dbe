"""Train the toy recipe with several settings ("arms") and seeds, one after another, and compare.

Every arm makes the same number of updates on the same pictures; arms are interleaved seed by seed,
so that a drift of the machine hits all of them. Takes up where it was stopped. Run it with nothing
else running.

    python benchmarks/toy_arms.py --seeds 1 2 3 --out runs/arms
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ARMS = {
    "plain": ["--prune_rule", "none"],
    "kept": ["--prune_rule", "differential", "--weighting", "kept"],
    "exact": ["--prune_rule", "differential", "--weighting", "exact"],
}
PHASES = ("generate", "reward", "prune", "old_logps", "ref_logps", "update", "other")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--recipe", default="toy_geometry")
    parser.add_argument("--out", type=Path, default=Path("runs/arms"))
    parser.add_argument(
        "--table_only", action="store_true", help="print what is there, train nothing"
    )
    options, extra = parser.parse_known_args()
    summaries: dict[str, list[dict]] = {arm: [] for arm in options.arms}
    for seed in options.seeds:
        for arm in options.arms:
            folder = options.out / f"{arm}-seed{seed}"
            if not options.table_only:
                train(options.recipe, folder, [*ARMS[arm], "--seed", str(seed), *extra])
            if (folder / "summary.json").exists():
                summaries[arm].append(json.loads((folder / "summary.json").read_text()))
    print(table(summaries))


def train(recipe: str, folder: Path, words: list[str]) -> None:
    summary = folder / "summary.json"
    if summary.exists() and "after" in json.loads(summary.read_text()):
        return
    print(f"-- {folder}", flush=True)
    resume = ["--resume"] if (folder / "config.yaml").exists() else []
    fastrl = str(Path(sys.executable).with_name("fastrl"))
    command = [fastrl, "train", recipe, "--output_dir", str(folder), *words, *resume]
    subprocess.run(command, check=True)


def table(summaries: dict[str, list[dict]]) -> str:
    header = ["arm", "seeds", "accuracy after", "greedy", "in format", "seconds"]
    rows = [[*header, "vs plain", "kept", "rollouts", *PHASES]]
    plain = summaries.get("plain") or []
    for arm, runs in summaries.items():
        if not runs:
            continue
        seconds = [run["seconds"] for run in runs]
        ratio = "1"
        if arm != "plain" and len(plain) == len(runs):
            ratios = [p["seconds"] / run["seconds"] for p, run in zip(plain, runs, strict=True)]
            ratio = f"{statistics.mean(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        generations = [n for run in runs for n in run["num_generations"]]
        rows.append(
            [
                arm,
                str(len(runs)),
                spread([run["after"]["sampled"] for run in runs]),
                spread([run["after"]["greedy"] for run in runs]),
                spread([run["after"]["in_format"] for run in runs]),
                f"{statistics.mean(seconds):.0f}",
                ratio,
                f"{sum(r['kept'] for r in runs) / sum(r['generated'] for r in runs):.0%}",
                f"{statistics.mean(generations):.1f}",
                *(
                    f"{statistics.mean(run['seconds_per_phase'].get(phase, 0) for run in runs):.0f}"
                    for phase in PHASES
                ),
            ]
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def spread(shares: list[float]) -> str:
    told = f"{statistics.mean(shares):.1%}"
    if len(shares) > 1:
        told += f" ± {statistics.stdev(shares) * 100:.1f}"
    return told


if __name__ == "__main__":
    main()
