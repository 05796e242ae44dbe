"""The pruning rules: which rollouts of a group are worth learning from. One class a rule."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrl.core.draws import GroupDraws
from fastrl.core.groups import Groups, rank_in_group, rounded, run_starts
from fastrl.core.rollouts import BoolArray, FloatArray, IntArray, Rollouts
from fastrl.core.similarity import token_set_jaccard
from fastrl.core.validation import is_int, is_number, raise_problems

Weighting: TypeAlias = Literal["kept", "exact"]


@dataclass(eq=False)
class Choice:
    """What a rule decides about N rows: `Selection`, before dropped groups and refill.

    `weights_N` is read where `keep_N` is True only.
    """

    keep_N: BoolArray
    weights_N: FloatArray
    reason_N: npt.NDArray[np.str_]
    duplicate_of_N: IntArray
    similarity_N: FloatArray

    @classmethod
    def of(cls, keep_N: BoolArray, reason: str) -> Choice:
        """Keep these rows with weight 1, one reason for all rows, nothing compared."""
        num_rows = len(keep_N)
        return cls(
            keep_N=keep_N,
            weights_N=np.ones(num_rows),
            reason_N=np.full(num_rows, reason, dtype="<U11"),
            duplicate_of_N=np.full(num_rows, -1, dtype=np.int64),
            similarity_N=np.full(num_rows, np.nan),
        )


class PruningRule(ABC):
    """A rule looks at each group by itself and at nothing outside the rollouts given.

    Attributes:
        has_exact_weights: whether weights exist that make the pruned loss unbiased.
        decimals: advantages that agree to so many decimals count as equal.
    """

    has_exact_weights: ClassVar[bool] = False
    decimals: int = 4

    @abstractmethod
    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Decide about every row; `draws` is the only source of chance."""


@dataclass(frozen=True)
class DifferentialPruning(PruningRule):
    """FastRL's rule: one rollout per distinct advantage, and those that got there otherwise.

    A group is bucketed by its advantages, rounded. Each bucket keeps a seed and every member
    whose token-set similarity with the seed is below the threshold. Under "kept" the seed is
    the row of largest |advantage| (the first on a tie) and all weights are 1. Under "exact" the
    seed is drawn uniformly and also carries the weight of the members it stands for; since
    similarity is symmetric, every row's expected weight is then exactly 1.

    Args:
        similarity_threshold: in [0, 1]; below it two completions are different paths. 0 keeps
            the seeds alone.
        decimals: advantages that agree to so many decimals share a bucket; at least 0.

    Raises:
        ValueError: a setting is out of range.

    Source: the FastRL paper, differential-aware advantage pruning.
    """

    has_exact_weights: ClassVar[bool] = True
    similarity_threshold: float = 0.2
    decimals: int = 4

    def __post_init__(self) -> None:
        threshold, problems = self.similarity_threshold, []
        if not is_number(threshold) or not 0 <= threshold <= 1:
            problems.append(
                f"similarity_threshold = {threshold!r}: expected a number in [0, 1]"
                " (to keep every rollout use KeepAll)"
            )
        if not is_int(self.decimals) or self.decimals < 0:
            problems.append(f"decimals = {self.decimals!r}: expected an integer of at least 0")
        raise_problems("DifferentialPruning", problems)

    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Keep a seed per bucket and the members that differ from it."""
        num_rows, group_of_N = len(rollouts), groups.group_of_N
        choice = Choice.of(np.zeros(num_rows, dtype=np.bool_), "duplicate")
        if not num_rows:
            return choice
        bucket_value_N = rounded(rollouts.advantages, self.decimals)
        # lexsort is stable, so rows that tie in all keys stay in row order.
        order_N = np.lexsort((-np.abs(rollouts.advantages), bucket_value_N, group_of_N))
        if weighting == "exact":
            order_N = np.lexsort((bucket_value_N, group_of_N))
        starts_B = run_starts(group_of_N[order_N], bucket_value_N[order_N])
        sizes_B = np.diff(starts_B, append=num_rows)
        position_B = np.zeros(len(starts_B), dtype=np.int64)
        if weighting == "exact":
            position_B = draws.positions(group_of_N[order_N[starts_B]], sizes_B)
        seed_B = order_N[starts_B + position_B]
        seed_of_N = np.empty(num_rows, dtype=np.int64)
        seed_of_N[order_N] = np.repeat(seed_B, sizes_B)

        members = np.flatnonzero(seed_of_N != np.arange(num_rows))
        similarity = token_set_jaccard(rollouts.completion_ids, members, seed_of_N[members])
        choice.similarity_N[members] = similarity
        is_different = similarity < self.similarity_threshold
        different, duplicates = members[is_different], members[~is_different]
        choice.duplicate_of_N[duplicates] = seed_of_N[duplicates]
        choice.reason_N[seed_B], choice.reason_N[different] = "seed", "different"
        choice.keep_N[seed_B] = choice.keep_N[different] = True
        if weighting == "exact":
            num_different_N = np.bincount(seed_of_N[different], minlength=num_rows)
            choice.weights_N[seed_B] = sizes_B - num_different_N[seed_B]
        return choice


def nearest_fraction(share: float, group_size: float) -> float:
    """The `keep_fraction` at which a rule keeps the whole number of rows nearest to a share.

    The rules below round down: the share itself would keep up to one row less of each group.

    Args:
        share: of a group's rows, in (0, 1].
        group_size: rows, mean over groups; at least 1.

    Returns:
        A fraction in (0, 1] whose floor(group_size * fraction) is nearest to group_size * share.
    """
    return min(1.0, (share * group_size + 0.5) / group_size)


@dataclass(frozen=True)
class _FractionRule(PruningRule):
    """A rule that keeps k = max(1, floor(n * keep_fraction)) of a group's n rows."""

    keep_fraction: float = 0.5

    def __post_init__(self) -> None:
        fraction = self.keep_fraction
        if not is_number(fraction) or not 0 < fraction <= 1:
            told = f"keep_fraction = {fraction!r}: expected a number in (0, 1]"
            raise_problems(type(self).__name__, [told])

    def num_kept(self, group_size: int) -> int:
        """k for a group of this many rows."""
        # 100 * 0.29 is 28.999999999999996 in binary: the slack makes it the 29 that was meant.
        return max(1, math.floor(group_size * self.keep_fraction + 1e-9))


@dataclass(frozen=True)
class TopAdvantagePruning(_FractionRule):
    """Keep the k rows of largest |advantage| of each group, the earlier first on a tie.

    Args:
        keep_fraction: in (0, 1]; k = max(1, floor(n * keep_fraction)).

    Raises:
        ValueError: keep_fraction is out of range.

    Source: CPPO, arXiv 2503.22342.
    """

    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Keep the k first of each group by |advantage|."""
        num_kept_G = np.array([self.num_kept(n) for n in groups.sizes_G.tolist()], dtype=np.int64)
        rank_N = rank_in_group(groups.group_of_N, np.abs(rollouts.advantages))
        return Choice.of(rank_N < num_kept_G[groups.group_of_N], "rule")


@dataclass(frozen=True)
class MaxVariancePruning(_FractionRule):
    """Keep the k rows of each group whose rewards vary most: some smallest, some largest.

    Decided on advantages: within a group they are an increasing affine function of the reward,
    which leaves the best subset as it is. Where several splits are equally good, the one with
    more of the largest; among equal values the earlier rows. O(n log n) a group.

    Args:
        keep_fraction: in (0, 1]; k = max(1, floor(n * keep_fraction)).

    Raises:
        ValueError: keep_fraction is out of range.

    Source: PODS, arXiv 2504.13818.
    """

    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Keep the k rows of each group that vary most."""
        keep_N = np.zeros(len(rollouts), dtype=np.bool_)
        for rows in groups.members():
            positions = _max_variance_subset(rollouts.advantages[rows], self.num_kept(len(rows)))
            keep_N[rows[positions]] = True
        return Choice.of(keep_N, "rule")


def _max_variance_subset(values_n: FloatArray, count: int) -> IntArray:
    """(count,) positions of the subset of greatest variance."""
    order = np.argsort(values_n, kind="stable")
    # Scaling and centring first keep the sums exact enough for tiny and huge rewards alike.
    scale = np.abs(values_n).max() or 1.0
    ordered = values_n[order] / scale
    ordered = ordered - ordered.mean()
    num_values = len(ordered)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    num_small = np.arange(count + 1)
    first_large = num_values - (count - num_small)
    total = sums[num_small] + sums[-1] - sums[first_large]
    total_squares = squares[num_small] + squares[-1] - squares[first_large]
    spread = total_squares - total**2 / count
    # argmax takes the fewest small ones; the slack lets float noise not decide a tie.
    best = int(np.argmax(spread >= spread.max() - 1e-12 * squares[-1]))
    is_chosen = np.ones(num_values, dtype=np.bool_)
    is_chosen[best : num_values - (count - best)] = False
    block_starts = run_starts(values_n[order])
    block_of = np.repeat(np.arange(len(block_starts)), np.diff(block_starts, append=num_values))
    per_block = np.bincount(block_of[is_chosen], minlength=len(block_starts))
    rank_in_block = np.arange(num_values) - block_starts[block_of]
    return order[rank_in_block < per_block[block_of]]


@dataclass(frozen=True)
class RandomPruning(_FractionRule):
    """Keep k rows of each group, every subset equally likely: the control.

    Under "exact" each kept row weighs n / k.

    Args:
        keep_fraction: in (0, 1]; k = max(1, floor(n * keep_fraction)).

    Raises:
        ValueError: keep_fraction is out of range.
    """

    has_exact_weights: ClassVar[bool] = True

    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Keep k rows of each group by chance."""
        choice = Choice.of(np.zeros(len(rollouts), dtype=np.bool_), "rule")
        for group, rows in enumerate(groups.members()):
            num_kept = self.num_kept(len(rows))
            kept = rows[draws.subset(group, len(rows), num_kept)]
            choice.keep_N[kept] = True
            if weighting == "exact":
                choice.weights_N[kept] = len(rows) / num_kept
        return choice


@dataclass(frozen=True)
class KeepAll(PruningRule):
    """Keep every row with weight 1, under both weightings: the host without pruning."""

    has_exact_weights: ClassVar[bool] = True

    def choose(
        self, rollouts: Rollouts, groups: Groups, draws: GroupDraws, weighting: Weighting
    ) -> Choice:
        """Keep every row."""
        return Choice.of(np.ones(len(rollouts), dtype=np.bool_), "rule")
