"""Ratios and explained distances of turns by hand."""

import pytest
from step_time import Turn, comparison_row, explained, phase_medians, ratios, turns


def test_phases_are_those_that_the_next_turn_tells() -> None:
    answers = [
        {"seconds": 9.0, "phases_before": {}},
        {"seconds": 10.0, "phases_before": {"generate": 4.0, "update": 3.0}},
        {"seconds": 11.0, "phases_before": {"generate": 5.0, "update": 4.0, "reward": 0.5}},
    ]
    first, second = turns(answers)
    assert (first.seconds, first.phases["generate"], first.phases["other"]) == (9.0, 4.0, 2.0)
    assert second.phases["other"] == 0.5
    assert turns([{"seconds": 1.0, "phases_before": {}}] * 2) == [Turn(1.0, {})]


def test_ratios_are_paired_by_round() -> None:
    above = [Turn(2.0, {}), Turn(9.0, {})]
    below = [Turn(1.0, {}), Turn(3.0, {})]
    assert ratios(above, below) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios(above, below[:1])


def test_goals_are_judged_by_the_median() -> None:
    row = comparison_row("x", [1.0, 1.01, 1.5], 1.02)
    assert row == ["x", "3", "1.010", "[1.000, 1.500] (75%)", "<= 1.02", "met"]
    assert comparison_row("x", [1.03], 1.02)[-1] == "missed"
    assert comparison_row("x", [1.03], None)[-2:] == ["", ""]


def test_the_distance_is_told_phase_by_phase() -> None:
    whole = [Turn(10.0, {"generate": 3.0, "old_logps": 2.0, "update": 4.0, "other": 1.0})]
    pruned = [Turn(6.0, {"generate": 3.5, "old_logps": 0.5, "update": 1.25, "other": 0.75})]
    rows = {row[0]: row[1:] for row in explained(whole, pruned, kept_share=0.25)}
    assert rows["generate"] == ["3.0000", "3.0000", "3.5000", "+0.5000"]
    assert rows["old_logps"] == ["2.0000", "0.5000", "0.5000", "+0.0000"]
    assert rows["update"] == ["4.0000", "1.0000", "1.2500", "+0.2500"]
    assert rows["other"] == ["1.0000", "0.0000", "0.7500", "+0.7500"]
    assert rows["sum"] == ["10.0000", "4.5000", "6.0000", "+1.5000 (+33.3%)"]


def test_medians_of_phases() -> None:
    found = phase_medians([Turn(1.0, {"update": value}) for value in (1.0, 5.0, 2.0)])
    assert (found["update"], found["reward"]) == (2.0, 0.0)
