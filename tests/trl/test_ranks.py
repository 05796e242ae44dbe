"""What processes tell one another of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_batch import text_batch
from test_selecting import scored

from fastrl.trl.ranks import RowPlaces, full_group_advantages, gather_rows, moves_between


def test_advantages_per_token_become_their_mean() -> None:
    batch = scored([[1.0, 3.0, 100.0], [2.0, 2.0, 2.0]])
    batch["completion_mask"][0, 2] = 0
    assert full_group_advantages(batch).tolist() == [2.0, 2.0]
    assert full_group_advantages(scored([[1.5], [2.5]])).tolist() == [1.5, 2.5]


def test_tool_tokens_are_not_part_of_the_mean() -> None:
    batch = scored([[1.0, 3.0, 5.0]]) | {"tool_mask": torch.tensor([[1, 0, 1]])}
    assert full_group_advantages(batch).tolist() == [3.0]


def facts_of(batch: dict[str, Any], ids: Any) -> list[Any]:
    told: list[Any] = []
    gather_rows(batch, ids, lambda facts: told.extend(facts) or facts)
    return told


def test_rows_of_processes_lie_one_after_another() -> None:
    first, second = text_batch(2, prompt=3), text_batch(2, prompt=5, completion=6)
    second["completion_mask"][1, 2:] = 0
    second["advantages"] += 7
    ids = [[np.array([1, 2]), np.array([3])], [np.array([4]), np.array([5, 6, 7])]]
    told = facts_of(second, ids[1])
    rows = gather_rows(first, ids[0], lambda facts: [*facts, *told])
    assert rows.places.home_N.tolist() == [0, 0, 1, 1]
    assert rows.places.place_N.tolist() == [0, 1, 0, 1]
    assert len(rows) == 4
    assert rows.advantages_N.tolist() == [0, 1, 7, 8]
    assert [row.tolist() for row in rows.completion_ids] == [[1, 2], [3], [4], [5, 6, 7]]
    assert rows.loss_tokens_N.tolist() == [4, 4, 6, 2]
    assert rows.lengths_N.tolist() == [5, 4, 6, 8]  # as sampled, masked or not


def test_rows_in_another_order_and_some_left_out() -> None:
    first, second = text_batch(2, prompt=3), text_batch(3, prompt=5)
    second["advantages"] += 7
    told = facts_of(second, [np.array([4]), np.array([5]), np.array([6])])
    places = RowPlaces.in_order(np.array([1, 0, 1]))
    assert places.place_N.tolist() == [0, 0, 1]
    ids = [np.array([1]), np.array([2])]
    rows = gather_rows(first, ids, lambda facts: [*facts, *told], places)
    assert rows.advantages_N.tolist() == [7, 0, 8]
    assert [row.tolist() for row in rows.completion_ids] == [[4], [1], [5]]
    assert len(rows.lengths_N) == len(rows.loss_tokens_N) == 3


def test_unequal_processes_are_told() -> None:
    ids = [np.array([1])] * 3
    told = facts_of(text_batch(3), ids)
    with pytest.raises(ValueError, match=r"processes with \[2, 3\] rows"):
        gather_rows(text_batch(2), ids[:2], lambda facts: [*facts, *told])


def test_only_rows_that_change_their_process_move() -> None:
    rows = np.array([3, 5, 8, 9, 12])
    moves = moves_between(rows, np.array([0, 0, 1, 1, 2]), np.array([0, 2, 0, 1, 0]))
    assert [(move.source, move.target, move.rows_M.tolist()) for move in moves] == [
        (0, 2, [5]),
        (1, 0, [8]),
        (2, 0, [12]),
    ]
    assert moves_between(rows, np.zeros(5), np.zeros(5)) == []
