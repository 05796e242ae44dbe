"""Checkpoints wait for the end of a generation batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from fastrl.trl.callbacks import GenerationBoundaryCallback, rounded_up


def test_rounded_up() -> None:
    assert [rounded_up(steps, 4) for steps in (1, 4, 5)] == [4, 4, 8]


def callback(updates: int = 4) -> tuple[GenerationBoundaryCallback, Any]:
    trainer = SimpleNamespace(at_generation_boundary=False, draw_finished_epochs=lambda: None)
    return GenerationBoundaryCallback(trainer, updates), trainer


@pytest.mark.parametrize(("asked", "found"), [(3, 4), (4, 4), (9, 12)])
def test_save_steps_are_rounded(asked: int, found: int) -> None:
    boundary, _ = callback()
    args: Any = SimpleNamespace(save_strategy="steps", save_steps=asked)
    state = TrainerState(save_steps=asked)
    boundary.on_train_begin(args, state, TrainerControl())
    assert state.save_steps == args.save_steps == found


def test_other_strategies_are_left_alone() -> None:
    boundary, _ = callback()
    args: Any = SimpleNamespace(save_strategy="epoch", save_steps=3)
    state = TrainerState(save_steps=3)
    boundary.on_train_begin(args, state, TrainerControl())
    assert state.save_steps == args.save_steps == 3


def saves(asked: dict[int, bool], boundaries: set[int], max_steps: int) -> list[int]:
    """The steps at which something is saved."""
    boundary, trainer = callback()
    saved = []
    for step in range(1, max_steps + 1):
        control = TrainerControl(should_save=asked.get(step, False))
        trainer.at_generation_boundary = step in boundaries
        state = TrainerState(global_step=step, max_steps=max_steps)
        boundary.on_step_end(SimpleNamespace(), state, control)  # type: ignore[arg-type]
        if control.should_save:
            saved.append(step)
    return saved


def test_a_save_waits_for_the_boundary() -> None:
    assert saves({1: True}, {4, 8}, 10) == [4]
    assert saves({1: True, 2: True, 5: True}, {4, 8}, 10) == [4, 8]
    assert saves({4: True}, {4, 8}, 10) == [4]


def test_the_last_step_is_saved_wherever_it_falls() -> None:
    assert saves({10: True}, {4, 8}, 10) == [10]
    assert saves({9: True}, {4, 8}, 10) == [10]
