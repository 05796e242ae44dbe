"""`fastrl train` on data that is not the toy's, with the toy's policy."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image, ImageDraw
from safetensors.torch import load_file
from transformers import AutoProcessor
from typer.testing import CliRunner

from fastrl.cli import app
from fastrl.geometry.toy import STARTING_POLICY
from fastrl.report.scores import read_scores
from fastrl.trl import FastGRPOTrainer

OVERLAY = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "geo3k_test_overlay"
SMALL = [
    *("--model", "toy"),
    *("--min_pixels", "784"),
    *("--max_pixels", "50176"),
    *("--max_completion_length", "24"),
    *("--num_generations", "4"),
    *("--per_device_train_batch_size", "8"),
    *("--gradient_accumulation_steps", "1"),
    *("--steps_per_generation", "2"),
    *("--max_steps", "2"),
    *("--save_steps", "2"),
    *("--use_cpu", "--bf16", "false", "--use_vllm", "false"),
]
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def train(folder: Path, *words: str) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    command = ["train", "geometry3k_grpo", *SMALL, "--output_dir", str(folder), *words]
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, command)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result.output, summary, lines


def assert_sane(lines: list[dict[str, Any]], rows: int) -> None:
    """Every metric of a run of two updates is a finite number in its range."""
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        for name, value in line.items():
            assert value is None or math.isfinite(value), name
        assert line["grad_norm"] >= 0
        assert line["entropy"] > 0
    (batch,) = [line for line in lines if "fastrl/generated" in line]
    assert batch["fastrl/generated"] == rows
    assert 1 <= batch["fastrl/kept"] <= rows
    assert 0 <= batch["fastrl/reward"] <= 1.5
    assert batch["fastrl/reward"] == pytest.approx(batch["reward"])
    assert batch["fastrl/reward"] == pytest.approx(
        batch["rewards/accuracy_reward/mean"] + batch["rewards/format_reward/mean"]
    )
    assert 1 <= batch["completions/mean_length"] <= 24
    assert batch["fastrl/grading_errors"] == batch["fastrl/grading_timeouts"] == 0


def mixed_folder(folder: Path) -> Path:
    """Rows with one picture, with two, with none, and with a picture that is cut off."""
    folder.mkdir()
    for name, size in (("a.png", (84, 84)), ("b.png", (112, 56))):
        picture = Image.new("RGB", size, "white")
        ImageDraw.Draw(picture).line((5, 5, size[0] - 5, size[1] - 5), "black", 3)
        picture.save(folder / name)
    (folder / "cut.png").write_bytes((folder / "b.png").read_bytes()[:100])
    rows = [
        {"problem": "Find x.", "images": ["a.png"], "answer": "30"},
        {"problem": "<image> or <image>: find y.", "images": ["a.png", "b.png"], "answer": "40"},
        {"problem": "What is 2 + 2?", "images": [], "answer": "4"},
        {"problem": "Find z.", "images": ["cut.png"], "answer": "50"},
        {"problem": "Find z. " + "It is large. " * 60, "images": [], "answer": "60"},
    ]
    for split, chosen in (("train", rows), ("test", rows[:2])):
        text = "".join(json.dumps(row) + "\n" for row in chosen)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def saved_limits(folder: Path) -> tuple[int, int]:
    """The pixel limits that a run saved with its model."""
    saved = json.loads((folder / "model" / "processor_config.json").read_text())
    size = saved["image_processor"]["size"]
    return size["shortest_edge"], size["longest_edge"]


def test_rows_with_one_several_and_no_pictures(tmp_path: Path) -> None:
    words = ["--dataset", str(mixed_folder(tmp_path / "mine")), "--skip_broken"]
    words += ["--max_prompt_length", "400", "--steps_per_generation", "4", "--max_steps", "4"]
    words += ["--eval_split", "test", "--per_device_eval_batch_size", "8"]
    words += ["--system_prompt", "Be brief.", "--per_device_train_batch_size", "3"]
    output, summary, lines = train(tmp_path / "run", *words)
    assert "3 of mine[train]" in output
    assert summary["data"]["rows"] == 3
    assert (summary["data"]["skipped_broken"], summary["data"]["skipped_long"]) == (1, 1)
    assert summary["data"]["broken_rows"][0].startswith("row 3: the picture")
    assert len(lines) == 4
    assert lines[0]["fastrl/generated"] == 12
    table = pq.read_table(tmp_path / "run" / "rollouts" / "generation_000000.parquet")
    prompts = set(table["prompt"].to_pylist())
    assert len(prompts) == 3
    assert {prompt.count("<image>") for prompt in prompts} == {0, 1, 2}
    for when in ("before", "after"):
        assert summary[when]["pictures"] == 2
        assert summary[when]["samples"] == 4
        assert 0 <= summary[when]["sampled"] <= 1
        assert 0 <= summary[when]["in_format"] <= 1
    assert saved_limits(tmp_path / "run") == (784, 50176)


def test_pixel_limits_are_saved_where_vllm_generates_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is built as for vLLM, which lacks here; the host generates in its place."""
    monkeypatch.setattr("fastrl.runs.machine.find_spec", lambda name: object())
    built: list[Any] = []

    def build(args: Any, processing_class: Any, **given: Any) -> FastGRPOTrainer:
        assert args.use_vllm
        args.use_vllm = False
        built.append(processing_class)
        return FastGRPOTrainer(args=args, processing_class=processing_class, **given)

    monkeypatch.setattr("fastrl.runs.job.FastGRPOTrainer", build)
    words = ["--dataset", str(mixed_folder(tmp_path / "mine")), "--skip_broken"]
    train(tmp_path / "run", *words, "--use_vllm", "true", "--max_pixels", "6272")
    assert saved_limits(tmp_path / "run") == (784, 6272)
    # vLLM goes by the limits in the model's folder, and the policy must see what it sees.
    untouched = AutoProcessor.from_pretrained(STARTING_POLICY).image_processor.size
    assert built[0].image_processor.size == untouched


def test_scoring_text_on_the_way_changes_no_weights(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    for split, numbers in (("train", range(8)), ("test", range(8, 10))):
        rows = [{"problem": f"What is {n} + 2?", "answer": n + 2} for n in numbers]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = ["--dataset", str(folder), "--max_steps", "4", "--learning_rate", "1e-3"]
    words += ["--eval_split", "test", "--per_device_eval_batch_size", "8"]
    words += ["--num_generations_eval", "2", "--format_weight", "0"]
    words += ["--examples", json.dumps({"What is 1 + 1?": "<thinking>1+1=2</thinking>\\boxed{2}"})]
    train(tmp_path / "plain", *words)
    _, summary, lines = train(tmp_path / "scored", *words, "--score_every", "1")
    scores = read_scores(tmp_path / "scored" / "scores.jsonl")
    assert [score.step for score in scores] == [0, 1, 2, 3, 4]
    assert {(score.pictures, score.samples, score.in_format) for score in scores} == {(2, 2, None)}
    assert [score.seconds for score in scores[1:]] == [line["seconds"] for line in lines]
    assert lines[-1]["evaluate_seconds"] > 0
    assert summary["data"]["pictures"] == 0
    plain, scored = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("plain", "scored")
    )
    for name, tensor in plain.items():
        assert torch.equal(tensor, scored[name]), name
    table = pq.read_table(tmp_path / "scored" / "rollouts" / "generation_000000.parquet")
    assert all("1+1=2" in prompt for prompt in table["prompt"].to_pylist())


def test_broken_and_long_rows_stop_a_run_before_it_starts(tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mine")
    words = ["train", "geometry3k_grpo", *SMALL, "--dataset", str(folder), "--skip_long", "false"]
    words += ["--skip_broken", "false"]
    words += ["--max_prompt_length", "400", "--output_dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "1 of 5 rows cannot be used: row 3: the picture" in result.stderr
    assert "1 of 5 prompts are longer than max_prompt_length = 400: row 4" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_dry_run_prints_yaml_alone(tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mine")
    words = [
        "train",
        "geometry3k_grpo",
        *SMALL,
        "--dataset",
        str(folder),
        "--skip_broken",
        "--dry_run",
    ]
    result = CliRunner().invoke(app, [*words, "--output_dir", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["dataset"] == str(folder)


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    words = ["--dataset", str(mixed_folder(tmp_path / "mine")), "--skip_broken"]
    words += ["--per_device_train_batch_size", "4", "--max_steps", "4", "--learning_rate", "1e-3"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(whole, *words)
    shutil.copytree(whole, stopped)
    # As it was when the second generation batch began.
    shutil.rmtree(stopped / "checkpoint-4")
    shutil.rmtree(stopped / "model")
    (stopped / "summary.json").unlink()
    _, _, lines = train(stopped, *words, "--resume")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    expected = load_file(whole / "model" / "model.safetensors")
    start = load_file(whole / "checkpoint-2" / "model.safetensors")
    found = load_file(stopped / "model" / "model.safetensors")
    assert any(not torch.equal(tensor, start[name]) for name, tensor in expected.items())
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


@pytest.mark.skipif(not OVERLAY.exists(), reason=f"{OVERLAY} is absent: shared data not mounted")
def test_two_updates_on_geometry3k(tmp_path: Path) -> None:
    words = ["--dataset", str(OVERLAY), "--dataset_split", "test", "--skip_broken"]
    _, summary, lines = train(tmp_path / "run", *words)
    # One gold answer is a list of points, which no box is compared with.
    assert (summary["data"]["rows"], summary["data"]["skipped_broken"]) == (553, 1)
    assert summary["data"]["pictures"] == 553
    assert_sane(lines, rows=16)
