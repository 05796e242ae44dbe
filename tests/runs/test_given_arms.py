"""`fastrl compare --arm`: any two settings of a recipe, compared."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastrl.cli import app
from fastrl.runs.comparison import Arm, Comparison
from fastrl.runs.given_arms import parse_arms, resolve_arms
from fastrl.runs.recipe import RecipeError

RECIPE = {
    "dataset": "toy",
    "use_cpu": True,
    "bf16": False,
    "prune_rule": "differential",
    "learning_rate": 1e-3,
}


def compare(folder: Path, *words: str) -> Result:
    recipe = folder / "mine.yaml"
    recipe.write_text(json.dumps(RECIPE))
    given = ["compare", str(recipe), "--seeds", "1", "--output_dir", str(folder / "runs"), *words]
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, given)


def finish(folder: Path, arm: str, rule: str, seconds: float) -> None:
    path = folder / "runs" / f"{arm}-seed1"
    path.mkdir(parents=True)
    line = {
        "step": 4,
        "seconds": seconds,
        "fastrl/generated": 8.0,
        "fastrl/kept": 8.0,
        "fastrl/kept_per_prompt": 4.0,
        "fastrl/num_generations": 4.0,
        "fastrl/groups_without_contrast": 0.0,
    }
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (path / "summary.json").write_text('{"finished": "now"}')
    (path / "config.yaml").write_text(f"prune_rule: {rule}\nnum_generations: 4\n")


def test_arms_are_read() -> None:
    text = 'fast.2:prune_rule=none,system_prompt=a, b=c: "d",model_init_kwargs={"x": 1, "y": 2}'
    assert parse_arms(["as-it-is", text, "bare:"]) == (
        Arm("as-it-is"),
        Arm(
            "fast.2",
            {
                "prune_rule": "none",
                "system_prompt": 'a, b=c: "d"',
                "model_init_kwargs": '{"x": 1, "y": 2}',
            },
        ),
        Arm("bare"),
    )


def test_every_slip_is_told_at_once() -> None:
    texts = ["a/b:x=1", "b-seed1", "none", "c:x", "c:seed=1,output_dir=x,x=1,x=2"]
    with pytest.raises(RecipeError) as told:
        parse_arms(texts, taken=("none",))
    for part in (
        "'a/b:x=1': expected NAME:field=value",
        "'b-seed1': expected NAME",
        "'none' is an arm of --rules; choose another name",
        "c: 'x': expected field=value",
        "'c' stands twice",
        "c: seed: every arm runs with every seed; use --seeds",
        "c: output_dir: a run lies in the comparison's folder",
        "c: x stands twice",
    ):
        assert part in str(told.value)


def test_every_arm_is_checked_before_any_runs() -> None:
    arms = parse_arms(
        ["a:learning_rat=1", "b:similarity_threshold=2", "c:loss_type=odd", "d:learning_rate=2e-3"]
    )
    with pytest.raises(RecipeError) as told:
        resolve_arms(arms, RECIPE, {})
    message = str(told.value)
    assert "a: --learning_rat: no such field (did you mean 'learning_rate'?)" in message
    assert "b: FastRL's settings: similarity_threshold = 2.0: expected a number in" in message
    assert "c: FastRL cannot prune this run: loss_type = 'odd'" in message
    assert "d:" not in message
    found = resolve_arms(arms[3:], RECIPE, {"learning_rate": "3e-3", "max_steps": "4"})
    assert (found["d"][1].learning_rate, found["d"][1].max_steps) == (2e-3, 4)


def test_an_arms_fields_come_after_the_words_for_all(tmp_path: Path) -> None:
    arms = parse_arms(["a:learning_rate=2e-3,format_instruction=--think"])
    comparison = Comparison("x.yaml", arms, (3,), tmp_path, ("--learning_rate", "1e-3"))
    (_, _, run), *_ = comparison.runs()
    words = comparison.command(arms[0], 3, run)
    assert words[words.index("--seed") + 1] == "3"
    assert words[-4:] == [
        "--learning_rate",
        "1e-3",
        "--learning_rate=2e-3",
        "--format_instruction=--think",
    ]


def test_arms_alone_are_listed_or_beside_rules(tmp_path: Path) -> None:
    own = ["--arm", "a:learning_rate=2e-3", "--arm", "b", "--dry_run"]
    assert [line.split("/")[-1] for line in compare(tmp_path, *own).stdout.splitlines()] == [
        "a-seed1  to do",
        "b-seed1  to do",
    ]
    beside = compare(tmp_path, *own, "--rules", "none", "--only", "none,b")
    assert [line.split("/")[-1] for line in beside.stdout.splitlines()] == [
        "none-seed1  to do",
        "b-seed1  to do",
    ]
    assert not (tmp_path / "runs").exists()


def test_the_others_are_compared_with_the_first(tmp_path: Path) -> None:
    finish(tmp_path, "pruned", "differential", 100.0)
    finish(tmp_path, "also", "none", 50.0)
    result = compare(tmp_path, "--arm", "pruned", "--arm", "also:prune_rule=none")
    assert result.exit_code == 0, result.output
    noted = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert noted["against"] == "pruned"
    assert noted["arms"] == {
        "pruned": {"prune_rule": "differential"},
        "also": {"prune_rule": "none"},
    }
    assert "prune_rule" not in noted["fields"]
    assert noted["fields"]["num_generations"] == 8
    table = (tmp_path / "runs" / "report.md").read_text()
    assert "| arm | training seconds | faster than pruned |" in table
    assert "| also | 50.0 | 2.00x (one seed) |" in table


def test_a_changed_arm_is_refused_and_a_further_one_joins(tmp_path: Path) -> None:
    for arm in ("a", "b"):
        finish(tmp_path, arm, "none", 1.0)
    first = ["--arm", "a:prune_rule=none,learning_rate=2e-3"]
    assert compare(tmp_path, *first).exit_code == 0
    assert compare(tmp_path, *first, "--arm", "b:weighting=kept").exit_code == 0
    # Written otherwise, the same value.
    assert compare(tmp_path, "--arm", "a:learning_rate=0.002,prune_rule=none").exit_code == 0
    result = compare(tmp_path, "--arm", "a:prune_rule=none", "--arm", "b:weighting=exact")
    assert result.exit_code == 2
    assert "arm a: learning_rate = None, its runs have 0.002" in result.stderr
    assert "arm b: weighting = 'exact', its runs have 'kept'" in result.stderr


def test_a_part_without_the_first_arm_has_a_report_too(tmp_path: Path) -> None:
    finish(tmp_path, "b", "none", 50.0)
    words = ["--arm", "a:prune_rule=none", "--arm", "b:prune_rule=none", "--only", "b"]
    result = compare(tmp_path, *words)
    assert result.exit_code == 0, result.output
    told = (tmp_path / "runs" / "report.md").read_text()
    assert "- a, which the others are to be compared with, has no run yet." in told
    assert json.loads((tmp_path / "runs" / "comparison.json").read_text())["against"] == "a"


def test_a_further_arm_leaves_what_the_others_are_compared_with(tmp_path: Path) -> None:
    for arm, seconds in (("a", 100.0), ("b", 50.0), ("c", 25.0)):
        finish(tmp_path, arm, "none", seconds)
    own = {name: ["--arm", f"{name}:prune_rule=none"] for name in "abc"}
    assert compare(tmp_path, *own["a"], *own["b"]).exit_code == 0
    assert compare(tmp_path, *own["c"]).exit_code == 0
    noted = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert noted["against"] == "a"
    assert set(noted["arms"]) == {"a", "b", "c"}
    assert "| c | 25.0 | 4.00x (one seed) |" in (tmp_path / "runs" / "report.md").read_text()


def test_arms_beside_rules_that_came_first_are_compared_with_plain(tmp_path: Path) -> None:
    for arm, seconds in (("none", 100.0), ("c", 25.0)):
        finish(tmp_path, arm, "none", seconds)
    assert compare(tmp_path, "--rules", "none", "--only", "none").exit_code == 0
    assert compare(tmp_path, "--arm", "c:prune_rule=none").exit_code == 0
    noted = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert noted["against"] is None


def test_a_word_for_all_that_only_rules_set_is_allowed_with_arms_alone(tmp_path: Path) -> None:
    words = ["--arm", "a", "--arm", "b:weighting=kept", "--dry_run", "--weighting", "exact"]
    assert compare(tmp_path, *words).exit_code == 0
    result = compare(tmp_path, *words, "--rules", "none", "--seed", "3")
    assert result.exit_code == 2
    assert "--weighting, --seed: set by the arms and seeds" in result.stderr
