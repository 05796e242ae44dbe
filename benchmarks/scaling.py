"""Step time and peak memory against rollouts per prompt, completion length and prompts per batch.

Plain GRPO (TRL) and FastRL ("exact", one rollout of each of --levels rewards kept), one factor
changed at a time. Each point is a process of its own, so that its peak memory is its own; finished
points are not repeated: start it again to go on. Nothing else should be running.

    python benchmarks/scaling.py --results runs/scaling.jsonl --figures docs/figures
    python benchmarks/scaling.py --quick
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from fitting import linear_fit, log_log_slope
from step_runs import Work, build_trainer

ARMS = {"trl": "plain GRPO", "exact": "FastRL, exact"}
FACTORS = {
    "rollouts": ("rollouts per prompt", (2, 4, 8, 16, 32)),
    "tokens": ("completion tokens", (16, 32, 64, 128, 256)),
    "prompts": ("prompts per batch", (2, 4, 8, 16, 32)),
}
QUICK = {"rollouts": (2, 4), "tokens": (4, 8), "prompts": (2, 4)}
MEGABYTE = 1e6


def points(base: Work, values: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, Work]]:
    """Every (factor, work): one factor off the base at a time, both arms of a point together."""
    for factor, sizes in values.items():
        for size in sizes:
            for arm in ARMS:
                changed = replace_size(base, factor, size)
                yield factor, replace(changed, arm=arm)


def replace_size(base: Work, factor: str, size: int) -> Work:
    """The work with one size changed; groups too small for all levels have as many as fit."""
    if factor == "rollouts":
        return replace(base, rollouts=size, levels=min(base.levels, size))
    return replace(base, **{factor: size})


def measure(work: Work, warmup: int, batches: int) -> dict:
    """Run the work in this process: seconds of each generation batch, and memory."""
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.marks: list[float] = []

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step % work.updates == 0:
                self.marks.append(time.perf_counter())

    clock = Clock()
    trainer = build_trainer(work, warmup + batches, [clock])
    loaded = peak_memory()
    trainer.train()
    seconds = np.diff(clock.marks)[warmup - 1 :].tolist()
    found = {
        "seconds": seconds,
        "loaded_mb": loaded / MEGABYTE,
        "peak_mb": peak_memory() / MEGABYTE,
    }
    if torch.cuda.is_available():
        found["cuda_peak_mb"] = torch.cuda.max_memory_allocated() / MEGABYTE
    return found


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def run_all(works: list[Work], results: Path, warmup: int, batches: int) -> list[dict]:
    """Measure what the results file lacks, and return all of its lines."""
    lines = read_lines(results)
    for number, work in enumerate(works, start=1):
        if any(is_of(line, work) for line in lines):
            continue
        print(f"{number}/{len(works)}  {work}", flush=True)
        words = ["--point", json.dumps(asdict(work)), "--warmup", str(warmup)]
        done = subprocess.run(
            [sys.executable, __file__, *words, "--batches", str(batches)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{work} failed:\n{done.stderr}")
        lines.append({"work": asdict(work), **json.loads(done.stdout.splitlines()[-1])})
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    return lines


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_of(line: dict, work: Work) -> bool:
    return line["work"] == asdict(work)


def series(lines: list[dict], base: Work, factor: str, arm: str) -> list[tuple[int, float, float]]:
    """(size, median seconds, peak MB) of a factor's points, in ascending size."""
    found = []
    for line in lines:
        size = line["work"][factor]
        if is_of(line, replace(replace_size(base, factor, size), arm=arm)):
            memory = line.get("cuda_peak_mb", line["peak_mb"])
            found.append((size, statistics.median(line["seconds"]), memory))
    return sorted(set(found))


def markdown(lines: list[dict], base: Work, factors: list[str]) -> str:
    """A table a factor, with the fitted slopes below."""
    parts = []
    for factor in factors:
        title = FACTORS[factor][0]
        plain, fast = (series(lines, base, factor, arm) for arm in ARMS)
        parts += [
            f"| {title} | plain s | FastRL s | faster | plain MB | FastRL MB |",
            "|--:|--:|--:|--:|--:|--:|",
        ]
        for (size, plain_s, plain_mb), (_, fast_s, fast_mb) in zip(plain, fast, strict=True):
            parts.append(
                f"| {size} | {plain_s:.3f} | {fast_s:.3f} | {plain_s / fast_s:.2f}x "
                f"| {plain_mb:.0f} | {fast_mb:.0f} |"
            )
        parts.append("")
        for name, found in zip(ARMS.values(), (plain, fast), strict=True):
            parts.append(f"- {name}: {slopes(found, title)}")
        parts.append("")
    return "\n".join(parts)


def slopes(found: list[tuple[int, float, float]], unit: str) -> str:
    """Both slopes in words: of time on log-log axes, of both on linear ones."""
    sizes, seconds, megabytes = zip(*found, strict=True)
    time_line, memory = linear_fit(sizes, seconds), linear_fit(sizes, megabytes)
    base = round(time_line.intercept, 3) + 0.0  # not -0.000
    return (
        f"time grows as {unit} to the power {log_log_slope(sizes, seconds):.2f} (log-log fit); "
        f"linear fit {base:.3f} s + {1000 * time_line.slope:.2f} ms each "
        f"(R2 {time_line.r_squared:.3f}); peak memory {memory.intercept:.0f} MB + "
        f"{memory.slope:.2f} MB each (linear fit, R2 {memory.r_squared:.3f})"
    )


def figures(lines: list[dict], base: Work, factors: list[str]) -> dict[str, str]:
    """File name -> SVG: seconds and megabytes against each factor."""
    from fastrl.report.charts import Axes, Series, line_chart
    from fastrl.report.figures import Figure

    drawn = {}
    for factor in factors:
        for column, name, unit in ((1, "seconds", "step time (s)"), (2, "memory", "peak MB")):
            curves = []
            for colour, (arm, title) in enumerate(ARMS.items()):
                found = series(lines, base, factor, arm)
                sizes = np.array([point[0] for point in found], dtype=np.float64)
                values = np.array([point[column] for point in found], dtype=np.float64)
                curves.append(Series(title, sizes, values, colour=colour))
            label = FACTORS[factor][0]
            title = f"{unit} against {label}"
            svg = line_chart(title, curves, Axes(label, unit, from_zero=True))
            drawn[f"scaling_{factor}_{name}.svg"] = Figure(name, title, svg).standalone()
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="toy", help="'toy', or the folder of a language model")
    parser.add_argument("--only", default="", help="factors, separated by commas")
    parser.add_argument("--prompts", type=int, default=8, help="of the base")
    parser.add_argument("--rollouts", type=int, default=8, help="of the base")
    parser.add_argument("--tokens", type=int, default=32, help="of the base")
    parser.add_argument("--levels", type=int, default=4, help="rollouts kept of a group, at most")
    parser.add_argument("--updates", type=int, default=4, help="of a generation batch")
    parser.add_argument(
        "--warmup", type=int, default=1, help="generation batches not counted, at least 1"
    )
    parser.add_argument("--batches", type=int, default=5, help="generation batches; median of them")
    parser.add_argument("--results", type=Path, default=Path("runs/scaling.jsonl"))
    parser.add_argument("--figures", type=Path, help="folder for the SVG files")
    parser.add_argument("--markdown", type=Path, help="file for the tables; printed either way")
    parser.add_argument("--quick", action="store_true", help="two small sizes of each factor")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warmup < 1 or options.batches < 1:
        parser.error("--warmup and --batches: expected at least 1")
    if options.point:
        found = measure(Work(**json.loads(options.point)), options.warmup, options.batches)
        print(json.dumps(found))
        return
    base = Work.of(options)
    values = {name: sizes for name, (_, sizes) in FACTORS.items()}
    if options.quick:
        base = replace(base, prompts=2, rollouts=4, tokens=4, levels=2, updates=2)
        values, options.batches = QUICK, 1
    factors = options.only.split(",") if options.only else list(values)
    unknown = sorted(set(factors) - set(values))
    if unknown:
        parser.error(f"--only: {', '.join(unknown)}: expected some of {', '.join(values)}")
    chosen = {name: values[name] for name in factors}
    works = list(dict.fromkeys(work for _, work in points(base, chosen)))
    lines = run_all(works, options.results, options.warmup, options.batches)
    text = markdown(lines, base, factors)
    print(text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
        for name, svg in figures(lines, base, factors).items():
            (options.figures / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
