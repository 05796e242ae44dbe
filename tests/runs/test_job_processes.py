"""`fastrl train` on two processes (gloo): one of them writes, and both go on after a stop."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fastrl.cli import app
from process_runs import train_on_two

SMALL = [
    *("--max_steps", "4"),
    *("--save_steps", "2"),
    *("--steps_per_generation", "2"),
    *("--per_device_train_batch_size", "4"),
    *("--num_generations", "4"),
    *("--train_pictures", "8"),
    *("--eval_pictures", "4"),
    *("--eval_samples", "1"),
    *("--score_every", "2"),
    *("--score_pictures", "2"),
]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("processes") / "run"
    return folder, train_on_two("toy_geometry", folder, *SMALL)


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_one_process_writes_for_both(finished: tuple[Path, str]) -> None:
    folder, output = finished
    assert output.count("Scoring held-out pictures, before") == 1
    assert output.count("kept rollouts") == 1
    assert steps(folder / "metrics.jsonl") == [1, 2, 3, 4]
    assert steps(folder / "scores.jsonl") == [0, 2, 4]
    tables = [pq.read_table(path) for path in sorted((folder / "rollouts").iterdir())]
    # 2 processes x 4 rows x 2 micro-batches: the groups of both.
    assert [table.num_rows for table in tables] == [16, 16]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if "fastrl/generated" in line]
    for line, table in zip(generations, tables, strict=True):
        assert line["fastrl/generated"] == 16
        assert line["fastrl/kept"] == sum(table["kept"].to_pylist())
        rewards = table["reward"].to_pylist()
        assert line["fastrl/reward"] == pytest.approx(sum(rewards) / 16)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["machine"]["processes"] == 2
    assert (summary["steps"], summary["generated"]) == (4, 32)
    assert summary["before"]["pictures"] == 2
    assert summary["after"]["pictures"] == 4
    assert not list(folder.rglob("*.tmp"))


def test_both_go_on_from_a_checkpoint_to_the_same_weights(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    whole, _ = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    # As a kill after the third update would have left it.
    for gone in ("checkpoint-4", "model"):
        shutil.rmtree(folder / gone)
    summary = json.loads((folder / "summary.json").read_text())
    del summary["finished"], summary["after"]
    (folder / "summary.json").write_text(json.dumps(summary))

    train_on_two("toy_geometry", folder, *SMALL, "--resume")
    expected = load_file(whole / "checkpoint-4" / "model.safetensors")
    found = load_file(folder / "checkpoint-4" / "model.safetensors")
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert steps(folder / "metrics.jsonl") == [1, 2, 3, 4]
    assert steps(folder / "scores.jsonl") == [0, 2, 4]
    columns = ["completion", "reward", "advantage", "kept", "reason"]
    for path in (whole / "rollouts").iterdir():
        again = pq.read_table(folder / "rollouts" / path.name)
        assert pq.read_table(path).select(columns).equals(again.select(columns))


def test_another_number_of_processes_is_refused(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    words = ["train", "toy_geometry", *SMALL, "--output_dir", str(folder), "--resume"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "number of processes = 1, the run was started with 2" in result.stderr
