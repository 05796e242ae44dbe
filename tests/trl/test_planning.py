"""Kept rows dealt to windows, processes and micro-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.trl.planning import Part, SplitPlan, deal_ranks, deal_windows, plan_window


def plan_of(windows: int, micro_batches: int, max_rows: int, **given: Any) -> SplitPlan:
    return SplitPlan("grpo", "kept", windows, micro_batches, max_rows, **given)


def all_parts(
    tokens: Any, plan: SplitPlan, homes: Any = None, seed: int = 0
) -> list[list[list[Part]]]:
    """The parts of every process, window by window."""
    tokens_K = np.asarray(tokens, dtype=np.int64)
    home_K = np.zeros(len(tokens_K), dtype=np.int64) if homes is None else np.asarray(homes)
    windows = deal_windows(tokens_K, plan.windows, np.random.default_rng(seed))
    rank_K = deal_ranks(windows, tokens_K, home_K, plan.ranks)
    ranks = [SplitPlan(**{**vars(plan), "rank": rank}) for rank in range(plan.ranks)]
    return [[plan_window(rows, tokens_K, rank_K, mine) for rows in windows] for mine in ranks]


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.lists(st.integers(1, 400), max_size=40),
    windows=st.integers(1, 4),
    micro_batches=st.integers(1, 4),
    ranks=st.integers(1, 4),
    fills_all=st.booleans(),
    seed=st.integers(0, 5),
)
def test_a_plan_uses_every_row_once_and_never_too_many(
    tokens: list[int], windows: int, micro_batches: int, ranks: int, fills_all: bool, seed: int
) -> None:
    max_rows = max(1, -(-len(tokens) // (windows * micro_batches * ranks)))
    max_rows += windows * micro_batches * max_rows < -(-len(tokens) // ranks)
    homes = np.random.default_rng(seed).integers(0, ranks, len(tokens))
    plan = plan_of(windows, micro_batches, max_rows, ranks=ranks, fills_all=fills_all)
    of_ranks = all_parts(tokens, plan, homes, seed)
    rows = [part.rows_P for parts in of_ranks for window in parts for part in window]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(tokens)))
    sizes = np.array([[[part.size for part in window] for window in parts] for parts in of_ranks])
    assert sizes.shape == (ranks, windows, micro_batches)
    assert (sizes == sizes[0]).all()  # every process has the same micro-batches
    assert sizes.max(initial=0) <= max_rows
    for window in range(windows):
        kept = sum(len(part.rows_P) for parts in of_ranks for part in parts[window])
        assert (sizes[0, window, -1] > 0) == (kept > 0 or fills_all)
        assert not fills_all or sizes[:, window].min() > 0


def test_windows_are_balanced_by_tokens() -> None:
    tokens = np.array([100, 1, 1, 1, 1, 1, 1, 100])
    windows = deal_windows(tokens, 2, np.random.default_rng(0))
    assert [int(tokens[rows].sum()) for rows in windows] == [103, 103]
    assert [len(rows) for rows in windows] == [4, 4]


def test_windows_do_not_hang_on_processes() -> None:
    """Whoever holds the rows, an update has the same ones: its gradient is one process's."""
    tokens = np.arange(1, 20)
    one, two = (deal_windows(tokens, 3, np.random.default_rng(7)) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        assert left.tolist() == right.tolist()


def test_few_rows_take_few_micro_batches() -> None:
    ((window,),) = all_parts([5, 5, 5], plan_of(1, 4, 4))
    assert [part.size for part in window] == [0, 0, 0, 3]
    assert [part.blanks for part in window] == [0, 0, 0, 0]


def test_a_process_that_runs_dry_has_blank_rows() -> None:
    (first,), (second,), (third,) = all_parts([5], plan_of(1, 2, 4, ranks=3), homes=[1])
    assert [(len(part.rows_P), part.blanks) for part in first] == [(0, 0), (0, 1)]
    assert [(len(part.rows_P), part.blanks) for part in second] == [(0, 0), (1, 0)]
    assert [(len(part.rows_P), part.blanks) for part in third] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_an_engine_that_counts_has_rows_in_all(rows: int) -> None:
    ((window,),) = all_parts([3] * rows, plan_of(1, 4, 2, fills_all=True))
    assert [part.size for part in window] == ([2, 1, 1, 1] if rows == 5 else [1, 1, 1, 1])
    assert sum(part.blanks for part in window) == max(0, 4 - rows)
