from pathlib import Path

import pytest

from fastrl.recipes import shipped_recipes
from fastrl.runs.recipe import RecipeError, build_arguments, load_recipe, parse_overrides


def test_overrides_in_every_form() -> None:
    words = ["--max_steps", "5", "--loss_type=dapo", "--log_completions", "--beta", "-0.5"]
    assert parse_overrides(words) == {
        "max_steps": "5",
        "loss_type": "dapo",
        "log_completions": "true",
        "beta": "-0.5",
    }


def test_a_word_without_a_field_is_an_error() -> None:
    with pytest.raises(RecipeError, match="'7' belongs to no field"):
        parse_overrides(["--max_steps", "5", "7"])


def test_every_problem_is_listed_at_once_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError) as caught:
        build_arguments({"num_generation": 8, "learning_rate": "fast"}, {"beta": "x"}, "out")
    message = str(caught.value)
    assert "--num_generation: no such field (did you mean 'num_generations'?)" in message
    assert "learning_rate" in message
    assert "'fast'" in message
    assert "beta" in message


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_builds(name: str, tmp_path: Path) -> None:
    _, content = load_recipe(name)
    run, config = build_arguments(content, {}, str(tmp_path))
    assert run.dataset == content["dataset"]
    assert config.num_generations == content["num_generations"]
    assert config.output_dir == str(tmp_path)
    assert config.logging_steps == 1


def test_what_the_run_and_fastrl_refuse_is_told_together(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    overrides = {"eval_pictures": "-1", "similarity_threshold": "3"}
    with pytest.raises(RecipeError, match=r"eval_pictures = -1.*similarity_threshold = 3"):
        build_arguments(content, overrides, str(tmp_path))


def test_a_list_for_one_value_and_another_logging_are_told(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    with pytest.raises(RecipeError) as caught:
        build_arguments(content | {"learning_rate": [1, 2], "logging_steps": 5}, {}, str(tmp_path))
    assert "--learning_rate: [1, 2]: expected one value" in str(caught.value)
    assert "--logging_steps: a run folder logs every step" in str(caught.value)


def test_the_config_of_a_run_is_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("recipe: toy_geometry\nmax_steps: 3\n")
    assert load_recipe(str(path)) == ("config", {"max_steps": 3})


def test_overrides_win_and_keep_their_types(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    overrides = {
        "prune_rule": "none",
        "learning_rate": "1e-5",
        "adaptive_rollouts": "false",
        "eval_pictures": "0",
        "output_dir": str(tmp_path / "here"),
    }
    run, config = build_arguments(content, overrides, "elsewhere")
    assert config.prune_rule == "none"
    assert config.learning_rate == 1e-5
    assert config.adaptive_rollouts is False
    assert run.eval_pictures == 0
    assert config.output_dir == str(tmp_path / "here")


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean 'toy_geometry'"):
        load_recipe("toy_geomtry")


@pytest.mark.parametrize(
    ("text", "message"), [("- a\n- b\n", "expected fields"), ("a: [", "not valid YAML")]
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(str(path))
    assert str(path) in str(caught.value)


def test_settings_that_do_not_fit_are_refused_together(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    overrides = {"prune_rule": "best", "keep_fraction": "2"}
    with pytest.raises(ValueError, match=r"prune_rule = 'best'.*keep_fraction = 2"):
        build_arguments(content, overrides, str(tmp_path))
