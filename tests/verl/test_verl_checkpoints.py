import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fastrl.core import AdaptiveRollouts
from fastrl.verl.checkpoints import STATE_NAME, checkpoint_folder, read_schedule, write_schedule


def schedule(total_steps: int = 8, num_generations: int = 8) -> AdaptiveRollouts:
    return AdaptiveRollouts(
        num_generations=num_generations,
        min_generations=2,
        steps_per_epoch=2,
        total_steps=total_steps,
    )


def recorded() -> AdaptiveRollouts:
    made = schedule()
    for kept in ([6, 6], [6, 6], [6, 6], [2, 2], [2, 2]):
        made.record(kept)
    assert made.num_generations < 8
    return made


def test_a_schedule_goes_on(tmp_path: Path) -> None:
    made = recorded()
    write_schedule(tmp_path / "global_step_5", 5, made)
    again = schedule()
    read_schedule(tmp_path / "global_step_5", again)
    assert again.state_dict() == made.state_dict()


def test_a_longer_run_goes_on_too(tmp_path: Path) -> None:
    made = recorded()
    write_schedule(tmp_path, 5, made)
    again = schedule(total_steps=20)
    read_schedule(tmp_path, again)
    assert again.num_generations == made.num_generations
    assert again.state_dict()["settings"]["total_steps"] == 20


def test_what_cannot_go_on_names_file_fault_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / STATE_NAME
    for written, fault in (
        (None, "does not exist"),
        ("{", "is not valid JSON"),
        (json.dumps({"version": 7}), "version = 7, this library reads 1"),
        (json.dumps({"version": 1, "schedule": None}), "written without adaptive rollouts"),
        (json.dumps({"version": 1, "schedule": {"version": 1}}), "missing"),
    ):
        if written is not None:
            path.write_text(written)
        with pytest.raises(ValueError, match=fault) as caught:
            read_schedule(tmp_path, schedule())
        assert str(path) in str(caught.value)
        assert "resume from a" in str(caught.value)


def test_another_number_of_rollouts_is_another_run(tmp_path: Path) -> None:
    write_schedule(tmp_path, 5, recorded())
    with pytest.raises(ValueError, match=r"settings\.num_generations = 8: this schedule has 6"):
        read_schedule(tmp_path, schedule(num_generations=6))


def test_the_folder_that_verl_resumed_from() -> None:
    config = OmegaConf.create(
        {
            "trainer": {
                "resume_mode": "auto",
                "default_local_dir": "runs/x",
                "resume_from_path": "elsewhere/global_step_3",
            }
        }
    )
    assert checkpoint_folder(config, 4) == Path("runs/x/global_step_4")
    config.trainer.resume_mode = "resume_path"
    assert checkpoint_folder(config, 3) == Path("elsewhere/global_step_3")
