"""`fastrl compare` as a user runs it: it trains, is killed midway, and goes on to its report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 240  # seconds that it may take on a busy machine
SMALL = [
    "toy_geometry",
    *("--rules", "differential,none"),
    *("--only", "differential,none"),
    *("--seeds", "1"),
    *("--num_generations", "2"),
    *("--max_steps", "8"),
    *("--save_steps", "2"),
    *("--steps_per_generation", "2"),
    *("--per_device_train_batch_size", "4"),
    *("--train_pictures", "4"),
    *("--eval_pictures", "4"),
    *("--eval_samples", "1"),
    *("--score_every", "4"),
    *("--score_pictures", "4"),
]


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "fastrl", "compare", *SMALL, "--output_dir", str(folder)]
    with log.open("wb") as output:
        # In a group of its own: a comparison killed alone would leave its run training.
        return subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"},
        )


def steps(run: Path) -> list[int]:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


@pytest.mark.slow
def test_a_killed_comparison_goes_on_to_its_report(tmp_path: Path) -> None:
    folder, log = tmp_path / "runs", tmp_path / "log"
    first, second = folder / "differential-seed1", folder / "none-seed1"
    process = start(folder, log)
    deadline = time.monotonic() + PATIENCE
    # In the middle of the second run, past its first checkpoint.
    while time.monotonic() < deadline and process.poll() is None and len(steps(second)) < 3:
        time.sleep(0.02)
    assert process.poll() is None, log.read_text()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 3 <= len(steps(second)) < 8
    finished = (first / "summary.json").read_bytes()
    assert "finished" in json.loads(finished)
    assert "finished" not in json.loads((second / "summary.json").read_text())
    assert not (folder / "report.html").exists()

    process = start(folder, log)
    assert process.wait(PATIENCE) == 0, log.read_text()
    told = log.read_text()
    assert "differential-seed1  (finished before)" in told
    assert "none-seed1  (finished before)" not in told
    assert (first / "summary.json").read_bytes() == finished
    for run in (first, second):
        assert steps(run) == list(range(1, 9))
        assert json.loads((run / "summary.json").read_text())["steps"] == 8
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    table = (folder / "report.md").read_text()
    assert "| none | plain, n = 2 | 1 | 8 |" in table
    assert "| differential | differential 1.0, kept, adaptive | 1 | 8 |" in table
    assert "not finished" not in table
