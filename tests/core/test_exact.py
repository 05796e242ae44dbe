"""Under "exact" every row's expected weight is 1: the pruned loss is the full loss on average."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

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
from fastrl.core.draws import GroupDraws
from fastrl.core.groups import Groups
from fastrl.core.rollouts import FloatArray, IntArray


class ForcedDraws(GroupDraws):
    """Draws that come out as told, so that a test can enumerate all of them."""

    def __init__(self, forced: tuple[int, ...]) -> None:
        self.forced = forced
        self.sizes: list[int] = []

    def positions(self, group_of_B: IntArray, sizes_B: IntArray) -> IntArray:
        self.sizes = sizes_B.tolist()
        return np.array(self.forced or [0] * len(sizes_B), dtype=np.int64)

    def subset(self, group: int, size: int, count: int) -> IntArray:
        return np.array(self.forced, dtype=np.int64)


def weights_with(rule: PruningRule, rollouts: Rollouts, draws: GroupDraws) -> FloatArray:
    groups = Groups.of(rollouts.group_ids)
    choice = rule.choose(rollouts, groups, draws, "exact")
    return np.where(choice.keep_N, choice.weights_N, 0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from([-1.0, 0.0, 1.0]),
            st.lists(st.integers(0, 7), max_size=4),
        ),
        min_size=1,
        max_size=7,
    ),
    st.sampled_from([0.0, 0.2, 0.6, 1.0]),
)
def test_expected_weight_is_one_over_all_draws(
    rows: list[tuple[int, float, list[int]]], threshold: float
) -> None:
    ids, advantages, tokens = zip(*rows, strict=True)
    rollouts = Rollouts(list(ids), list(advantages), list(tokens))
    rule = DifferentialPruning(similarity_threshold=threshold)
    probe = ForcedDraws(())
    weights_with(rule, rollouts, probe)
    draws = list(itertools.product(*(range(size) for size in probe.sizes)))
    total_N = sum(weights_with(rule, rollouts, ForcedDraws(draw)) for draw in draws)
    np.testing.assert_array_equal(total_N, np.full(len(rows), float(len(draws))))


def test_random_rule_expected_weight_is_one_over_all_subsets() -> None:
    rollouts = Rollouts([0] * 7, np.arange(7.0), [[1]] * 7)
    rule = RandomPruning(keep_fraction=0.5)
    subsets = list(itertools.combinations(range(7), rule.num_kept(7)))
    total_N = sum(weights_with(rule, rollouts, ForcedDraws(subset)) for subset in subsets)
    np.testing.assert_allclose(total_N / len(subsets), 1.0, rtol=1e-12)


def test_worked_example() -> None:
    # Bucket of four: 0, 1, 2 alike, 3 on its own path. Bucket of one: 4.
    tokens = [[1, 2], [1, 2], [2, 1], [9], [5]]
    rollouts = Rollouts([0] * 5, [1.0] * 4 + [-4.0], tokens)
    rule = DifferentialPruning()
    for seed_row, expected in [(1, [0, 3, 0, 1, 1]), (3, [1, 1, 1, 1, 1])]:
        got = weights_with(rule, rollouts, ForcedDraws((0, seed_row)))
        assert got.tolist() == expected
    selection = prune(rollouts, rule, multiple_of=5, weighting="exact", seed=4)
    refilled = selection.reason == "refill"
    assert selection.weights[refilled].tolist() == [0.0] * refilled.sum()
    assert selection.weights.sum() == 5.0


def test_the_seed_of_a_bucket_is_drawn_uniformly() -> None:
    rollouts = Rollouts(["q"] * 6, [1.0] * 4 + [-2.0] * 2, [[1]] * 6)
    counts = np.zeros(6)
    num_draws = 1500
    for step in range(num_draws):
        counts[prune(rollouts, DifferentialPruning(), weighting="exact", seed=(5, step)).keep] += 1
    expected = num_draws / np.array([4, 4, 4, 4, 2, 2])
    deviation = np.sqrt(expected * (1 - expected / num_draws))
    assert (np.abs(counts - expected) < 4 * deviation).all()


def test_random_rule_keeps_each_row_equally_often() -> None:
    rollouts = Rollouts([0] * 5, [1.0] * 5, [[1]] * 5)
    counts = np.zeros(5)
    for step in range(1000):
        counts[prune(rollouts, RandomPruning(0.4), seed=(0, step)).keep] += 1
    assert np.abs(counts - 400).max() < 4 * math.sqrt(1000 * 0.4 * 0.6)


@pytest.mark.parametrize("rule", [DifferentialPruning(), RandomPruning()])
def test_draws_follow_seed_and_id_alone(rule: PruningRule) -> None:
    def kept(ids: object, seed: int | tuple[int, ...]) -> list[int]:
        rollouts = Rollouts(ids, [1.0] * 40, [[1]] * 40)  # type: ignore[arg-type]
        selection = prune(rollouts, rule, weighting="exact", seed=seed)
        return [int(row) for row in selection.keep]

    three = kept([3] * 40, (7, 1))
    assert kept(np.full(40, 3, dtype=np.int32), (7, 1)) == three
    assert kept(np.full(40, 3, dtype=np.int64), (np.int64(7), 1)) == three  # type: ignore[arg-type]
    assert kept([3] * 40, 7) == kept([3] * 40, (7,))
    others = [kept([4] * 40, (7, 1)), kept([3] * 40, (7, 2)), kept(["3"] * 40, (7, 1))]
    assert all(other != three for other in others)


def test_draws_survive_pythons_hash_salt() -> None:
    code = (
        "from fastrl.core import *;"
        "r = Rollouts(['a'] * 90, [1.0] * 90, [[1]] * 90);"
        "print(prune(r, RandomPruning(0.3), seed=(1, 2)).keep.tolist())"
    )
    printed = set()
    for salt in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1


@pytest.mark.parametrize("rule", [TopAdvantagePruning(), MaxVariancePruning()])
def test_rules_without_exact_weights_are_refused(rule: PruningRule) -> None:
    with pytest.raises(ValueError, match=f"'exact': {type(rule).__name__}"):
        prune(Rollouts([0], [1.0], [[1]]), rule, weighting="exact")


def test_keep_all_weighs_one_under_both() -> None:
    rollouts = Rollouts([0, 0, 1], [1.0, 1.0, 0.0], [[1]] * 3)
    for weighting in ("kept", "exact"):
        selection = prune(rollouts, KeepAll(), weighting=weighting)
        assert selection.weights.tolist() == [1.0] * 3
        assert selection.reason.tolist() == ["rule"] * 3
