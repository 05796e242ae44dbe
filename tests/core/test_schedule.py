"""AdaptiveRollouts: the blend worked by hand, and its state through a checkpoint."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.core import AdaptiveRollouts


def new(**changes: Any) -> AdaptiveRollouts:
    given_ = {"num_generations": 8, "min_generations": 2, "steps_per_epoch": 2, "total_steps": 8}
    return AdaptiveRollouts(**{**given_, **changes})


def test_blend_by_hand() -> None:
    schedule = new()
    for kept in ([8, 4], [6, 2], [4, 4]):
        assert schedule.num_generations == 8
        schedule.record(kept)
    # Means of f1 = 6, 4, 4 and f2 = 8, 6, 4; a = 3/8; f3 = 5.5 and g1 = 16/3: no cut.
    state = schedule.state_dict()
    assert state["yardstick"] == pytest.approx(16 / 3)
    assert state["signal"] == pytest.approx(3 / 8 * 14 / 3 + 5 / 8 * 6)
    assert schedule.num_generations == 8
    schedule.record([2, 2])
    schedule.record([2, 2])
    # f3 = 2 whatever a is: 8 - (16/3 - 2) = 4.67, rounded 5.
    assert schedule.num_generations == 5
    schedule.record([0, 0])
    assert schedule.num_generations == 5
    schedule.record([8, 8])
    # Means 4 and 4: 8 - 4/3 = 6.67, rounded 7: it rises again.
    assert schedule.num_generations == 7


def test_halves_round_to_even_as_python_does() -> None:
    schedule = new(steps_per_epoch=1, total_steps=100)
    for kept in ([6], [6], [4, 3], [4]):
        schedule.record(kept)
    # g1 = 6; f1 = f2 = 4 gives 8 - 2.
    assert schedule.num_generations == 6
    half = new(steps_per_epoch=1, total_steps=1)
    for kept in ([6], [6], [5, 4]):
        half.record(kept)
    # a = 1: f3 = 4.5, 8 - 1.5 = 6.5, to even: 6.
    assert half.num_generations == 6


def test_floor() -> None:
    schedule = new(num_generations=16, min_generations=6, steps_per_epoch=1)
    for kept in ([16], [16], [1], [1]):
        schedule.record(kept)
    assert schedule.num_generations == 6


def test_steps_beyond_the_last_count_as_the_last() -> None:
    schedule = new(steps_per_epoch=1, total_steps=2)
    for kept in ([4, 8], [4, 8], [4, 8], [4, 8], [4, 8]):
        schedule.record(kept)
    assert schedule.state_dict()["signal"] == 6.0


counts = st.lists(st.integers(0, 8), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(counts, max_size=14), st.integers(0, 14), st.integers(1, 4))
def test_resume_anywhere_changes_nothing(
    steps: list[list[int]], cut: int, steps_per_epoch: int
) -> None:
    through, first = new(steps_per_epoch=steps_per_epoch), new(steps_per_epoch=steps_per_epoch)
    for kept in steps[:cut]:
        first.record(kept)
    resumed = new(steps_per_epoch=steps_per_epoch)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for kept in steps:
        through.record(kept)
    for kept in steps[cut:]:
        resumed.record(kept)
    assert resumed.state_dict() == through.state_dict()
    assert 2 <= resumed.num_generations == through.num_generations <= 8


def test_state_is_a_copy() -> None:
    schedule = new()
    state = schedule.state_dict()
    schedule.record([8, 4])
    assert state["steps_recorded"] == 0
    assert state["pending"] == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 2}, "version = 2: this release reads version 1"),
        ({"settings": {"num_generations": 4}}, "settings.num_generations = 4: this schedule has 8"),
        ({"settings": {}}, "settings.total_steps = None: this schedule has 8"),
        ({"settings": []}, "settings is a list"),
        ({"steps_recorded": -1}, "steps_recorded = -1"),
        ({"steps_recorded": "4"}, "steps_recorded = '4'"),
        ({"last_epoch": 0}, "last_epoch = 0: expected 1 after 4 steps"),
        ({"pending": []}, "pending has 0 records: expected 1"),
        ({"pending": 3}, "pending is a int"),
        ({"pending": [[1.0]]}, "pending[0] = [1.0]"),
        ({"pending": [[1.0, float("nan")]]}, "pending[0] = [1.0, nan]"),
        ({"yardstick": None}, "yardstick = None"),
        ({"signal": float("inf")}, "signal = inf"),
    ],
)
def test_malformed_state_is_named_and_changes_nothing(changes: dict[str, Any], told: str) -> None:
    schedule = new()
    for kept in ([8, 4], [6, 2], [4, 4], [1, 1]):
        schedule.record(kept)
    before = schedule.state_dict()
    with pytest.raises(ValueError, match=re.escape(told)):
        schedule.load_state_dict({**copy.deepcopy(before), **changes})
    assert schedule.state_dict() == before


def test_missing_and_foreign_state_is_named() -> None:
    with pytest.raises(ValueError, match=r"pending: missing\n.*settings: missing"):
        new().load_state_dict({"version": 1})
    with pytest.raises(ValueError, match="state is a list"):
        new().load_state_dict([])  # type: ignore[arg-type]
    early = new()
    with pytest.raises(ValueError, match=r"yardstick = 3\.0: expected None"):
        early.load_state_dict({**early.state_dict(), "yardstick": 3.0})


@pytest.mark.parametrize("name", ["steps_per_epoch", "total_steps"])
@pytest.mark.parametrize("value", [None, 0, -1, 2.5])
def test_unknown_length_names_the_remedy(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} = .*turn adaptive rollouts off"):
        new(**{name: value})


def test_bad_counts_of_generations_are_named() -> None:
    with pytest.raises(ValueError, match="min_generations = 1"):
        new(min_generations=1)
    with pytest.raises(ValueError, match=r"num_generations = 3: .* min_generations = 4"):
        new(num_generations=3, min_generations=4)


@pytest.mark.parametrize(
    ("kept", "told"),
    [([], "shape"), ([[1]], "shape"), ([1.5], "integers"), ([3, -1], r"kept_per_group\[1\] = -1")],
)
def test_bad_records_are_refused(kept: Any, told: str) -> None:
    schedule = new()
    with pytest.raises(ValueError, match=told):
        schedule.record(kept)
    assert schedule.state_dict()["steps_recorded"] == 0
