"""Whole groups dealt to windows, processes and micro-batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.trl.group_dealing import (
    RowFacts,
    deal_group_ranks,
    deal_group_windows,
    fill_micro_batches,
    plan_group_window,
)
from fastrl.trl.planning import Part, SplitPlan


def facts_of(sizes: list[int], prompt: int = 100, completion: int = 10) -> RowFacts:
    group_K = np.repeat(np.arange(len(sizes)), sizes)
    return RowFacts(group_K, np.full(len(group_K), prompt), np.full(len(group_K), completion))


def plan_of(windows: int, micro_batches: int, max_rows: int, ranks: int = 1) -> SplitPlan:
    return SplitPlan("grpo", "kept", windows, micro_batches, max_rows, ranks=ranks)


def all_parts(facts: RowFacts, plan: SplitPlan, homes: np.ndarray) -> list[list[list[Part]]]:
    """The parts of every process, window by window."""
    windows = deal_group_windows(facts, plan.windows, np.random.default_rng(0))
    rank_K = deal_group_ranks(windows, facts, homes, plan)
    ranks = [SplitPlan(**{**vars(plan), "rank": rank}) for rank in range(plan.ranks)]
    return [[plan_group_window(rows, facts, rank_K, mine) for rows in windows] for mine in ranks]


def copies(facts: RowFacts, parts: list[list[list[Part]]]) -> int:
    """Prompts that are computed, on all processes."""
    return sum(
        len(np.unique(facts.group_K[part.rows_P]))
        for of_rank in parts
        for window in of_rank
        for part in window
    )


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), max_size=12),
    windows=st.integers(1, 4),
    micro_batches=st.integers(1, 4),
    ranks=st.integers(1, 3),
    fills_all=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_plan_uses_every_row_once_and_never_too_many(
    sizes: list[int], windows: int, micro_batches: int, ranks: int, fills_all: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    facts = facts_of(sizes)
    facts.completion_K[:] = rng.integers(0, 50, len(facts.group_K))
    total = len(facts.group_K)
    of_window = -(-total // windows)
    max_rows = max(1, -(-of_window // (micro_batches * ranks)))
    plan = SplitPlan(
        "grpo", "kept", windows, micro_batches, max_rows, ranks=ranks, fills_all=fills_all
    )
    homes = rng.integers(0, ranks, total)
    of_ranks = all_parts(facts, plan, homes)
    rows = [part.rows_P for parts in of_ranks for window in parts for part in window]
    assert sorted(np.concatenate(rows).tolist()) == list(range(total))
    sizes_RWM = np.array([[[p.size for p in w] for w in parts] for parts in of_ranks])
    assert sizes_RWM.shape == (ranks, windows, micro_batches)
    assert (sizes_RWM == sizes_RWM[0]).all()  # every process has the same micro-batches
    assert sizes_RWM.max(initial=0) <= max_rows
    for window in range(windows):
        kept = sum(len(part.rows_P) for parts in of_ranks for part in parts[window])
        assert kept in (total // windows, -(-total // windows))  # updates as equal as ever
        assert (sizes_RWM[0, window, -1] > 0) == (kept > 0 or fills_all)
        assert not fills_all or sizes_RWM[:, window].min() > 0


def test_groups_that_fit_stay_whole() -> None:
    facts = facts_of([4] * 8)
    parts = all_parts(facts, plan_of(2, 2, 8), np.zeros(32, dtype=np.int64))
    assert copies(facts, parts) == 8
    assert [part.size for window in parts[0] for part in window] == [8, 8, 8, 8]


def test_unequal_groups_take_another_micro_batch_rather_than_be_cut() -> None:
    """Eight groups of three, four rows a micro-batch: six could hold them only in pieces."""
    facts = facts_of([3] * 8)
    parts = all_parts(facts, plan_of(1, 8, 4), np.zeros(24, dtype=np.int64))
    assert copies(facts, parts) == 8
    parts = all_parts(facts, plan_of(1, 6, 4), np.zeros(24, dtype=np.int64))
    assert copies(facts, parts) > 8


def test_a_group_larger_than_a_micro_batch_is_cut() -> None:
    facts = facts_of([8])
    shares = fill_micro_batches([np.arange(8)], facts, 3, 3)
    assert [len(share) for share in shares] == [3, 3, 2]
    assert sorted(np.concatenate(shares).tolist()) == list(range(8))


def test_micro_batches_are_balanced_by_tokens_behind_one_prompt() -> None:
    group_K = np.array([0, 0, 1, 1, 2, 3])
    facts = RowFacts(group_K, np.array([9, 9, 9, 9, 60, 9]), np.array([50, 50, 3, 3, 4, 4]))
    assert facts.tokens(np.array([0, 1])) == 108
    shares = fill_micro_batches(facts.units(np.arange(6)), facts, 2, 4)
    assert [sorted(share.tolist()) for share in shares] == [[2, 3, 4, 5], [0, 1]]


def test_a_group_goes_where_most_of_it_is() -> None:
    """Four groups of four over two processes; the third straddles them."""
    facts = facts_of([4] * 4)
    homes = np.array([0] * 11 + [1] * 5)
    rank_K = deal_group_ranks([np.arange(16)], facts, homes, plan_of(1, 2, 4, ranks=2))
    of_groups = rank_K.reshape(4, 4)
    assert (of_groups == of_groups[:, :1]).all()
    assert of_groups[:, 0].sum() == 2  # level, and no group in two places
    assert rank_K[12] == 1


def test_windows_do_not_hang_on_processes() -> None:
    facts = facts_of([3, 1, 2, 4, 2])
    one, two = (deal_group_windows(facts, 3, np.random.default_rng(7)) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        assert left.tolist() == right.tolist()


def test_the_ratio_of_a_batch_is_that_of_the_formula() -> None:
    facts = facts_of([4] * 3, prompt=20, completion=7)
    assert facts.ratio == 4 * (20 + 7) / (20 - 1 + 4 * (7 + 1))
