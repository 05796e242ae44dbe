"""The rules FastRL is compared with, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastrl.core import (
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    Rollouts,
    TopAdvantagePruning,
    prune,
)
from fastrl.core.rules import nearest_fraction


def kept(rule: PruningRule, advantages: list[float]) -> list[int]:
    num_rows = len(advantages)
    selection = prune(Rollouts([0] * num_rows, advantages, [[1]] * num_rows), rule)
    return [int(row) for row in selection.keep]


@pytest.mark.parametrize(
    ("advantages", "fraction", "expected"),
    [
        ([0.1, -3.0, 2.0, 1.0], 0.5, [1, 2]),
        ([1.0, -1.0, 1.0, -1.0], 0.5, [0, 1]),
        ([0.0, 5.0, 1.0], 0.5, [1]),
        ([0.0, 5.0, 1.0], 0.1, [1]),
        ([0.0, 5.0, 1.0], 1.0, [0, 1, 2]),
    ],
)
def test_top_advantage(advantages: list[float], fraction: float, expected: list[int]) -> None:
    assert kept(TopAdvantagePruning(fraction), advantages) == expected


def test_k_is_the_floor_that_was_meant() -> None:
    assert TopAdvantagePruning(0.29).num_kept(100) == 29
    assert RandomPruning(1 / 3).num_kept(9) == 3
    assert MaxVariancePruning(0.5).num_kept(7) == 3
    assert MaxVariancePruning(0.5).num_kept(1) == 1


@pytest.mark.parametrize(
    ("share", "size", "count"),
    [(0.38, 8, 3), (0.49, 8, 4), (0.01, 8, 1), (1.0, 8, 8), (0.39, 4, 2)],
)
def test_the_nearest_share_that_whole_rows_allow(share: float, size: int, count: int) -> None:
    assert TopAdvantagePruning(nearest_fraction(share, size)).num_kept(size) == count


@pytest.mark.parametrize("rule", [TopAdvantagePruning, MaxVariancePruning, RandomPruning])
@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, float("nan"), None, "half", True])
def test_keep_fraction_is_checked(rule: type[TopAdvantagePruning], fraction: float) -> None:
    with pytest.raises(ValueError, match=f"{rule.__name__}.*\n.*keep_fraction = "):
        rule(keep_fraction=fraction)


def test_ragged_groups_get_their_own_k() -> None:
    rollouts = Rollouts([1, 0, 1, 1, 1, 0, 2], [4.0, 1.0, 3.0, 2.0, 1.0, 2.0, 0.0], [[1]] * 7)
    for rule in (TopAdvantagePruning(), MaxVariancePruning(), RandomPruning()):
        selection = prune(rollouts, rule)
        assert selection.kept_per_group.tolist() == [1, 2, 1]
        assert set(selection.reason) == {"rule"}
        assert np.isnan(selection.similarity).all()
        assert (selection.duplicate_of == -1).all()


@pytest.mark.parametrize(
    ("advantages", "expected"),
    [
        ([0.0, 1.0, 0.5, 0.6], [0, 1]),
        ([0.0, 0.0, 1.0, 1.0], [0, 2]),  # of equal rewards the earlier rows
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0, 3, 4]),  # of equal splits more of the largest
        ([0.1, 0.1, 0.1, 0.6, 0.6, 0.6], [0, 3, 4]),  # the same, where float noise says otherwise
        ([100000.4, 100000.7, 100000.3, 100000.4], [1, 2]),  # sums of squares need centring
        ([2.0, 2.0, 2.0, 2.0], [0, 1]),
        ([1.0, 1.00001, 1.0, 1.0], [0, 1]),
        ([1e300, -1e300, 0.0, 0.0], [0, 1]),
    ],
)
def test_max_variance(advantages: list[float], expected: list[int]) -> None:
    assert kept(MaxVariancePruning(), advantages) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([0.0, 0.5, 1.5]), st.floats(-3, 3)), min_size=1, max_size=9),
    st.floats(0.05, 1.0),
)
@example([0.1] * 3, 0.7)
def test_max_variance_beats_every_other_subset(values: list[float], fraction: float) -> None:
    rule = MaxVariancePruning(fraction)
    rows = kept(rule, values)
    assert len(rows) == rule.num_kept(len(values))
    subsets = itertools.combinations(values, len(rows))
    best = max(float(np.var(subset)) for subset in subsets)
    assert float(np.var([values[row] for row in rows])) == pytest.approx(best, abs=1e-9)


def test_random_follows_its_seed() -> None:
    rollouts = Rollouts([0] * 30, [1.0] * 30, [[1]] * 30)
    one, again, other = (
        prune(rollouts, RandomPruning(), seed=seed).keep.tolist() for seed in ((1, 2), (1, 2), 3)
    )
    assert one == again != other


def test_random_exact_weighs_n_over_k_and_refill_nothing() -> None:
    rollouts = Rollouts([0] * 30, [1.0] * 30, [[1]] * 30)
    selection = prune(rollouts, RandomPruning(0.2), weighting="exact", multiple_of=10)
    is_refill = selection.reason[selection.keep] == "refill"
    assert is_refill.sum() == 4
    np.testing.assert_array_equal(selection.weights, np.where(is_refill, 0.0, 5.0))
