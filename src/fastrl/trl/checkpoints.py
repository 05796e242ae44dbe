"""What a checkpoint holds of FastRL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from fastrl.core.state_file import read_state_file, write_state_file

STATE_NAME = "fastrl_state.json"
STATE_VERSION = 1


def write_state(
    folder: Path,
    generation_step: int,
    schedule: dict[str, Any] | None,
    prompt_stream: dict[str, Any] | None = None,
) -> None:
    """Write FastRL's part of a checkpoint, whole or not at all.

    Args:
        folder: the checkpoint's folder; made if it does not exist.
        generation_step: generation batches so far.
        schedule: `AdaptiveRollouts.state_dict()`, or None without adaptive rollouts.
        prompt_stream: `PromptStream.state_dict()`, or None where no prompt was drawn from it.
    """
    state = {
        "version": STATE_VERSION,
        "generation_step": generation_step,
        "schedule": schedule,
        "prompt_stream": prompt_stream,
    }
    write_state_file(folder / STATE_NAME, state)


def read_state(folder: Path) -> dict[str, Any] | None:
    """Read FastRL's part of a checkpoint; None where the checkpoint was written without FastRL.

    Raises:
        ValueError: the file exists but is not what `write_state` writes; names file and fault.
    """
    path = folder / STATE_NAME
    state = read_state_file(path)
    if state is None:
        return None
    problems = []
    if state.get("version") != STATE_VERSION:
        problems.append(f"version = {state.get('version')!r}, this library reads {STATE_VERSION}")
    step = state.get("generation_step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        problems.append(f"generation_step = {step!r}, expected an integer of at least 0")
    for name in ("schedule", "prompt_stream"):
        if not isinstance(state.get(name), dict | None):
            problems.append(f"{name} = {state.get(name)!r}, expected an object or null")
    if problems:
        raise ValueError(f"{path}: {'; '.join(problems)}.")
    return state


def checkpoint_step(folder: Path) -> int:
    """Optimiser updates made when a checkpoint was written.

    Raises:
        ValueError: the checkpoint has no readable trainer state, so it is not complete.
    """
    path = folder / TRAINER_STATE_NAME
    try:
        return int(json.loads(path.read_text())["global_step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error!r}): the checkpoint is not complete; resume from an "
            "earlier one."
        ) from error
