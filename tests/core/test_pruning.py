"""The differential rule, refill, dropped groups, and what Selection tells."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.core import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    Rollouts,
    TopAdvantagePruning,
    prune,
)

ALL_RULES = [
    DifferentialPruning(),
    TopAdvantagePruning(),
    MaxVariancePruning(),
    RandomPruning(),
    KeepAll(),
]
LEVELS = [-1.25, -0.5, 0.0, 0.5, 1.25]


@st.composite
def batches(draw: st.DrawFn, distinct_magnitudes: bool = False) -> Rollouts:
    """Ragged, interleaved groups; few advantage levels; short texts of few tokens."""
    num_rows = draw(st.integers(0, 14))
    ids = draw(st.lists(st.integers(-2, 3), min_size=num_rows, max_size=num_rows))
    levels = draw(st.lists(st.sampled_from(LEVELS), min_size=num_rows, max_size=num_rows))
    if distinct_magnitudes:
        # Below the rounding, so that buckets stay as they are and no |advantage| is a tie.
        levels = [level + 1e-7 * (row + 1) for row, level in enumerate(levels)]
    row = st.lists(st.integers(0, 9), max_size=6)
    return Rollouts(ids, levels, draw(st.lists(row, min_size=num_rows, max_size=num_rows)))


def permuted(rollouts: Rollouts, order: list[int]) -> Rollouts:
    tokens = [rollouts.completion_ids[row] for row in order]
    return Rollouts(rollouts.group_ids[order], rollouts.advantages[order], tokens)


def test_worked_example() -> None:
    #          seed    different  duplicate  seed of 2nd bucket
    tokens = [[1, 2, 3], [7, 8], [1, 2, 9], [4], [5], []]
    rollouts = Rollouts([7, 7, 7, 7, 3, 3], [1.0, 1.0, 1.0, -3.0, 0.0, -0.0], tokens)
    selection = prune(rollouts, DifferentialPruning())
    assert selection.keep.tolist() == [0, 1, 3, 4, 5]
    assert selection.keep.dtype == selection.kept_per_group.dtype == np.int64
    assert selection.reason.tolist() == [
        "seed",
        "different",
        "duplicate",
        "seed",
        "seed",
        "different",
    ]
    assert selection.duplicate_of.tolist() == [-1, -1, 0, -1, -1, -1]
    np.testing.assert_array_equal(selection.similarity, [np.nan, 0, 0.5, np.nan, np.nan, 0])
    assert selection.weights.tolist() == [1.0] * 5
    assert selection.num_before_refill == 5
    assert selection.group_ids.tolist() == [3, 7]
    assert selection.kept_per_group.tolist() == [2, 3]
    assert selection.informative_per_group.tolist() == [False, True]


def test_similarity_at_the_threshold_is_a_duplicate() -> None:
    rollouts = Rollouts([0, 0], [1.0, 1.0], [[1, 2, 3], [3, 4, 5]])
    assert prune(rollouts, DifferentialPruning(0.2)).keep.tolist() == [0]
    assert prune(rollouts, DifferentialPruning(0.2001)).keep.tolist() == [0, 1]


def test_seed_is_the_largest_magnitude_of_its_bucket_and_the_first_on_a_tie() -> None:
    tokens = [[1]] * 4
    rollouts = Rollouts([0] * 4, [-1.00001, -1.00003, -1.00003, -1.00002], tokens)
    selection = prune(rollouts, DifferentialPruning())
    assert selection.keep.tolist() == [1]
    assert selection.duplicate_of.tolist() == [1, -1, 1, 1]


def test_minus_zero_shares_the_bucket_of_zero() -> None:
    rollouts = Rollouts([0] * 4, [-0.0, 0.0, -4e-5, 4e-5], [[1]] * 4)
    assert prune(rollouts, DifferentialPruning()).keep.tolist() == [2]


def test_decimals_decide_what_is_equal() -> None:
    rollouts = Rollouts([0, 0], [0.62, 0.64], [[1], [1]])
    assert prune(rollouts, DifferentialPruning(decimals=1)).keep.tolist() == [1]
    assert prune(rollouts, DifferentialPruning(decimals=2)).keep.tolist() == [0, 1]


def test_huge_advantages_stay_apart() -> None:
    rollouts = Rollouts([0, 0, 0], [1e306, 2e306, -1e306], [[1]] * 3)
    assert prune(rollouts, DifferentialPruning()).keep.tolist() == [0, 1, 2]


def test_equal_advantages_of_different_groups_never_meet() -> None:
    rollouts = Rollouts(["b", "a", "b", "a"], [1.0] * 4, [[1]] * 4)
    selection = prune(rollouts, DifferentialPruning())
    assert selection.keep.tolist() == [0, 1]
    assert selection.duplicate_of.tolist() == [-1, -1, 0, 1]
    assert selection.group_ids.tolist() == ["a", "b"]


def test_near_equal_rewards_under_centred_statistics() -> None:
    # Rewards 1.00000 and 1.00001: a contrast once divided by their deviation, as hosts do.
    rewards = np.array([1.0, 1.00001])
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    selection = prune(Rollouts([0, 0], advantages, [[1], [1]]), DifferentialPruning())
    assert selection.keep.tolist() == [0, 1]
    assert selection.informative_per_group.tolist() == [True]


def test_float_noise_is_no_contrast() -> None:
    # Rewards of 0.1 three times in float32 less their mean in float64: 1.5e-9 is left.
    advantages = np.array([0.1] * 3, dtype=np.float32) - np.float64(0.1)
    assert (advantages != 0).all()
    selection = prune(Rollouts([0] * 3, advantages, [[1]] * 3), DifferentialPruning())
    assert selection.informative_per_group.tolist() == [False]
    assert selection.keep.tolist() == [0]


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("drop", [False, True])
def test_empty_batch(rule: PruningRule, drop: bool) -> None:
    selection = prune(Rollouts([], [], []), rule, multiple_of=4, drop_uninformative=drop)
    assert selection.keep.tolist() == selection.weights.tolist() == []
    assert selection.kept_per_group.tolist() == selection.reason.tolist() == []
    assert selection.num_before_refill == 0


@pytest.mark.parametrize("rule", ALL_RULES)
def test_singletons_are_kept(rule: PruningRule) -> None:
    selection = prune(Rollouts([9, 4, 1], [0.0, 1.0, -1.0], [[1], [], [1]]), rule)
    assert selection.keep.tolist() == [0, 1, 2]
    assert selection.kept_per_group.tolist() == [1, 1, 1]


def test_refill_walks_the_groups_in_ascending_id() -> None:
    #          0    1    2    3    4    5    6    7
    ids = [5, 5, 5, 2, 2, 2, 5, 2]
    advantages = [0.5, 0.5, 0.50002, 0.1, 0.1, 0.10001, 0.50001, 0.1]
    rollouts = Rollouts(ids, advantages, [[1]] * 8)
    expected = {1: [2, 5], 3: [2, 3, 5], 4: [2, 3, 5, 6], 5: [2, 3, 4, 5, 6]}
    for multiple_of, keep in expected.items():
        selection = prune(rollouts, DifferentialPruning(), multiple_of=multiple_of)
        assert selection.keep.tolist() == keep
        assert selection.num_before_refill == 2
    assert selection.reason[[3, 4, 6]].tolist() == ["refill"] * 3
    assert selection.duplicate_of[[3, 4, 6]].tolist() == [5, 5, 2]
    assert selection.weights.tolist() == [1.0] * 5


def test_refill_compares_unrounded_advantages() -> None:
    rollouts = Rollouts([0] * 3, [1.00003, 1.00001, 1.00002], [[1]] * 3)
    assert prune(rollouts, DifferentialPruning(), multiple_of=2).keep.tolist() == [0, 2]


def test_refill_stops_when_nothing_is_left() -> None:
    rollouts = Rollouts([0, 0, 1], [1.0, 1.0, 0.0], [[1]] * 3)
    selection = prune(rollouts, DifferentialPruning(), multiple_of=1000)
    assert selection.keep.tolist() == [0, 1, 2]
    assert selection.num_before_refill == 2


def test_dropped_groups_leave_whole_and_never_refill() -> None:
    rollouts = Rollouts([1, 1, 2, 2, 3], [0.0, -4e-5, 1.0, 1.0, 0.0], [[1], [1], [3], [3], [4]])
    selection = prune(rollouts, DifferentialPruning(), multiple_of=4, drop_uninformative=True)
    assert selection.keep.tolist() == [2, 3]
    assert selection.num_before_refill == 1
    assert selection.kept_per_group.tolist() == [0, 2, 0]
    assert selection.reason.tolist() == ["no_contrast"] * 2 + ["seed", "refill", "no_contrast"]
    assert selection.duplicate_of.tolist() == [-1, -1, -1, 2, -1]
    assert np.isnan(selection.similarity[[0, 1, 4]]).all()
    kept = prune(rollouts, DifferentialPruning(), multiple_of=4)
    assert kept.kept_per_group.tolist() == [2, 1, 1]
    assert kept.duplicate_of.tolist() == [1, -1, -1, 2, -1]


def test_the_full_group_decides_on_contrast() -> None:
    # Leave-one-out on rewards [0] + [0.95] * 7: all eight belong to one group with contrast.
    rewards = np.array([0.0] + [0.95] * 7)
    advantages = rewards - (rewards.sum() - rewards) / 7
    rollouts = Rollouts([0] * 8, advantages, [[1]] * 8)
    selection = prune(rollouts, DifferentialPruning(), drop_uninformative=True)
    assert selection.keep.tolist() == [0, 1]
    assert "no_contrast" not in selection.reason


def test_equal_advantages_other_than_zero_are_not_dropped() -> None:
    selection = prune(
        Rollouts([0, 0], [0.5, 0.5], [[1], [1]]), DifferentialPruning(), drop_uninformative=True
    )
    assert selection.keep.tolist() == [0]


@pytest.mark.parametrize("rule", ALL_RULES)
def test_nothing_left_is_an_empty_selection(rule: PruningRule) -> None:
    rollouts = Rollouts([0, 0, 1], [0.0] * 3, [[1]] * 3)
    selection = prune(rollouts, rule, multiple_of=2, drop_uninformative=True)
    assert selection.keep.tolist() == []
    assert selection.kept_per_group.tolist() == [0, 0]
    assert selection.reason.tolist() == ["no_contrast"] * 3


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"multiple_of": 0}, "multiple_of = 0"),
        ({"multiple_of": 2.0}, "multiple_of = 2.0"),
        ({"weighting": "exakt"}, "weighting = 'exakt': expected 'kept' or 'exact'"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": (1, 2.5)}, "2.5 is not a non-negative integer"),
        ({"seed": ()}, "seed = ()"),
    ],
)
def test_bad_settings_are_named(settings_: dict[str, Any], told: str) -> None:
    rollouts = Rollouts([0], [1.0], [[1]])
    with pytest.raises(ValueError, match=re.escape(told)):
        prune(rollouts, DifferentialPruning(), **settings_)


def test_all_bad_settings_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="prune: 4 problem") as caught:
        prune(Rollouts([], [], []), KeepAll, -1, "none", "x")  # type: ignore[arg-type]
    for name in ("multiple_of = -1", "weighting = 'none'", "seed = 'x'", "rule = <class"):
        assert name in str(caught.value)


def test_bad_rule_settings_are_named() -> None:
    with pytest.raises(ValueError, match="DifferentialPruning: 2 problem") as caught:
        DifferentialPruning(similarity_threshold=-0.1, decimals=-1)
    assert "similarity_threshold = -0.1" in str(caught.value)
    assert "decimals = -1" in str(caught.value)
    for threshold in (float("nan"), 20, None, True):
        with pytest.raises(ValueError, match="similarity_threshold"):
            DifferentialPruning(similarity_threshold=threshold)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(batches(), st.integers(1, 9), st.sampled_from(ALL_RULES), st.booleans(), st.booleans())
def test_selection_is_consistent(
    rollouts: Rollouts, multiple_of: int, rule: PruningRule, drop: bool, exact: bool
) -> None:
    weighting = "exact" if exact and rule.has_exact_weights else "kept"
    got = prune(rollouts, rule, multiple_of, weighting, (1, 2), drop)  # type: ignore[arg-type]
    keep, num_rows = got.keep.tolist(), len(rollouts)
    assert keep == sorted(set(keep))
    assert set(keep) <= set(range(num_rows))
    assert len(got.weights) == len(keep) == got.kept_per_group.sum()
    num_refilled = int((got.reason == "refill").sum())
    assert got.num_before_refill + num_refilled == len(keep)
    assert num_refilled < multiple_of
    can_refill = num_rows - int((got.reason == "no_contrast").sum())
    assert len(keep) % multiple_of == 0 or len(keep) == can_refill
    is_kept = np.isin(np.arange(num_rows), keep)
    assert is_kept[np.isin(got.reason, ["seed", "different", "refill"])].all()
    assert not is_kept[np.isin(got.reason, ["duplicate", "no_contrast"])].any()
    for row in np.flatnonzero(got.duplicate_of >= 0):
        seed = got.duplicate_of[row]
        assert got.reason[seed] == "seed"
        assert got.reason[row] in ("duplicate", "refill")
        assert rollouts.group_ids[row] == rollouts.group_ids[seed]
        assert got.similarity[row] >= 0.2
    if weighting == "exact":
        assert (got.weights[got.reason[got.keep] == "refill"] == 0).all()
    if isinstance(rule, DifferentialPruning) and weighting == "exact":
        assert got.weights.sum() == can_refill


@settings(max_examples=60, deadline=None)
@given(batches(distinct_magnitudes=True), st.integers(1, 6), st.data())
def test_row_order_does_not_matter_without_ties(
    rollouts: Rollouts, multiple_of: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rollouts))))
    for rule in (DifferentialPruning(), TopAdvantagePruning(), MaxVariancePruning(), KeepAll()):
        there = prune(rollouts, rule, multiple_of)
        back = prune(permuted(rollouts, order), rule, multiple_of)
        assert sorted(order[row] for row in back.keep) == there.keep.tolist()
        assert back.kept_per_group.tolist() == there.kept_per_group.tolist()
        assert back.reason.tolist() == there.reason[order].tolist()


@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(ALL_RULES), st.booleans())
def test_interleaving_and_other_groups_do_not_matter(
    rollouts: Rollouts, rule: PruningRule, exact: bool
) -> None:
    """Ties included: only a row's place within its own group counts, chance included."""
    weighting: Any = "exact" if exact and rule.has_exact_weights else "kept"
    whole = prune(rollouts, rule, weighting=weighting, seed=(3, 1))
    weight_of = dict(zip(whole.keep.tolist(), whole.weights.tolist(), strict=True))
    for group in set(rollouts.group_ids.tolist()):
        rows = np.flatnonzero(rollouts.group_ids == group).tolist()
        alone = prune(permuted(rollouts, rows), rule, weighting=weighting, seed=(3, 1))
        kept_alone = [rows[row] for row in alone.keep]
        assert kept_alone == [row for row in rows if row in weight_of]
        assert alone.weights.tolist() == [weight_of[row] for row in kept_alone]


@settings(max_examples=40, deadline=None)
@given(batches(), st.data())
def test_repeated_tokens_change_nothing(rollouts: Rollouts, data: st.DataObject) -> None:
    times = data.draw(st.integers(2, 3))
    longer = [np.tile(row, times)[::-1] for row in rollouts.completion_ids]
    repeated = Rollouts(rollouts.group_ids, rollouts.advantages, longer)
    one, two = (prune(batch, DifferentialPruning(), 4) for batch in (rollouts, repeated))
    assert one.keep.tolist() == two.keep.tolist()
    np.testing.assert_array_equal(one.similarity, two.similarity)


def test_input_types_do_not_matter() -> None:
    advantages = [0.35348673649502443, 0.35348673649502443, -1.531775858145106, 0.35348673649502443]
    tokens = [[1, 2], [1, 2], [3], [9]]
    expected = [0, 2, 3]
    for ids in ([1, 1, 1, 1], ["x"] * 4, np.ones(4, dtype=np.int32), np.array(["x"] * 4)):
        for dtype in (np.float32, np.float64):
            for token_dtype in (np.int32, np.int64, np.uint16):
                rows = [np.array(row, dtype=token_dtype) for row in tokens]
                rollouts = Rollouts(ids, np.array(advantages, dtype=dtype), rows)
                assert prune(rollouts, DifferentialPruning()).keep.tolist() == expected
