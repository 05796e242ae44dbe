"""The file that a checkpoint holds of FastRL."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastrl.core import AdaptiveRollouts
from fastrl.trl.checkpoints import STATE_NAME, checkpoint_step, read_state, write_state


def test_what_is_written_is_read(tmp_path: Path) -> None:
    schedule = AdaptiveRollouts(8, steps_per_epoch=2, total_steps=8)
    for _ in range(3):
        schedule.record([3, 4])
    write_state(tmp_path / "checkpoint-6", 3, schedule.state_dict())
    state = read_state(tmp_path / "checkpoint-6")
    assert state is not None
    assert state["generation_step"] == 3
    assert state["schedule"] == schedule.state_dict()
    assert [path.name for path in (tmp_path / "checkpoint-6").iterdir()] == [STATE_NAME]


def test_without_a_schedule(tmp_path: Path) -> None:
    write_state(tmp_path, 5, None)
    assert read_state(tmp_path) == {
        "version": 1,
        "generation_step": 5,
        "schedule": None,
        "prompt_stream": None,
    }


def test_a_checkpoint_of_plain_trl_has_none(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not valid JSON"),
        ("null", "expected an object, found NoneType"),
        ("{}", r"version = None.*generation_step = None"),
        ('{"version": 1, "generation_step": true}', "generation_step = True"),
        ('{"version": 1, "generation_step": 1, "prompt_stream": 3}', "prompt_stream = 3"),
    ],
)
def test_faults_are_told_with_the_file(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / STATE_NAME).write_text(text)
    with pytest.raises(ValueError, match=told) as caught:
        read_state(tmp_path)
    assert str(tmp_path / STATE_NAME) in str(caught.value)


def test_step_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 12}')
    assert checkpoint_step(tmp_path) == 12


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"global_step": "x"}'])
def test_an_incomplete_checkpoint_is_told(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "trainer_state.json").write_text(text)
    with pytest.raises(ValueError, match="not complete"):
        checkpoint_step(tmp_path)
