import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastrl.core import DifferentialPruning, Rollouts, prune
from fastrl.runs.folder import RunFolder
from fastrl.trl import GenerationRecord
from fastrl.trl.checkpoints import write_state


def record(generation_step: int, pictures_G: tuple[tuple[Any, ...], ...] = ()) -> GenerationRecord:
    advantages = np.array([1.0, 1.0, -1.0, 0.0])
    tokens = [[1, 2, 3], [1, 2, 3, 4], [9], [5]]
    rollouts = Rollouts([0, 0, 0, 0], advantages, tokens)
    return GenerationRecord(
        step=4 * generation_step,
        generation_step=generation_step,
        num_generations=4,
        prompts=["<image>What?"] * 4,
        completions=list("abcd"),
        rewards={"accuracy": np.array([1.0, 1.0, 0.0, np.nan])},
        reward_N=np.array([1.0, 1.0, 0.0, 0.5]),
        advantages_N=advantages,
        selection=prune(rollouts, DifferentialPruning()),
        pictures_G=pictures_G,
    )


def checkpoint(folder: RunFolder, step: int, generation: int) -> Path:
    path = folder.path / f"checkpoint-{step}"
    write_state(path, generation, None)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


def test_rollouts_come_back_with_their_reasons(folder: RunFolder) -> None:
    folder.write_rollouts(record(0))
    rows = folder.read_rollouts().to_pylist()
    assert [row["kept"] for row in rows] == [True, False, True, True]
    assert rows[1]["reason"] == "duplicate"
    assert rows[1]["duplicate_of"] == 0
    assert rows[1]["similarity"] == 0.75
    assert rows[0]["similarity"] is None
    assert [row["reward/accuracy"] for row in rows][:3] == [1.0, 1.0, 0.0]
    assert rows[0]["prompt"] == "<image>What?"
    assert [row["group"] for row in rows] == [0, 0, 0, 0]


def test_a_picture_is_written_once_per_group(folder: RunFolder) -> None:
    picture = Image.new("RGB", (8, 8), "red")
    folder.write_rollouts(record(0))
    folder.write_rollouts(record(1, ((picture, picture),)), with_pictures=True)
    folder.write_rollouts(record(2, ((picture,),)))
    pictures = [row["picture"] for row in folder.read_rollouts().to_pylist()]
    assert [content is not None for content in pictures] == [False] * 4 + [True] + [False] * 7
    assert Image.open(io.BytesIO(pictures[4])).getpixel((0, 0)) == (255, 0, 0)


def test_a_line_cut_short_by_a_kill_is_left_out(folder: RunFolder) -> None:
    folder.append_metrics({"step": 1, "loss": 0.5})
    with folder.metrics_path.open("a") as file:
        file.write('{"step": 2, "lo')
    assert folder.read_metrics() == [{"step": 1, "loss": 0.5}]


def test_the_last_complete_checkpoint_passes_over_broken_ones(folder: RunFolder) -> None:
    assert folder.last_complete_checkpoint() is None
    complete = checkpoint(folder, 4, 1)
    half_written = folder.path / "checkpoint-8"
    write_state(half_written, 2, None)
    (half_written / "trainer_state.json").write_text('{"global_st')
    (folder.path / "checkpoint-12").mkdir()
    assert folder.last_complete_checkpoint() == complete


def test_rewind_cuts_what_came_after_the_checkpoint(folder: RunFolder) -> None:
    for step in range(1, 10):
        folder.append_metrics({"step": step})
    for generation in range(3):
        folder.write_rollouts(record(generation))
    kept = checkpoint(folder, 4, 1)
    later = checkpoint(folder, 8, 2)
    folder.rewind(kept)
    assert [line["step"] for line in folder.read_metrics()] == [1, 2, 3, 4]
    assert sorted(p.name for p in folder.rollouts_path.iterdir()) == ["generation_000000.parquet"]
    assert kept.exists()
    assert not later.exists()


def test_rewind_cuts_scores_too_but_for_that_of_the_start(folder: RunFolder) -> None:
    for step in (0, 4, 8):
        folder.append_score(step, 2.0 * step, {"sampled": 0.5})
    folder.rewind(checkpoint(folder, 4, 1))
    assert folder.read_scores() == [
        {"step": 0, "seconds": 0.0, "sampled": 0.5},
        {"step": 4, "seconds": 8.0, "sampled": 0.5},
    ]


def test_rewind_without_a_checkpoint_starts_over(folder: RunFolder) -> None:
    folder.append_metrics({"step": 1})
    folder.append_score(0, 0.0, {"sampled": 0.5})
    folder.write_rollouts(record(0))
    folder.rewind(None)
    assert folder.read_metrics() == []
    assert folder.read_scores() == []
    assert list(folder.rollouts_path.iterdir()) == []


def test_summary_values_are_merged(folder: RunFolder) -> None:
    folder.update_summary(before={"sampled": 0.4})
    assert folder.update_summary(steps=8) == {"before": {"sampled": 0.4}, "steps": 8}


def test_totals_are_of_the_whole_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first = {"fastrl/generated": 8.0, "fastrl/kept": 4.0, "fastrl/num_generations": 4.0}
    folder.append_metrics({"step": 1, "seconds": 2.0, "fastrl/time/update": 1.111, **first})
    folder.append_metrics({"step": 2, "seconds": 3.0, "fastrl/time/update": None})
    folder.append_metrics({"step": 3, "seconds": 5.0, "fastrl/time/other": 0.5, "fastrl/kept": 1.0})
    assert folder.totals() == {
        "steps": 3,
        "seconds": 5.0,
        "seconds_per_phase": {"other": 0.5, "update": 1.11},
        "generated": 8.0,
        "kept": 5.0,
        "num_generations": [4.0],
    }
