"""`--dry_run` of what this machine cannot run: a GPU's recipe on a machine without one."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fastrl.cli import app


@pytest.fixture(autouse=True)
def _no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastrl.runs.machine.is_torch_bf16_gpu_available", lambda: False)


def test_the_settings_are_shown_and_what_is_lacking_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["train", "geometry3k_gspo", "--dry_run"]
    result = CliRunner().invoke(app, [*words, "--output_dir", str(folder)])
    assert result.exit_code == 0, result.output
    shown = yaml.safe_load(result.stdout)
    assert shown["recipe"] == "geometry3k_gspo"
    assert shown["importance_sampling_level"] == "sequence"
    assert (shown["bf16"], shown["use_cpu"]) == (True, False)
    assert "base" not in shown
    assert "accelerate" not in shown
    assert "not checked here: model and data. bf16 = True: no accelerator" in result.stderr
    assert not folder.exists()


def test_what_it_shows_is_a_recipe(tmp_path: Path) -> None:
    words = ["train", "geometry3k_grpo_lora", "--dry_run"]
    first = CliRunner().invoke(app, words).stdout
    path = tmp_path / "geometry3k_grpo_lora.yaml"
    path.write_text(first)
    second = CliRunner().invoke(app, ["train", str(path), "--dry_run"])
    assert yaml.safe_load(second.stdout) == yaml.safe_load(first)


def test_settings_that_cannot_be_pruned_are_refused_all_the_same(tmp_path: Path) -> None:
    words = ["train", "geometry3k_grpo", "--dry_run"]
    result = CliRunner().invoke(app, [*words, "--entropy_coef", "0.1"])
    assert result.exit_code == 2
    assert "an entropy bonus" in result.stderr


def test_without_dry_run_it_does_not_start(tmp_path: Path) -> None:
    words = ["train", "geometry3k_grpo", "--output_dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "This machine: bf16 = True: no accelerator with bf16 here" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_comparison_of_it_can_be_listed(tmp_path: Path) -> None:
    words = ["compare", "geometry3k_grpo_lora", "--rules", "none", "--only", "none", "--dry_run"]
    result = CliRunner().invoke(app, [*words, "--seeds", "1", "--output_dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "none-seed1  to do" in result.stdout.replace("\n", "")
