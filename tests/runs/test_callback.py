from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastrl.runs.callback import MetricsCallback, ScoringCallback
from fastrl.runs.folder import RunFolder


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.create()
    return folder


def log(callback: MetricsCallback, step: int, **logs: Any) -> None:
    callback.on_log(None, SimpleNamespace(global_step=step), None, logs=logs)


def test_seconds_leave_out_evaluation_and_checkpoints(folder: RunFolder) -> None:
    clock, seen = Clock(), []
    callback = MetricsCallback(folder, seen.append, now=clock)
    callback.on_train_begin(None, None, None)
    clock.time = 2.0
    log(callback, 1, loss=0.5)
    clock.time = 5.0
    log(callback, 1, eval_loss=0.1)
    callback.on_evaluate()
    clock.time = 6.0
    callback.on_save()
    clock.time = 10.0
    log(callback, 2, loss=0.4)
    log(callback, 2, train_runtime=10.0)
    lines = folder.read_metrics()
    assert [line["step"] for line in lines] == [1, 2]
    assert [line["seconds"] for line in lines] == [2.0, 6.0]
    assert lines[1]["evaluate_seconds"] == 3.0
    assert lines[1]["checkpoint_seconds"] == 1.0
    assert lines[1]["loss"] == 0.4
    assert seen == lines


def test_scoring_on_the_way_is_no_training_time(folder: RunFolder) -> None:
    clock, asked = Clock(), []

    def score(step: int, seconds: float) -> None:
        asked.append((step, seconds))
        clock.time += 7.0

    callback = MetricsCallback(folder, lambda line: None, score, now=clock)
    callback.on_train_begin(None, None, None)
    clock.time = 2.0
    log(callback, 1, loss=0.5)
    clock.time += 3.0
    log(callback, 2, loss=0.4)
    assert asked == [(1, 2.0), (2, 5.0)]
    assert folder.read_metrics()[-1]["score_seconds"] == 7.0


def test_a_resumed_run_adds_up(folder: RunFolder) -> None:
    folder.append_metrics(
        {"step": 4, "seconds": 30.0, "evaluate_seconds": 2.0, "checkpoint_seconds": 1.0}
    )
    clock = Clock()
    clock.time = 100.0
    callback = MetricsCallback(folder, lambda line: None, now=clock)
    callback.on_train_begin(None, None, None)
    clock.time = 103.0
    log(callback, 5, loss=0.1)
    last = folder.read_metrics()[-1]
    assert last["seconds"] == 33.0
    assert last["evaluate_seconds"] == 2.0


def test_processes_that_write_nothing_take_part_in_scoring() -> None:
    asked = []
    callback = ScoringCallback(lambda step, seconds: asked.append((step, seconds)))
    for step, logs in ((1, {"loss": 0.5}), (1, {"eval_loss": 0.1}), (2, {"loss": 0.4}), (2, {})):
        callback.on_log(None, SimpleNamespace(global_step=step), None, logs=logs)
    assert asked == [(1, 0.0), (2, 0.0)]
