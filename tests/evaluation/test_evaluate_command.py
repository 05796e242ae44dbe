"""`fastrl evaluate` by its words."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastrl.cli import app
from fastrl.evaluation.sampling import build_sampling


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["evaluate", *words])


def test_a_small_evaluation_and_going_on_with_it(tmp_path: Path) -> None:
    words = ("toy", "--dataset", "toy", "--limit", "8", "--output_dir", str(tmp_path / "e"))
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "toy on toy: 8 questions" in done.output
    assert "accuracy" in done.output
    summary = json.loads((tmp_path / "e" / "summary.json").read_text())
    assert summary["temperature"] == 0
    assert summary["metrics"]["mean@1"]["method"] == "wilson"
    assert summary["max_new_tokens"] == 32
    again = run(*words)
    assert again.exit_code == 2
    assert "holds an evaluation already" in again.stderr
    other = run(*words, "--resume", "--seed", "1")
    assert other.exit_code == 2
    assert "seed = 1, it was started with 0" in other.stderr
    assert run(*words, "--resume").exit_code == 0


def test_a_dry_run_shows_the_settings_and_a_prompt_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    done = run(
        *("toy", "--dataset", "toy", "--limit", "8", "--samples", "4", "--dry_run"),
        *("--instruction", "Box it.", "--output_dir", str(folder), "--batch_size", "16"),
        *("--examples", '{"1 + 1?": "two"}'),
    )
    assert done.exit_code == 0, done.output
    assert "temperature: 0.6" in done.output
    assert "top_p: 0.95" in done.output
    assert "batches: 2" in done.output
    assert "Box it." in done.output
    assert "examples:\n  1 + 1?: two\n" in done.output
    assert "(pictures: 1; answer: " in done.output
    assert not folder.exists()


def test_every_wrong_word_is_told_at_once() -> None:
    done = run(
        *("toy", "--dataset", "toy", "--sampling", "wild", "--engine", "sglang", "--top_p", "2"),
        *("--dtype", "int8", "--batch_size", "0", "--engine_args", "[1]", "--max_new_tokens", "0"),
        *("--min_pixels", "9", "--max_pixels", "4", "--examples", '["1 + 1 = 2"]'),
    )
    assert done.exit_code == 2
    for word in (
        "--sampling wild: expected one of greedy, validation, training",
        "--engine sglang",
        "--top_p 2.0",
        "--dtype int8",
        "--batch_size 0",
        "--engine_args [1]",
        "--max_new_tokens 0",
        "--min_pixels 9, --max_pixels 4",
        '--examples ["1 + 1 = 2"]: expected questions and their replies as JSON',
    ):
        assert word in done.stderr


def test_unknown_data_sets_and_models_are_refused(tmp_path: Path) -> None:
    assert "expected one of toy, geometry3k" in run("toy", "--dataset", "geo").stderr
    done = run("no/model", "--dataset", "toy", "--output_dir", str(tmp_path / "e"))
    assert done.exit_code == 2
    assert "neither 'toy', nor a folder" in done.stderr
    assert "holds no evaluation" in run("toy", "--dataset", "toy", "--resume").stderr


def test_sampling_presets() -> None:
    assert build_sampling(None, None, None, 9, samples=1).is_greedy
    several = build_sampling(None, None, None, 9, samples=4)
    assert (several.temperature, several.top_p, several.max_new_tokens) == (0.6, 0.95, 9)
    training = build_sampling("training", None, 0.9, 9, samples=4)
    assert (training.temperature, training.top_p) == (1.0, 0.9)
    with pytest.raises(ValueError, match="greedy decoding gives the same completion"):
        build_sampling("greedy", None, None, 9, samples=2)
    with pytest.raises(ValueError, match="greedy decoding"):
        build_sampling("training", 0.0, None, 9, samples=2)
