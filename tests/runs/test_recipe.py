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
    # Recipes for accelerators ask for bf16, which is refused where there is none.
    run, config = build_arguments(content, {"use_cpu": "true"}, str(tmp_path))
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


def test_a_recipe_starts_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "top.yaml").write_text("base: middle.yaml\nbeta: 0.1\nmax_steps: 7\n")
    (tmp_path / "middle.yaml").write_text("base: _deep.yaml\nbeta: 0.2\nseed: 3\nepsilon: null\n")
    (tmp_path / "_deep.yaml").write_text("beta: 0.3\nlearning_rate: 1.0e-6\nepsilon: 0.3\n")
    name, content = load_recipe(str(tmp_path / "top.yaml"))
    assert name == "top"
    assert content == {
        "beta": 0.1,
        "learning_rate": 1e-6,
        "epsilon": None,
        "seed": 3,
        "max_steps": 7,
    }
    # A null leaves the field to its default.
    _, config = build_arguments(content, {"use_cpu": "true"}, str(tmp_path))
    assert config.epsilon == 0.2


def test_a_recipe_of_ones_own_starts_from_a_shipped_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: geometry3k\nseed: 5\n")
    _, shipped = load_recipe("geometry3k")
    assert load_recipe(str(mine))[1] == {**shipped, "seed": 5}
    mine.write_text("base: _published.yaml\n")
    assert load_recipe(str(mine))[1]["num_generations"] == 8


def test_bases_are_no_recipes() -> None:
    assert "geometry3k" in shipped_recipes()
    assert "_published" not in shipped_recipes()
    with pytest.raises(RecipeError, match="not a shipped one"):
        load_recipe("_published")


def test_broken_bases_are_named(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("base: two.yaml\n")
    two.write_text("base: one.yaml\n")
    with pytest.raises(RecipeError, match=r"circle \(one.yaml -> two.yaml -> one.yaml\)"):
        load_recipe(str(one))
    two.write_text("base: none.yaml\n")
    with pytest.raises(RecipeError, match=r"one\.yaml: base: .*two\.yaml: base: .*no such file"):
        load_recipe(str(one))
    one.write_text("base: [a, b]\n")
    with pytest.raises(RecipeError, match="expected one name or path"):
        load_recipe(str(one))


def test_the_published_settings() -> None:
    """The figures of the publication, as far as a recipe holds them."""
    run, config = build_arguments(load_recipe("geometry3k")[1], {"use_cpu": "true"}, "out")
    assert (run.dataset, run.model) == ("geometry3k", "Qwen/Qwen2.5-VL-7B-Instruct")
    assert (run.min_pixels, run.max_pixels) == (262144, 4194304)
    assert (run.max_prompt_length, config.max_completion_length) == (2048, 2048)
    assert (run.accuracy_weight, run.format_weight) == (1.0, 0.5)
    devices = 8
    rows = devices * config.per_device_train_batch_size
    assert rows * config.steps_per_generation == 256 * config.num_generations == 256 * 8
    assert config.steps_per_generation // config.gradient_accumulation_steps == 4
    assert (config.learning_rate, config.weight_decay, config.max_grad_norm) == (1e-6, 0.01, 1.0)
    assert (config.temperature, config.beta, config.loss_type) == (1.0, 0.01, "grpo")
    assert config.num_train_epochs == 25
    assert (config.prune_rule, config.similarity_threshold) == ("differential", 0.2)
    assert (config.weighting, config.adaptive_rollouts) == ("kept", True)


def test_what_would_take_the_answers_away_is_refused(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    with pytest.raises(RecipeError, match="would take the answers from the rewards"):
        build_arguments(content, {"remove_unused_columns": "true"}, str(tmp_path))
