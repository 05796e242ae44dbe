"""`fastrl train` as a user runs it: a whole run, and one that is killed and taken up again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from fastrl.cli import app
from fastrl.runs.job import Job
from fastrl.runs.progress import Progress
from fastrl.runs.recipe import build_arguments

SMALL = [
    "toy_geometry",
    *("--max_steps", "12"),
    *("--save_steps", "4"),
    *("--save_total_limit", "10"),
    *("--steps_per_generation", "2"),
    *("--per_device_train_batch_size", "8"),
    *("--num_generations", "4"),
    *("--train_pictures", "8"),
    *("--eval_pictures", "8"),
    *("--eval_samples", "2"),
    *("--score_every", "5"),
    *("--score_pictures", "4"),
]


def train(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *SMALL, *arguments])


def run(*arguments: str) -> str:
    done = train(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    return folder, run("--output_dir", str(folder))


@pytest.mark.slow
def test_a_run_leaves_everything_behind(finished: tuple[Path, str]) -> None:
    folder, output = finished
    assert "held-out accuracy" in output
    assert "kept rollouts" in output
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    scores = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    assert [score["step"] for score in scores] == [0, 5, 10, 12]
    # The end of the curve is on the pictures of its other points, the summary on all.
    assert [score["pictures"] for score in scores] == [4, 4, 4, 4]
    assert (summary["before"]["pictures"], summary["after"]["pictures"]) == (4, 8)
    assert [score["seconds"] for score in scores] == [0.0, *(seconds[s - 1] for s in (5, 10, 12))]
    assert scores[1]["greedy"] is None
    generations = [line for line in lines if "fastrl/generated" in line]
    assert len(generations) == 6
    tables = [pq.read_table(path) for path in sorted((folder / "rollouts").iterdir())]
    assert len(tables) == 6
    for line, table in zip(generations, tables, strict=True):
        assert line["fastrl/generated"] == table.num_rows
        assert line["fastrl/kept"] == sum(table["kept"].to_pylist())
        assert line["fastrl/reward"] == pytest.approx(
            sum(table["reward"].to_pylist()) / table.num_rows, abs=1e-6
        )
        # Each group's picture once, on its first of 4 rows.
        pictures = [content is not None for content in table["picture"].to_pylist()]
        assert pictures == [True, False, False, False] * (table.num_rows // 4)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["max_steps"] == 12
    assert config["prune_rule"] == "differential"
    assert summary["steps"] == 12
    assert 0 <= summary["before"]["sampled"] <= 1
    # The phases and the rest are the whole of the training time.
    assert sum(
        seconds
        for phase, seconds in summary["seconds_per_phase"].items()
        if phase not in ("evaluate", "checkpoint")
    ) == pytest.approx(summary["seconds"], rel=0.1)
    assert (folder / "model" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    code = "import torch; torch.set_num_threads(1); from fastrl.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", *SMALL, "--output_dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    metrics = folder / "metrics.jsonl"
    # Past the checkpoint at step 4, in the middle of a generation batch.
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= 7:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (
        not (folder / "summary.json").exists()
        or "after" not in (folder / "summary.json").read_text()
    )

    again = train("--output_dir", str(folder))
    assert again.exit_code == 2
    assert "--resume" in again.stderr

    run("--output_dir", str(folder), "--resume")
    whole, _ = finished
    expected = load_file(whole / "checkpoint-12" / "model.safetensors")
    found = load_file(folder / "checkpoint-12" / "model.safetensors")
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, 13))
    for path in (whole / "rollouts").iterdir():
        columns = ["completion", "reward", "advantage", "kept", "reason"]
        assert (
            pq.read_table(path)
            .select(columns)
            .equals(pq.read_table(folder / "rollouts" / path.name).select(columns))
        )


def test_dry_run_prints_the_configuration_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = CliRunner().invoke(
        app, ["train", "--dry_run", "--output_dir", str(folder), "--loss_type", "dapo"]
    )
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.output)["loss_type"] == "dapo"
    assert not folder.exists()


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    words = ["train", "--resume", "--output_dir", str(tmp_path / "nothing")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "holds no run" in result.stderr


def test_a_run_begun_before_a_field_was_added_can_be_resumed(tmp_path: Path) -> None:
    console = Console(quiet=True)

    def job(**fields: str) -> Job:
        run, config = build_arguments({"use_cpu": True, "bf16": False}, fields, str(tmp_path))
        return Job("x", run, config, Progress(console))

    begun = job().resolved()
    for field in ("lora_dropout", "lora_target_modules", "max_resamples"):
        del begun[field]
    job().folder.write_config(begun)
    assert job().resume_problems() == []
    assert job(lora_dropout="0.1", max_resamples="2").resume_problems() == [
        "lora_dropout = 0.1, the run was started with 0.0",
        "max_resamples = 2, the run was started with 8",
    ]


def test_help_lists_every_field() -> None:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["train", "--help"])
    assert result.exit_code == 0
    for field in ("--prune_rule", "--eval_pictures", "--learning_rate", "--loss_type", "--resume"):
        assert field in result.output


def test_errors_name_the_field_and_the_remedy() -> None:
    result = CliRunner().invoke(app, ["train", "--max_step", "3"])
    assert result.exit_code == 2
    assert "did you mean 'max_steps'?" in result.stderr


@pytest.mark.slow
def test_resuming_a_finished_run_shows_it_again(finished: tuple[Path, str]) -> None:
    folder, output = finished
    before = (folder / "metrics.jsonl").read_bytes()
    again = run("--output_dir", str(folder), "--resume")
    table = output[output.index("┌") : output.index("└")]
    assert table in again
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_resuming_with_other_settings_is_refused(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    done = train("--output_dir", str(folder), "--resume", "--beta", "0.5")
    assert done.exit_code == 2
    assert "beta = 0.5, the run was started with 0.01" in done.stderr
