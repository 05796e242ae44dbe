"""Runs by arm: means, bands and intervals over seeds, and the comparison with plain GRPO."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrl.report.phases import PHASES, PhaseSplit
from fastrl.report.run_folders import Batch, Run
from fastrl.report.scores import curve

MOST_POINTS = 80
# Two-sided 95% quantiles of Student's t, by degrees of freedom from 1: few seeds are few.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
T_95_MANY = 1.96
# What sizes a generation batch and the updates on it: with other values than plain's an arm's
# phases are not plain's with some rollouts left out.
BATCH_FIELDS = (
    "num_generations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
    "num_iterations",
)
FINAL_SHARE = 0.1  # "the end of a run": its last tenth of generation batches

Points = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Arm:
    """The runs of one setting, one a seed, in ascending seed.

    Attributes:
        name, runs: see above.
        is_chosen: whether the others are to be compared with it, plain or not.
    """

    name: str
    runs: tuple[Run, ...]
    is_chosen: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing is pruned."""
        return all(run.is_plain for run in self.runs)

    @property
    def title(self) -> str:
        """What it is called where others are compared with it."""
        return "plain" if self.is_plain else self.name

    @property
    def num_generations(self) -> int:
        """Rollouts per prompt as configured."""
        return int(self.runs[0].config.get("num_generations", 0))

    @property
    def kept_share(self) -> float:
        """Kept rollouts over generated ones, all runs together."""
        batches = [batch for run in self.runs for batch in run.batches]
        return sum(b.kept for b in batches) / max(sum(b.generated for b in batches), 1.0)

    @property
    def mean_num_generations(self) -> float:
        """Rollouts per prompt, mean over batches of all runs; NaN without batches."""
        used = [batch.num_generations for run in self.runs for batch in run.batches]
        return statistics.mean(used) if used else math.nan

    def phase_means(self) -> dict[str, float]:
        """Mean training seconds per phase over seeds."""
        return {
            phase: statistics.mean(run.phases.get(phase, 0.0) for run in self.runs)
            for phase in PHASES
        }


@dataclass(frozen=True)
class Band:
    """A curve over seeds: M points with mean, least and greatest value."""

    x_M: Points
    mean_M: Points
    low_M: Points
    high_M: Points


def by_arm(runs: Sequence[Run], against: str | None = None) -> list[Arm]:
    """Arms: the one to compare with first, then plain ones, otherwise in order of appearance.

    Args:
        runs: of all arms.
        against: the arm to compare the others with; None for a plain one.

    Raises:
        ValueError: two runs of one arm have the same seed, or there is no arm to compare with.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        others = found.setdefault(run.arm, [])
        if any(other.seed == run.seed for other in others):
            raise ValueError(
                f"{run.path}: arm {run.arm!r} has seed {run.seed} already; name the folders "
                "<arm>-seed<k>, each once."
            )
        others.append(run)
    if against is not None and against not in found:
        raise ValueError(
            f"--against {against}: no run of such an arm; expected one of {', '.join(found)}."
        )
    arms = [
        Arm(name, tuple(sorted(runs_of, key=lambda run: run.seed)), name == against)
        for name, runs_of in found.items()
    ]
    return sorted(
        arms,
        key=lambda arm: (
            not arm.is_chosen,
            not arm.is_plain,
            -arm.num_generations * arm.is_plain,
        ),
    )


def baseline(arms: Sequence[Arm]) -> Arm | None:
    """The arm to compare with: the chosen one, or the plain one with most rollouts per prompt."""
    chosen = next((arm for arm in arms if arm.is_chosen), None)
    plain = [arm for arm in arms if arm.is_plain]
    if chosen is not None or not plain:
        return chosen
    return max(plain, key=lambda arm: arm.num_generations)


def plain_split(arms: Sequence[Arm]) -> PhaseSplit | None:
    """Phases of the plain arm to compare with; None without one, or without phase times."""
    plain = baseline(arms)
    if plain is None or not plain.is_plain:
        return None
    split = PhaseSplit(plain.phase_means(), f"mean of {plain.name}")
    return split if split.total > 0 else None


def split_for(arms: Sequence[Arm], arm: Arm) -> PhaseSplit | None:
    """Phases of plain training that tell what pruning can give an arm.

    Returns:
        None where the formula is not the arm's: for plain runs with fewer rollouts, which save
        generation too, and for another number of rollouts or another batch than plain's.
    """
    plain, split = baseline(arms), plain_split(arms)
    if plain is None or split is None or arm is plain:
        return split
    return split if not arm.is_plain and _batch_shapes(arm) == _batch_shapes(plain) else None


def _batch_shapes(arm: Arm) -> set[tuple[str, ...]]:
    return {
        (
            *(repr(run.config.get(name)) for name in BATCH_FIELDS),
            repr((run.summary.get("machine") or {}).get("processes")),
        )
        for run in arm.runs
    }


def share_of_plain(plain: Arm, arm: Arm) -> float:
    """Rollouts that an arm learns from over those that plain generates, mean per batch.

    Where rollouts a prompt adapt the arm generates fewer than plain: of its own rollouts it keeps
    a greater share.

    Returns:
        The share; NaN without generation batches.
    """
    kept = [batch.kept for run in arm.runs for batch in run.batches]
    generated = [batch.generated for run in plain.runs for batch in run.batches]
    if not kept or not sum(generated):
        return math.nan
    return statistics.mean(kept) / statistics.mean(generated)


def band(
    arm: Arm, x: Callable[[Batch], float], y: Callable[[Batch], float], num_bins: int = MOST_POINTS
) -> Band | None:
    """A quantity of generation batches over seeds.

    Runs are averaged over equal stretches of x before they are compared: batches of different
    seeds do not end at the same second. The range is the one that all seeds cover.

    Args:
        arm: the runs.
        x: of a batch, ascending over a run.
        y: of a batch; NaN leaves it out.
        num_bins: most points.

    Returns:
        None without points.
    """
    curves = []
    for run in arm.runs:
        points = [(x(batch), y(batch)) for batch in run.batches if not math.isnan(y(batch))]
        if points:
            curves.append(np.array(points, dtype=np.float64))
    if not curves:
        return None
    shortest = min(len(curve) for curve in curves)
    start, end = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    if shortest == 1 or end <= start:
        curves = [curve[:1] for curve in curves]
        x_M = np.array([start])
    else:
        x_M = np.linspace(start, end, min(num_bins, shortest))
    return _band(x_M, [_binned(curve, x_M) for curve in curves])


def score_band(arm: Arm, by: str) -> Band | None:
    """Held-out accuracy over seeds, with straight lines between scorings.

    Args:
        arm: the runs; those without scores over time are left out.
        by: what x is, "seconds" or "step".

    Returns:
        Points at every seed's scorings, over the range that all seeds cover; None without any.
    """
    curves = [curve(run.scores, by) for run in arm.runs if run.scores]
    if not curves:
        return None
    x_M = np.unique(np.concatenate([c[:, 0] for c in curves]))
    x_M = x_M[(x_M >= max(c[0, 0] for c in curves)) & (x_M <= min(c[-1, 0] for c in curves))]
    return _band(x_M, [np.interp(x_M, c[:, 0], c[:, 1]) for c in curves])


def _band(x_M: Points, values: Sequence[Points]) -> Band:
    values_SM = np.stack(values)
    return Band(x_M, values_SM.mean(axis=0), values_SM.min(axis=0), values_SM.max(axis=0))


def _binned(curve: Points, x_M: Points) -> Points:
    """(M,) means of a curve's points nearest to each x; interpolated where there are none."""
    at_M = np.interp(x_M, curve[:, 0], curve[:, 1])
    if len(curve) <= len(x_M):
        return at_M
    nearest = np.searchsorted((x_M[1:] + x_M[:-1]) / 2, curve[:, 0])
    counts_M = np.bincount(nearest, minlength=len(x_M))
    sums_M = np.bincount(nearest, curve[:, 1], minlength=len(x_M))
    result: Points = np.where(counts_M > 0, sums_M / np.maximum(counts_M, 1), at_M)
    return result


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval; without limits for a single value."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean and interval of independent values, by Student's t.

    Returns:
        None without any.
    """
    if not values:
        return None
    mean = statistics.mean(values)
    if len(values) == 1:
        return Interval(mean)
    quantile = T_95[len(values) - 2] if len(values) - 2 < len(T_95) else T_95_MANY
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def ratio_interval(ratios: Sequence[float]) -> Interval | None:
    """Geometric mean and interval of independent ratios, by Student's t on their logarithms.

    Args:
        ratios: positive.

    Returns:
        None without any.
    """
    found = mean_interval([math.log(value) for value in ratios])
    if found is None or found.low is None or found.high is None:
        return Interval(ratios[0]) if found else None
    return Interval(math.exp(found.mean), math.exp(found.low), math.exp(found.high))


def pairs(plain: Arm, arm: Arm) -> list[tuple[Run, Run]]:
    """(plain run, the arm's run) of every seed that both have, at the same number of updates."""
    by_seed = {run.seed: run for run in plain.runs}
    return [
        (by_seed[run.seed], run)
        for run in arm.runs
        if run.seed in by_seed
        and by_seed[run.seed].steps == run.steps
        and min(run.seconds, by_seed[run.seed].seconds) > 0
    ]


def final_reward(run: Run) -> float:
    """Mean full-group reward over the last tenth of the generation batches; NaN without any."""
    window = _window(run)
    rewards = [batch.reward for batch in run.batches[-window:] if not math.isnan(batch.reward)]
    return statistics.mean(rewards) if rewards else math.nan


def seconds_to_reward(run: Run, level: float) -> float | None:
    """Training seconds until the reward, a trailing mean over a tenth of the run, reaches a level.

    Returns:
        None where it never does.
    """
    window = _window(run)
    for end in range(window, len(run.batches) + 1):
        if statistics.mean(b.reward for b in run.batches[end - window : end]) >= level:
            return run.batches[end - 1].seconds
    return None


def _window(run: Run) -> int:
    return max(1, round(len(run.batches) * FINAL_SHARE))
