import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fastrl.cli import ALL_RULES, app
from fastrl.runs.comparison import Comparison, arms_of
from fastrl.runs.comparison_table import comparison_rows, ratio_with_interval, share_with_spread
from fastrl.runs.recipe import RecipeError
from fastrl.trl.config import PRUNE_RULES


def finish(folder: Path, arm: str, seed: int, **values: Any) -> None:
    path = folder / f"{arm}-seed{seed}"
    path.mkdir(parents=True)
    summary = {
        "after": {"sampled": 0.9, "greedy": 1.0, "in_format": 0.8},
        "seconds": 100.0,
        "seconds_per_phase": {"generate": 20.0, "update": 60.0},
        "generated": 800.0,
        "kept": 200.0,
        "num_generations": [8.0, 6.0],
        "finished": "now",
        **values,
    }
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "config.yaml").write_text("recipe: x\n")


def test_the_command_line_knows_every_rule() -> None:
    assert set(ALL_RULES) == set(PRUNE_RULES)


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
    assert words[words.index("--keep_fraction") + 1] == "0.25"
    assert "--resume" not in words
    differential = arms[0]
    finished_run = next(run for arm, seed, run in comparison.runs() if arm is differential)
    assert "--resume" in comparison.command(differential, 1, finished_run)


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    arms = arms_of(["none"], 2, 8)
    comparison = Comparison("toy_geometry", arms, (1,), tmp_path)
    finish(tmp_path, "none", 1)
    told: list[tuple[int, int, str, bool]] = []
    comparison.execute(lambda *values: told.append(values))
    assert told == [(1, 1, "none-seed1", True)]
    assert comparison.summaries()["none"][1]["kept"] == 200.0


def test_the_table_has_the_right_cells(tmp_path: Path) -> None:
    for seed, seconds, right in ((1, 200.0, 0.90), (2, 220.0, 0.94)):
        finish(tmp_path, "none", seed, seconds=seconds, kept=800.0)
        after = {"sampled": right, "greedy": 1.0, "in_format": 0.8}
        finish(tmp_path, "differential", seed, seconds=seconds / 2, after=after)
    arms = tuple(arm for arm in arms_of(["differential", "none"], 8, 64))
    comparison = Comparison("toy_geometry", arms, (1, 2), tmp_path)
    header, *rows = comparison_rows(comparison.summaries())
    assert [row[0] for row in rows] == ["differential", "none"]
    cells = dict(zip(header, rows[0], strict=True))
    assert cells["accuracy"] == "92.0% ± 2.8"
    assert cells["seconds"] == "105"
    assert cells["faster than plain"] == "2.00x [2.00, 2.00]"
    assert cells["kept"] == "25%"
    assert cells["n"] == "7.0"
    assert cells["updates"] == "60.0"


def test_ratios_come_with_an_interval() -> None:
    assert ratio_with_interval([2.0]) == "2.00x"
    assert ratio_with_interval([]) == "-"
    # logs 0 and ln 4: mean ln 2, standard deviation ln 4 / sqrt 2, so half-width 12.71 ln 2.
    assert ratio_with_interval([1.0, 4.0]).startswith("2.00x [0.00, ")
    assert share_with_spread([0.5]) == "50.0%"


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


def test_a_folder_belongs_to_one_comparison(tmp_path: Path) -> None:
    finish(tmp_path, "none", 1)
    arms = arms_of(["none"], 2, 8)
    Comparison("toy_geometry", arms, (1,), tmp_path, ("--max_steps", "4")).claim_folder()
    other = Comparison("toy_geometry", arms, (1,), tmp_path, ("--max_steps", "8"))
    with pytest.raises(RecipeError, match="compares toy_geometry --max_steps 4"):
        other.execute(lambda *values: None)
