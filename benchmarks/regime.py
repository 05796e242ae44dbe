"""Where pruning helps: short runs of the toy, one factor changed at a time.

Every cell trains plain GRPO and FastRL in both weightings on the same seeds. Rollouts per update
are the same in all cells but those of "prompts". Finished runs are not repeated: start it again to
go on. Compares accuracy at equal updates; seconds are those of whatever else the machine was doing.

    python benchmarks/regime.py --folder runs/regime
    python benchmarks/regime.py --folder runs/regime --table
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.runs.folder import RunFolder

# 16 prompts x 8 rollouts a generation, 4 updates of 32 rollouts each: half of the recipe.
BASE = {
    "per_device_train_batch_size": 32,
    "max_steps": 40,
    "eval_pictures": 400,
    "score_every": 10_000,
    "score_pictures": 64,
    "save_strategy": "no",
    "log_rollouts": "false",
}
ARMS = {
    "plain": {"prune_rule": "none"},
    "kept": {"prune_rule": "differential", "weighting": "kept"},
    "exact": {"prune_rule": "differential", "weighting": "exact"},
}
STARTS = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Cell:
    """One point of the map: what differs from the base.

    Attributes:
        factor, value: what was changed, and to what.
        overrides: fields of the recipe.
        start: right share of the starting policy's worked answers; None for the shipped one.
    """

    factor: str
    value: str
    overrides: dict[str, object]
    start: float | None = None

    @property
    def name(self) -> str:
        return f"{self.factor}-{self.value}".replace(" ", "_")


CELLS = (
    Cell("base", "base", {}),
    *(Cell("start", f"{share:.0%}", {}, share) for share in STARTS),
    Cell("prompts", "x2", {"per_device_train_batch_size": 64}),
    Cell("prompts", "x4", {"per_device_train_batch_size": 128}),
    Cell("rollouts", "4", {"num_generations": 4}),
    Cell("rollouts", "16", {"num_generations": 16}),
    Cell("reward", "binary", {"reward_weights": "1.0,0.0"}),
    Cell("learning rate", "x0.5", {"learning_rate": 1.5e-4}),
    Cell("learning rate", "x2", {"learning_rate": 6e-4}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/regime"), help="of all runs")
    parser.add_argument("--seeds", type=int, default=2, help="seeds a cell")
    parser.add_argument("--only", default="", help="cells by name, separated by commas")
    parser.add_argument("--table", action="store_true", help="print what there is, run nothing")
    parser.add_argument("--jsonl", type=Path, help="also write a line per finished run")
    options = parser.parse_args()
    console = Console()
    cells = [cell for cell in CELLS if not options.only or cell.name in options.only.split(",")]
    if not options.table:
        run_all(console, cells, range(1, options.seeds + 1), options.folder)
    results = list(finished(options.folder, cells, range(1, options.seeds + 1)))
    if options.jsonl:
        options.jsonl.write_text("".join(json.dumps(line) + "\n" for line in results))
    console.print(table(results), soft_wrap=True, markup=False, highlight=False)


def run_all(console: Console, cells: list[Cell], seeds: range, folder: Path) -> None:
    """Every run that is not finished; a cell's arms stand together, seeds outermost."""
    todo = [(seed, cell, arm) for seed in seeds for cell in cells for arm in ARMS]
    for number, (seed, cell, arm) in enumerate(todo, start=1):
        run = run_folder(folder, cell, arm, seed)
        if "finished" in run.read_summary():
            continue
        console.rule(f"{number}/{len(todo)}  {run.path.name}")
        settings = {**BASE, **ARMS[arm], **cell.overrides, "seed": seed}
        if cell.start is not None:
            settings["model"] = starting_policy(folder, cell.start)
        words = ["train", "toy_geometry", "--output_dir", str(run.path)]
        for name, value in settings.items():
            words += [f"--{name}", str(value)]
        if run.is_used():
            words.append("--resume")
        subprocess.run([sys.executable, "-m", "fastrl", *words], check=True)


def run_folder(folder: Path, cell: Cell, arm: str, seed: int) -> RunFolder:
    return RunFolder(folder / f"{cell.name}-{arm}-seed{seed}")


def starting_policy(folder: Path, right_share: float) -> Path:
    """A policy that is right about that often, made from the shipped one when first asked for."""
    path = folder / "policies" / f"right-{right_share:.2f}"
    if not (path / "config.json").exists():
        from fastrl.geometry.toy.pretrain import change_skill

        change_skill(STARTING_POLICY, right_share, path)
    return path


def finished(folder: Path, cells: list[Cell], seeds: range):
    """A line per finished run."""
    for cell in cells:
        for arm in ARMS:
            for seed in seeds:
                summary = run_folder(folder, cell, arm, seed).read_summary()
                if "finished" in summary:
                    yield {
                        "factor": cell.factor,
                        "value": cell.value,
                        "arm": arm,
                        "seed": seed,
                        "before": summary["before"]["sampled"],
                        "after": summary["after"]["sampled"],
                        "kept": summary["kept"] / summary["generated"],
                        "seconds": summary["seconds"],
                    }


def table(results: list[dict]) -> str:
    """Markdown: a row a cell; accuracy of each arm (mean and seeds), points against plain."""
    lines = [
        "| factor | value | before | plain | kept | exact | kept - plain | exact - plain "
        "| rollouts kept |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for factor, value in dict.fromkeys((line["factor"], line["value"]) for line in results):
        here = [line for line in results if (line["factor"], line["value"]) == (factor, value)]
        after = {arm: {x["seed"]: x["after"] for x in here if x["arm"] == arm} for arm in ARMS}
        kept = [x["kept"] for x in here if x["arm"] == "exact"]
        lines.append(
            f"| {factor} | {value} | {statistics.mean(x['before'] for x in here):.0%} | "
            + " | ".join(mean_and_seeds(after[arm]) for arm in ARMS)
            + f" | {gap(after, 'kept')} | {gap(after, 'exact')} | "
            + (f"{statistics.mean(kept):.0%}" if kept else "")
            + " |"
        )
    return "\n".join(lines)


def mean_and_seeds(by_seed: dict[int, float]) -> str:
    if not by_seed:
        return ""
    each = ", ".join(f"{100 * by_seed[seed]:.1f}" for seed in sorted(by_seed))
    return f"{100 * statistics.mean(by_seed.values()):.1f} ({each})"


def gap(after: dict[str, dict[int, float]], arm: str) -> str:
    """Points of an arm over plain GRPO, the mean over seeds that both have."""
    both = sorted(after[arm].keys() & after["plain"].keys())
    if not both:
        return ""
    mean = statistics.mean(after[arm][seed] - after["plain"][seed] for seed in both)
    return f"{100 * mean:+.1f}"


if __name__ == "__main__":
    main()
