"""Run folders as the report sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fastrl.report.phases import metric_lines, sum_phases
from fastrl.report.scores import Scoring, read_scores

PLAIN = "none"  # the rule that prunes nothing
COMPARISON_NAME = "comparison.json"  # what `fastrl compare` notes in its folder
ARM_AND_SEED = re.compile(r"(?P<arm>.+)-seed(?P<seed>\d+)")


@dataclass(frozen=True)
class Batch:
    """One generation batch, from the metrics.

    Attributes:
        step: optimiser updates up to and with its first.
        seconds: training seconds when that update was done.
        reward: mean over full groups.
        generated, kept: rollouts.
        kept_per_prompt: mean over groups.
        num_generations: rollouts per prompt.
        without_contrast: share of groups.
    """

    step: int
    seconds: float
    reward: float
    generated: float
    kept: float
    kept_per_prompt: float
    num_generations: float
    without_contrast: float


@dataclass(frozen=True, eq=False)
class Run:
    """One run folder of `fastrl train`, finished or not.

    Attributes:
        path: the folder.
        arm: what it is a run of: `<arm>` of a folder `<arm>-seed<k>`, else the folder's name.
        seed: `<k>`, else the configured seed.
        config: `config.yaml`.
        lines: the whole lines of `metrics.jsonl`.
        summary: `summary.json`; empty before the run's end.
        scores: `scores.jsonl`, the held-out scores over the run; empty where it was not scored
            on its way: a line from its start to its end tells nothing of when it got there.
    """

    path: Path
    arm: str
    seed: int
    config: dict[str, Any]
    lines: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    scores: list[Scoring] = field(repr=False)

    @cached_property
    def batches(self) -> list[Batch]:
        """Generation batches, in order."""
        return [
            Batch(
                step=int(line["step"]),
                seconds=float(line.get("seconds", 0.0)),
                reward=float(line.get("fastrl/reward", line.get("reward", float("nan")))),
                generated=float(line["fastrl/generated"]),
                kept=float(line["fastrl/kept"]),
                kept_per_prompt=float(line["fastrl/kept_per_prompt"]),
                num_generations=float(line["fastrl/num_generations"]),
                without_contrast=float(line["fastrl/groups_without_contrast"]),
            )
            for line in self.lines
            if "fastrl/generated" in line
        ]

    @cached_property
    def phases(self) -> dict[str, float]:
        """Training seconds per phase."""
        return sum_phases(self.lines)

    @property
    def seconds(self) -> float:
        """Training seconds so far, evaluation and checkpoints not counted."""
        return float(self.lines[-1].get("seconds", 0.0))

    @property
    def steps(self) -> int:
        """Optimiser updates so far."""
        return int(self.lines[-1]["step"])

    @property
    def is_plain(self) -> bool:
        """Whether nothing is pruned."""
        return self.config.get("prune_rule") == PLAIN

    @property
    def is_finished(self) -> bool:
        """Whether it was trained and evaluated to its end."""
        return "finished" in self.summary or "after" in self.summary

    def held_out(self, when: str, key: str) -> float | None:
        """A held-out score.

        Args:
            when: "before" or "after".
            key: such as "sampled" (accuracy over samples), "greedy", "in_format".
        """
        value = (self.summary.get(when) or {}).get(key)
        return None if value is None else float(value)


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Runs in the given folders, and what there is to say.

    Args:
        paths: run folders, or folders of run folders (`<arm>-seed<k>`).

    Raises:
        ValueError: a path without runs, or a file of a run that cannot be read.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for path in paths:
        folders = [path] if _is_run(path) else sorted(f for f in _children(path) if _is_run(f))
        if not folders:
            raise ValueError(
                f"{path}: no run in it; expected a folder with config.yaml and metrics.jsonl (as "
                "fastrl train writes), or a folder of such folders named <arm>-seed<k>."
            )
        for folder in folders:
            run = read_run(folder)
            if run.lines:
                runs.append(run)
                if not run.is_finished:
                    notes.append(f"{folder.name} is not finished: {run.steps} updates so far.")
            else:
                notes.append(f"{folder.name} has made no update yet: left out.")
    if not runs:
        raise ValueError(f"{', '.join(map(str, paths))}: no run has made an update yet.")
    return runs, notes


def noted_against(paths: Sequence[Path]) -> str | None:
    """The arm that comparisons among these folders say the others are to be compared with.

    Raises:
        ValueError: a note cannot be read.
    """
    for path in paths:
        found = _read(path / COMPARISON_NAME, json.loads, json.JSONDecodeError).get("against")
        if found is not None:
            return str(found)
    return None


def read_run(path: Path) -> Run:
    """One run folder.

    Raises:
        ValueError: a file cannot be read; names it.
    """
    config = _read(path / "config.yaml", yaml.safe_load, yaml.YAMLError)
    scores = read_scores(path / "scores.jsonl")
    summary = _read(path / "summary.json", json.loads, json.JSONDecodeError)
    metrics = path / "metrics.jsonl"
    lines = [line for line in metric_lines(metrics) if "step" in line] if metrics.exists() else []
    named = ARM_AND_SEED.fullmatch(path.resolve().name)
    return Run(
        path=path,
        arm=named["arm"] if named else path.resolve().name,
        seed=int(named["seed"]) if named else int(config.get("seed", 0)),
        config=config,
        lines=lines,
        summary=summary,
        scores=scores if len(scores) > 2 else [],
    )


def _read(path: Path, parse: Any, error_type: type[Exception]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except error_type as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}; expected named values.")
    return content


def _is_run(path: Path) -> bool:
    return (path / "metrics.jsonl").exists() or (path / "config.yaml").exists()


def _children(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir()] if path.is_dir() else []
