"""The stopwatch: every second belongs to one phase, and laps add up to the wall clock."""

from __future__ import annotations

import pytest

from fastrl.trl.phases import OUTSIDE_PHASES, REPORTED_PHASES, PhaseClock


class FakeTime:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def clock(time: FakeTime) -> PhaseClock:
    return PhaseClock(synchronize=lambda: None, now=time)


def test_a_second_belongs_to_the_innermost_phase(clock: PhaseClock, time: FakeTime) -> None:
    time.seconds += 1
    with clock.phase("update"):
        time.seconds += 2
        with clock.phase("generate"):
            time.seconds += 4
        time.seconds += 8
    time.seconds += 16
    lap = clock.lap()
    assert lap["update"] == 10
    assert lap["generate"] == 4
    assert lap["other"] == 17
    assert sum(lap.values()) == 31


def test_other_is_a_phase_too(clock: PhaseClock, time: FakeTime) -> None:
    with clock.phase("update"):
        time.seconds += 1
        with clock.phase("other"):
            time.seconds += 2
    lap = clock.lap()
    assert (lap["update"], lap["other"]) == (1, 2)


def test_evaluation_and_checkpoints_are_told_apart(clock: PhaseClock, time: FakeTime) -> None:
    for phase in OUTSIDE_PHASES:
        with clock.phase(phase):
            time.seconds += 3
    lap = clock.lap()
    assert (lap["evaluate"], lap["checkpoint"], lap["other"]) == (3, 3, 0)


def test_a_lap_starts_anew(clock: PhaseClock, time: FakeTime) -> None:
    with clock.phase("prune"):
        time.seconds += 1
    clock.lap()
    time.seconds += 5
    lap = clock.lap()
    assert lap == dict.fromkeys(REPORTED_PHASES + OUTSIDE_PHASES, 0) | {"other": 5}


def test_a_lap_inside_a_phase_splits_it(clock: PhaseClock, time: FakeTime) -> None:
    with clock.phase("update"):
        time.seconds += 1
        assert clock.lap()["update"] == 1
        time.seconds += 2
    assert clock.lap()["update"] == 2


def test_seconds_can_be_moved(clock: PhaseClock, time: FakeTime) -> None:
    with clock.phase("old_logps"):
        time.seconds += 5
    assert clock.total("old_logps") == 5
    clock.move("old_logps", "ref_logps", 2)
    lap = clock.lap()
    assert (lap["old_logps"], lap["ref_logps"], lap["other"]) == (3, 2, 0)


def test_an_error_ends_its_phase(clock: PhaseClock, time: FakeTime) -> None:
    def fails() -> None:
        with clock.phase("reward"):
            time.seconds += 1
            raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    time.seconds += 1
    assert clock.lap()["other"] == 1


def test_queued_work_is_waited_for(time: FakeTime) -> None:
    def wait() -> None:
        time.seconds += 7 if waiting else 0
        waiting.clear()

    waiting = ["kernel"]
    clock = PhaseClock(synchronize=wait, now=time)
    waiting[:] = []
    with clock.phase("update"):
        waiting.append("kernel")
    assert clock.lap()["update"] == 7
