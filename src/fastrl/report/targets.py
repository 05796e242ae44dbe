"""How soon runs reach a held-out accuracy, and what they have at equal training time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastrl.report.arms import Arm, Points, baseline
from fastrl.report.run_folders import Run
from fastrl.report.scores import curve, first_reach


@dataclass(frozen=True)
class Target:
    """An accuracy to reach.

    Attributes:
        accuracy: a share in (0, 1].
        source: where it comes from, in words.
    """

    accuracy: float
    source: str


def has_scores(arms: Sequence[Arm]) -> bool:
    """Whether any run was scored on its way."""
    return any(run.scores for arm in arms for run in arm.runs)


def accuracy_target(arms: Sequence[Arm], given: float | None = None) -> Target | None:
    """The accuracy to reach: plain's final one, mean over its seeds, unless one is given.

    Args:
        arms: of the report.
        given: a share in (0, 1].

    Returns:
        None where no run has scores over time, or none is plain and nothing is given.

    Raises:
        ValueError: a target that is no such share, or no scores to look for it in.
    """
    if given is not None:
        if not 0 < given <= 1:
            raise ValueError(f"--target {given:g}: expected an accuracy in (0, 1], such as 0.9.")
        if not has_scores(arms):
            raise ValueError(
                f"--target {given:g}: no run has held-out scores over time (scores.jsonl); leave "
                "--target out."
            )
        return Target(given, "as given")
    plain = baseline(arms)
    scored = [run for run in plain.runs if run.scores] if plain else []
    # A run on its way would pull the target down; without a finished one there is no other.
    final = [run for run in scored if run.is_finished] or scored
    if plain is None or not final:
        return None
    accuracy = statistics.mean(run.scores[-1].sampled for run in final)
    return Target(accuracy, f"the final accuracy of {plain.name}, mean over its seeds")


def seconds_to(run: Run, target: float) -> float | None:
    """Training seconds until held-out accuracy reaches a target; None where it never does."""
    return first_reach(curve(run.scores), target)


@dataclass(frozen=True)
class TimeToTarget:
    """An arm's way to a target, seed by seed.

    Attributes:
        num_runs: runs with scores.
        seconds, steps: of the runs that reach it.
        ratios: seed -> plain's seconds over the arm's, where both reach it in training.
        without_ratio: why a seed has none -> how many such seeds.
    """

    num_runs: int
    seconds: tuple[float, ...]
    steps: tuple[float, ...]
    ratios: dict[int, float]
    without_ratio: dict[str, int]

    @property
    def missing(self) -> str:
        """`without_ratio` in words; empty where every seed has a ratio."""
        return ", ".join(f"{count} {why}" for why, count in self.without_ratio.items())


def time_to_target(plain: Arm | None, arm: Arm, target: float) -> TimeToTarget:
    """When the runs of an arm first reach a target, against plain runs of the same seeds."""
    scored = [run for run in arm.runs if run.scores]
    plains = {run.seed: run for run in plain.runs if run.scores} if plain else {}
    seconds, steps = [], []
    ratios: dict[int, float] = {}
    without: dict[str, int] = {}
    for run in scored:
        mine, step = seconds_to(run, target), first_reach(curve(run.scores, "step"), target)
        if mine is not None and step is not None:
            seconds.append(mine)
            steps.append(step)
        if plain is None or arm is plain:
            continue
        other = plains.get(run.seed)
        others = seconds_to(other, target) if other else None
        why = _why_no_ratio(plain.title, other is not None, others, mine)
        if why is None and mine and others:
            ratios[run.seed] = others / mine
        else:
            without[str(why)] = without.get(str(why), 0) + 1
    return TimeToTarget(len(scored), tuple(seconds), tuple(steps), ratios, without)


def _why_no_ratio(
    plain: str, has_plain: bool, plains: float | None, mine: float | None
) -> str | None:
    if not has_plain:
        return f"without a run of {plain}" if plain != "plain" else "without a plain run"
    if plains is None or mine is None:
        late = "neither" if plains is mine else plain if plains is None else "the arm"
        return f"where {late} {'ever' if late == 'neither' else 'never'} reaches it"
    return "there from the start" if 0 in (plains, mine) else None


@dataclass(frozen=True)
class EqualTime:
    """Accuracy of an arm and of plain after the same training seconds; one entry a seed."""

    seconds: tuple[float, ...]
    arm: tuple[float, ...]
    plain: tuple[float, ...]

    @property
    def differences(self) -> list[float]:
        """The arm's accuracy less plain's."""
        return [mine - other for mine, other in zip(self.arm, self.plain, strict=True)]


def equal_time(plain: Arm, arm: Arm) -> EqualTime:
    """Both accuracies at the moment at which the first of the two runs of a seed ends."""
    plains = {run.seed: run for run in plain.runs if run.scores}
    found = []
    for run in arm.runs:
        other = plains.get(run.seed)
        if not run.scores or other is None:
            continue
        mine, others = curve(run.scores), curve(other.scores)
        moment = min(mine[-1, 0], others[-1, 0])
        if moment > 0:
            found.append((moment, _height(mine, moment), _height(others, moment)))
    seconds, arm_S, plain_S = zip(*found, strict=True) if found else ((), (), ())
    return EqualTime(tuple(seconds), tuple(arm_S), tuple(plain_S))


def _height(curve_M2: Points, x: float) -> float:
    return float(np.interp(x, curve_M2[:, 0], curve_M2[:, 1]))
