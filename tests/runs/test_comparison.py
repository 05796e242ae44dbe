import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fastrl.cli import app
from fastrl.core import Rollouts, TopAdvantagePruning, prune
from fastrl.runs.compare import said_fields, show_report
from fastrl.runs.comparison import Comparison, arms_of
from fastrl.runs.recipe import RecipeError, build_arguments


def finish(folder: Path, arm: str, seed: int, **values: Any) -> None:
    path = folder / f"{arm}-seed{seed}"
    path.mkdir(parents=True)
    summary = {
        "after": {"sampled": 0.9, "greedy": 1.0, "in_format": 0.8},
        "generated": 800.0,
        "kept": 200.0,
        "finished": "now",
        **values,
    }
    line = {
        "step": 4,
        "seconds": summary.get("seconds", 100.0),
        "fastrl/generated": summary["generated"],
        "fastrl/kept": summary["kept"],
        "fastrl/kept_per_prompt": 2.0,
        "fastrl/num_generations": summary.get("num_generations", 7.0),
        "fastrl/groups_without_contrast": 0.5,
        "fastrl/time/update": 60.0,
    }
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (path / "summary.json").write_text(json.dumps(summary))
    rule = arm.partition("-")[0]
    (path / "config.yaml").write_text(f"recipe: x\nprune_rule: {rule}\nnum_generations: 8\n")


def test_rules_bring_their_controls() -> None:
    names = [arm.name for arm in arms_of(["none", "differential", "random"], 8, 64)]
    assert names == [
        "differential",
        "differential-exact",
        "differential-static",
        "differential-exact-static",
        "random",
        "none",
        "none-n4",
        "none-n2",
    ]


def test_fewer_rollouts_keep_prompts_and_updates() -> None:
    arms = {arm.name: arm.overrides for arm in arms_of(["none"], 8, 64)}
    assert arms["none-n2"] == {
        "prune_rule": "none",
        "num_generations": 2,
        "per_device_train_batch_size": 16,
    }


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["nonsense"], "'nonsense' is not a rule"),
        (["none", "none"], "stands twice"),
        (["random"], "need 'differential'"),
    ],
)
def test_rules_that_cannot_run_are_refused(rules: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        arms_of(rules, 8, 64)


def test_runs_are_interleaved_and_a_share_is_measured(tmp_path: Path) -> None:
    arms = arms_of(["differential", "random"], 8, 64)
    comparison = Comparison("toy_geometry", arms, (1, 2), tmp_path, ("--max_steps", "4"))
    names = [run.path.name for _, _, run in comparison.runs()]
    assert names[0] == "differential-seed1"
    assert names[5] == "differential-seed2"
    random = next(arm for arm in arms if arm.name == "random")
    run = next(run for arm, seed, run in comparison.runs() if arm is random and seed == 1)
    with pytest.raises(RecipeError, match="differential-seed1 has no result yet"):
        comparison.command(random, 1, run)
    finish(tmp_path, "differential", 1)
    words = comparison.command(random, 1, run)
    # A quarter of 7 rollouts a prompt is 1.75: two, and of 8 two as well.
    assert f"--keep_fraction={(1.75 + 0.5) / 7:.4f}" in words
    assert "--resume" not in words
    differential = arms[0]
    finished_run = next(run for arm, seed, run in comparison.runs() if arm is differential)
    assert "--resume" in comparison.command(differential, 1, finished_run)


@pytest.mark.parametrize(("kept", "rows"), [(304.0, 3), (392.0, 4), (8.0, 1), (800.0, 8)])
def test_rules_that_keep_a_share_keep_the_nearest_one(
    tmp_path: Path, kept: float, rows: int
) -> None:
    """38% of 8 rollouts is 3 of them and 49% is 4: neither is rounded down."""
    arms = arms_of(["differential", "top_advantage"], 8, 64)
    comparison = Comparison("toy_geometry", arms, (1,), tmp_path)
    finish(tmp_path, "differential", 1, kept=kept, num_generations=8.0)
    arm, _, run = next(one for one in comparison.runs() if one[0].name == "top_advantage")
    (word,) = (word for word in comparison.command(arm, 1, run) if "keep_fraction" in word)
    fraction = float(word.partition("=")[2])
    rollouts = Rollouts([0] * 8, [float(row) for row in range(8)], [[1]] * 8)
    assert len(prune(rollouts, TopAdvantagePruning(fraction)).keep) == rows


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    arms = arms_of(["none"], 2, 8)
    comparison = Comparison("toy_geometry", arms, (1,), tmp_path)
    finish(tmp_path, "none", 1)
    told: list[tuple[int, int, str, bool]] = []
    comparison.execute(lambda *values: told.append(values))
    assert told == [(1, 1, "none-seed1", True)]


def test_a_comparison_ends_with_the_report(tmp_path: Path) -> None:
    for seed, seconds, right in ((1, 200.0, 0.90), (2, 220.0, 0.94)):
        finish(tmp_path, "none", seed, seconds=seconds, kept=800.0)
        after = {"sampled": right, "greedy": 1.0, "in_format": 0.8}
        finish(tmp_path, "differential", seed, seconds=seconds / 2, after=after)
    console = Console(width=200, record=True, file=io.StringIO())
    show_report(console, tmp_path)
    shown = console.export_text()
    row = next(line for line in shown.splitlines() if line.startswith("  differential"))
    assert "92.0% ± 2.8" in row
    assert "25.0%" in row
    assert "2.00x [2.00, 2.00]" in shown
    assert "60.0 (100%)" in shown
    assert "Settings" not in shown
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "| differential | 105.0 | 2.00x [2.00, 2.00] |" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
def test_a_failed_run_is_one_line_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, told: str
) -> None:
    monkeypatch.setattr(Comparison, "command", lambda *_: [sys.executable, "-c", ending])
    words = ["compare", "toy_geometry", "--rules", "none", "--only", "none", "--seeds", "2"]
    result = CliRunner().invoke(app, [*words, "--output_dir", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: none-seed1 failed ({told};")
    assert result.stderr.count("\n") == 1
    assert "Give the same command again to go on" in result.stderr
    assert "none-seed2" not in result.stdout


def test_a_share_that_will_not_be_known_is_refused_before_anything_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(
        Comparison,
        "command",
        lambda _, arm, *__: started.append(arm.name) or [sys.executable, "-c", ""],
    )
    words = ["compare", "toy_geometry", "--output_dir", str(tmp_path), "--seeds", "2"]
    finish(tmp_path, "differential", 1)
    finish(tmp_path, "none", 1)
    result = CliRunner().invoke(app, [*words, "--only", "none,random"])
    assert result.exit_code == 2
    assert "random: take their share from differential-seed2, which is not" in result.stderr
    assert started == []
    assert not (tmp_path / "comparison.json").exists()
    finish(tmp_path, "differential", 2)
    result = CliRunner().invoke(app, [*words, "--only", "none,random"])
    assert result.exit_code == 0, result.output
    assert started == ["random", "random", "none"]


def test_dry_run_lists_the_runs(tmp_path: Path) -> None:
    finish(tmp_path, "none", 1)
    words = ["compare", "toy_geometry", "--rules", "none", "--seeds", "2", "--dry_run"]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [*words, "--output_dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("none-seed1  finished")
    assert lines[-1].endswith("none-n2-seed2  to do")


def test_an_unknown_arm_is_refused() -> None:
    result = CliRunner().invoke(app, ["compare", "toy_geometry", "--only", "plain"])
    assert result.exit_code == 2
    assert "--only: plain: expected some of differential" in result.stderr


def test_words_that_arms_set_are_refused() -> None:
    words = ["compare", "toy_geometry", "--seed", "4", "--weighting", "kept"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "--weighting, --seed: set by the arms" in result.stderr


def claim(folder: Path, recipe: str = "toy_geometry", **fields: Any) -> None:
    Comparison(recipe, arms_of(["none"], 2, 8), (1,), folder, fields=fields).claim_folder()


def test_a_folder_belongs_to_one_comparison(tmp_path: Path) -> None:
    finish(tmp_path, "none", 1)
    claim(tmp_path, max_steps=4, learning_rate=1e-3, model_init_kwargs=(1, 2))
    claim(tmp_path, max_steps=4, learning_rate=1e-3, model_init_kwargs=(1, 2))
    expected = (
        "compares something else: the recipe is other, its runs have toy_geometry; "
        "learning_rate = 0.002, its runs have 0.001; max_steps = None, its runs have 4; "
        r"model_init_kwargs = None, its runs have \[1, 2\]\. Choose another"
    )
    with pytest.raises(RecipeError, match=expected):
        claim(tmp_path, "other", learning_rate=2e-3)
    (tmp_path / "comparison.json").write_text('{"recipe": "toy_geometry", "words": []}')
    with pytest.raises(RecipeError, match="earlier version"):
        claim(tmp_path)


def test_a_changed_recipe_is_refused_with_the_field(tmp_path: Path) -> None:
    recipe, folder = tmp_path / "mine.yaml", tmp_path / "runs"
    fixed = "model: toy\ndataset: toy\nper_device_train_batch_size: 8\nuse_cpu: true\nbf16: false\n"
    finish(folder, "none", 1)
    (folder / "none-seed1" / "summary.json").write_text('{"finished": "now"}')
    words = ["compare", str(recipe), "--rules", "none", "--only", "none", "--seeds", "1"]
    words += ["--num_generations", "2", "--output_dir", str(folder), "--max_steps", "4"]
    recipe.write_text(fixed + "learning_rate: 1.0e-3\n")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert (folder / "report.html").exists()
    recipe.write_text(fixed + "learning_rate: 2.0e-3\n")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "learning_rate = 0.002, its runs have 0.001. Choose another" in result.stderr


def test_fields_are_told_as_they_were_understood(tmp_path: Path) -> None:
    content = {"learning_rate": "1e-3", "train_pictures": 8, "max_steps": 2, "bf16": False}
    run, config = build_arguments({**content, "use_cpu": True}, {"max_steps": "4"}, str(tmp_path))
    assert said_fields(run, config, {*content, "output_dir"}) == {
        "bf16": False,
        "learning_rate": 0.001,
        "max_steps": 4,
        "train_pictures": 8,
    }
