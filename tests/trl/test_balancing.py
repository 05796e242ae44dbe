"""Which process updates on which rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.trl.balancing import TOLERATED_EXCESS, rank_of_rows


def loads(
    tokens: list[int], rank_K: np.ndarray[tuple[int], np.dtype[np.int64]], ranks: int
) -> list[int]:
    return [int(sum(np.array(tokens)[rank_K == rank])) for rank in range(ranks)]


def test_rows_that_lie_well_stay() -> None:
    home = np.array([0, 1, 0, 1, 1, 0])
    assert rank_of_rows(np.array([5, 5, 6, 6, 7, 7]), home, 2).tolist() == home.tolist()


def test_nothing_moves_for_a_few_tokens() -> None:
    home = np.array([0, 0, 1, 1])
    assert rank_of_rows(np.array([52, 52, 49, 49]), home, 2).tolist() == home.tolist()  # 3% over


def test_a_swap_levels_tokens() -> None:
    tokens = [90, 80, 10, 20]
    rank_K = rank_of_rows(np.array(tokens), np.array([0, 0, 1, 1]), 2)
    assert loads(tokens, rank_K, 2) == [100, 100]
    assert int((rank_K != [0, 0, 1, 1]).sum()) == 2


def test_all_on_one_process() -> None:
    tokens = [10] * 7
    rank_K = rank_of_rows(np.array(tokens), np.ones(7, dtype=np.int64), 3)
    assert sorted(np.bincount(rank_K).tolist()) == [2, 2, 3]
    assert int((rank_K != 1).sum()) == 4  # no more than needed


def test_no_rows() -> None:
    empty = np.empty(0, dtype=np.int64)
    assert rank_of_rows(empty, empty, 3).tolist() == []


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 500), st.integers(0, 3)), min_size=1, max_size=40),
)
def test_counts_are_level_and_moving_never_hurts(rows: list[tuple[int, int]]) -> None:
    tokens, home = (np.array(column) for column in zip(*rows, strict=True))
    before = home.copy()
    rank_K = rank_of_rows(tokens, home, 4)
    assert (home == before).all()
    room = -(-len(rows) // 4)
    assert np.bincount(rank_K).max() <= room
    if np.bincount(home).max() <= room:
        heaviest = max(loads(tokens.tolist(), home, 4))
        mean = tokens.sum() / 4
        assert max(loads(tokens.tolist(), rank_K, 4)) <= heaviest
        if heaviest <= (1 + TOLERATED_EXCESS) * mean:
            assert (rank_K == home).all()


@pytest.mark.parametrize("seed", range(5))
def test_close_to_the_best_there_is(seed: int) -> None:
    """Eight rows on two processes: all 70 ways are tried."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 100, 8)
    home = rng.integers(0, 2, 8)
    best = min(
        max(int(tokens[np.array(way) == 0].sum()), int(tokens[np.array(way) == 1].sum()))
        for way in product((0, 1), repeat=8)
        if sum(way) == 4
    )
    heaviest = max(loads(tokens.tolist(), rank_of_rows(tokens, home, 2), 2))
    assert heaviest <= max(best * 1.05, (1 + TOLERATED_EXCESS) * tokens.sum() / 2)
