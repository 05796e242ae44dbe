"""Rollouts accepts every honest input and names every dishonest one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fastrl.core import Rollouts


def problems_of(*args: Any) -> str:
    with pytest.raises(ValueError, match="Rollouts: ") as caught:
        Rollouts(*args)
    return str(caught.value)


def test_lists_become_canonical_arrays() -> None:
    rollouts = Rollouts([5, 2, 5], [1, -0.5, 2.0], [[1, 2], [], (3,)])
    assert len(rollouts) == 3
    assert rollouts.group_ids.tolist() == [5, 2, 5]
    assert rollouts.advantages.dtype == np.float64
    assert [row.tolist() for row in rollouts.completion_ids] == [[1, 2], [], [3]]
    assert all(row.dtype == np.int64 for row in rollouts.completion_ids)


def test_float32_is_widened_and_the_input_is_not_aliased() -> None:
    advantages = np.array([0.1, 0.2], dtype=np.float32)
    rollouts = Rollouts(np.array(["b", "a"]), advantages, [np.array([1], dtype=np.uint16)] * 2)
    assert rollouts.advantages.tolist() == [float(np.float32(0.1)), float(np.float32(0.2))]
    advantages[0] = 9.0
    assert rollouts.advantages[0] < 1
    assert rollouts.completion_ids[0].dtype == np.int64
    double = np.array([1.0, 2.0])
    rollouts = Rollouts([1, 1], double, [[1], [2]])
    double[0] = 9.0
    assert rollouts.advantages[0] == 1.0


def test_wide_integer_arrays_are_used_as_they_are() -> None:
    row = np.arange(4, dtype=np.int32)
    assert Rollouts([0], [1.0], [row]).completion_ids[0] is row


def test_object_arrays_of_strings_or_integers_are_ids() -> None:
    ids = np.array(["uid-10", "uid-9"], dtype=object)
    assert Rollouts(ids, [0.0, 0.0], [[1], [1]]).group_ids.tolist() == ["uid-10", "uid-9"]
    ids = np.array([3, np.int64(4)], dtype=object)
    assert Rollouts(ids, [0.0, 0.0], [[1], [1]]).group_ids.dtype == np.int64


def test_empty_batch() -> None:
    assert len(Rollouts([], [], [])) == 0


@pytest.mark.parametrize(
    ("value", "told"), [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf")]
)
def test_non_finite_advantage_names_row_and_value(value: float, told: str) -> None:
    message = problems_of([0, 0, 0], [0.0, 1.0, value], [[1], [2], [3]])
    assert f"advantages[2] = {told}: not finite" in message


def test_lengths_that_disagree_are_counted() -> None:
    message = problems_of([0, 0], [0.0, 1.0, 2.0], [[1]])
    for part in ("group_ids has 2 rows", "advantages has 3 rows", "completion_ids has 1 rows"):
        assert part in message


def test_every_problem_is_told_at_once() -> None:
    message = problems_of(
        [0, None, True],
        [0.0, float("nan"), float("inf")],
        [[1, 2.5], [[1], [2]], "abc"],
    )
    assert "group_ids[1] = None" in message
    assert "group_ids[2] = True" in message
    assert "advantages[1] = nan" in message
    assert "advantages[2] = inf" in message
    assert "completion_ids[0][1] = 2.5" in message
    assert "completion_ids[1]: shape (2, 1)" in message
    assert "completion_ids[2]: shape ()" in message
    assert "7 problem(s)" in message


def test_many_bad_rows_are_capped_and_counted() -> None:
    message = problems_of([0] * 500, [float("nan")] * 500, [[1]] * 500)
    assert "480 more rows" in message
    assert len(re.findall(r"advantages\[\d+\] = nan", message)) == 20


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (([0, 0], [[0.1, 0.2], [0.3, 0.4]], [[1], [1]]), "advantages: shape (2, 2)"),
        (([0, 0], [[0.1, 0.2], [0.3]], [[1], [1]]), "advantages: ragged"),
        (([0, 0], [0.1, None], [[1], [1]]), "advantages[1] = None: not a number"),
        (([0, 0], ["a", "b"], [[1], [1]]), "advantages[0] = a: not a number"),
        (([0, 0], [1j, 2.0], [[1], [1]]), "advantages[0] = 1j: not a number"),
        (([0, 0], 3.0, [[1], [1]]), "advantages: shape ()"),
        (([[0], [0]], [0.1, 0.2], [[1], [1]]), "group_ids: shape (2, 1)"),
        (([0, 1.5], [0.1, 0.2], [[1], [1]]), "group_ids[1] = 1.5"),
        (([0, "x", "y"], [0.1, 0.2, 0], [[1]] * 3), "group_ids[0] = 0: integers and strings"),
        (([1, 2, "y"], [0.1, 0.2, 0], [[1]] * 3), "group_ids[2] = y: integers and strings"),
        (([2**70, 0], [0.1, 0.2], [[1], [1]]), f"group_ids[0] = {2**70}: does not fit"),
        ((["a\0", "a"], [0.1, 0.2], [[1], [1]]), "may not end in NUL"),
        (([0], [0.1], [[1.0, 2.0]]), "completion_ids[0][0] = 1.0"),
        (([0], [0.1], [[True, False]]), "completion_ids[0][0] = True"),
        (([0], [0.1], [[1, None]]), "completion_ids[0][1] = None"),
        (([0], [0.1], [[[1], [1, 2]]]), "completion_ids[0] = [[1], [1, 2]]: ragged"),
    ],
)
def test_bad_input_is_named(args: tuple[Any, ...], told: str) -> None:
    assert told in problems_of(*args)


def test_numbers_too_wide_for_numpy_are_still_numbers() -> None:
    assert Rollouts([0, 0], [1, 2**70], [[1], [1]]).advantages.tolist() == [1.0, 2.0**70]
