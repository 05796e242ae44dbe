"""What a verl checkpoint holds of FastRL: the rollout schedule."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from fastrl.core import AdaptiveRollouts
from fastrl.core.schedule import prolonged
from fastrl.core.state_file import read_state_file, write_state_file

STATE_NAME = "fastrl_state.json"
STATE_VERSION = 1


def checkpoint_folder(config: DictConfig, global_steps: int) -> Path:
    """The folder that verl has just resumed from."""
    if config.trainer.resume_mode == "resume_path":
        return Path(config.trainer.resume_from_path)
    return Path(config.trainer.default_local_dir) / f"global_step_{global_steps}"


def write_schedule(folder: Path, global_steps: int, schedule: AdaptiveRollouts | None) -> None:
    """Write FastRL's part of a checkpoint, whole or not at all.

    Args:
        folder: the checkpoint's folder; made if it does not exist.
        global_steps: steps so far.
        schedule: None without adaptive rollouts.
    """
    state = {
        "version": STATE_VERSION,
        "global_steps": global_steps,
        "schedule": schedule.state_dict() if schedule else None,
    }
    write_state_file(folder / STATE_NAME, state)


def read_schedule(folder: Path, schedule: AdaptiveRollouts) -> None:
    """Let the schedule go on where the checkpoint's was; the run may be longer by now.

    Raises:
        ValueError: there is no such file, it is malformed, or its schedule is of another run;
            names file, fault and remedy.
    """
    path = folder / STATE_NAME
    remedy = "resume from another checkpoint, or with +trainer.fastrl.adaptive_rollouts=False"
    state = read_state_file(path)
    if state is None:
        raise ValueError(f"{path} does not exist: the rollout schedule cannot go on; {remedy}.")
    if state.get("version") != STATE_VERSION:
        raise ValueError(
            f"{path}: version = {state.get('version')!r}, this library reads {STATE_VERSION}; "
            f"{remedy}."
        )
    saved = state.get("schedule")
    if not isinstance(saved, dict):
        raise ValueError(
            f"{path}: schedule = {saved!r}, written without adaptive rollouts; {remedy}."
        )
    try:
        schedule.load_state_dict(prolonged(saved, schedule))
    except ValueError as error:
        raise ValueError(f"{path}: {error}\n{remedy}.") from error
