"""Packed rows by hand and by property: every token once, every prompt once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.trl.shared_prefix.packing import group_rows, pack_rows


def rows_of(prompts: list[list[int]], completions: list[list[int]]) -> tuple[Any, Any, int]:
    """(B, W) ids and mask, prompts padded on the left, and the width of the completions."""
    start, width = max(map(len, prompts)), max(1, *map(len, completions))
    ids = np.zeros((len(prompts), start + width), dtype=np.int64)
    mask = np.zeros_like(ids, dtype=bool)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        ids[row, start - len(prompt) : start] = prompt
        ids[row, start : start + len(completion)] = completion
        mask[row, start - len(prompt) : start + len(completion)] = True
    return ids, mask, width


def test_a_group_by_hand() -> None:
    prompts = [[1, 2, 3], [7, 8], [1, 2, 3]]
    ids, mask, width = rows_of(prompts, [[11, 12], [21], [31, 32, 33]])
    packing = pack_rows(ids, mask, width)
    flat = ids.reshape(-1)
    # The prompt but its last token; that token and a completion but its last, twice; another group.
    assert flat[packing.source_T].tolist() == [1, 2, 3, 11, 3, 31, 32, 7, 8]
    targets = [int(flat[place]) if place >= 0 else None for place in packing.target_T]
    assert targets == [None, None, 11, 12, 31, 32, 33, None, 21]
    assert packing.step_T.tolist() == [0, 1, 2, 3, 2, 3, 4, 0, 1]
    assert packing.group_T.tolist() == [0] * 7 + [1] * 2
    assert packing.first_rows == (0, 1)
    shared, alone = packing.layout.groups
    assert (shared.prefix, shared.spans) == ((0, 2), ((2, 4), (4, 7)))
    assert (alone.prefix, alone.spans) == ((7, 7), ((7, 9),))
    assert packing.host_tokens == 18


@pytest.mark.parametrize(("rollouts", "prompt", "length"), [(2, 10, 5), (8, 100, 30), (1, 9, 4)])
def test_the_ratio_is_that_of_the_formula(rollouts: int, prompt: int, length: int) -> None:
    ids, mask, width = rows_of([list(range(1, prompt + 1))] * rollouts, [[5] * length] * rollouts)
    formula = rollouts * (prompt + length) / (prompt - 1 + rollouts * (length + 1))
    assert pack_rows(ids, mask, width).ratio == pytest.approx(formula)


def test_rows_without_a_token_are_left_out() -> None:
    ids, mask, width = rows_of([[1, 2], [3, 4], [1, 2], [1, 2]], [[], [], [9], [8, 7]])
    packing = pack_rows(ids, mask, width)
    assert packing.first_rows == (0,)
    assert ids.reshape(-1)[packing.source_T].tolist() == [1, 2, 2, 8]
    assert packing.scored_rows == 2
    # Its pictures stay: the whole model takes part.
    packing = pack_rows(ids, mask, width, num_images=[0, 1, 0, 0])
    assert packing.first_rows == (0, 1)
    assert ids.reshape(-1)[packing.source_T].tolist() == [1, 2, 2, 8, 3, 4]


def test_groups_need_equal_padding_and_pictures() -> None:
    ids, mask, width = rows_of([[1, 2], [1, 2], [5, 1, 2], [1, 2]], [[3]] * 4)
    asked = []

    def same(first: int, second: int) -> bool:
        asked.append((first, second))
        return (first, second) != (0, 1)

    assert group_rows(ids, mask, width, same) == [[0, 3], [1], [2]]
    assert asked == [(0, 1), (0, 3)]  # only where tokens agree


prompt_numbers = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=10)


@settings(max_examples=100, deadline=None)
@given(rows=prompt_numbers)
def test_every_completion_token_is_asked_for_once(rows: list[tuple[int, int]]) -> None:
    prompts = [[10 * number + place for place in range(1, number + 2)] for number, _ in rows]
    completions = [[100 + row] * length for row, (_, length) in enumerate(rows)]
    ids, mask, width = rows_of(prompts, completions)
    packing = pack_rows(ids, mask, width)
    wanted = np.flatnonzero(mask & (np.arange(ids.shape[1]) >= ids.shape[1] - width))
    assert sorted(packing.target_T[packing.target_T >= 0].tolist()) == wanted.tolist()
    numbers = {number for number, length in rows if length}
    assert len(packing.first_rows) == max(len(numbers), 1)
    # Never more than the host: a row alone costs one token less than its own length.
    assert len(packing.source_T) <= mask.sum()
    order = [each.own for each in packing.layout.stretches()]
    assert order[0][0] == 0
    assert order[-1][1] == packing.layout.length == len(packing.source_T)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(order))
