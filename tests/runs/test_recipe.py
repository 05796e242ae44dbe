from pathlib import Path

import pytest

from fastrl.recipes import launch_configs, shipped_recipes
from fastrl.recipes.reading import read_recipe
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


@pytest.mark.parametrize("given", ["1.0,0.0", "1.0 0.0", "[1.0, 0.0]", [1.0, 0.0]])
def test_a_field_with_several_values(given: str | list[float]) -> None:
    fixed = {"use_cpu": True, "bf16": False}
    _, config = build_arguments(fixed, {"reward_weights": given}, "out")
    assert config.reward_weights == [1.0, 0.0]
    with pytest.raises(RecipeError, match=r"reward_weights.*'x'"):
        build_arguments(fixed, {"reward_weights": "1.0,x"}, "out")


def test_every_problem_is_listed_at_once_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError) as caught:
        build_arguments({"num_generation": 8, "learning_rate": "fast"}, {"beta": "x"}, "out")
    message = str(caught.value)
    assert "--num_generation: no such field (did you mean 'num_generations'?)" in message
    assert "learning_rate" in message
    assert "'fast'" in message
    assert "beta" in message


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("auto", "auto"), ("true", True), ("False", False), (True, True), (False, False)],
)
def test_true_and_false_beside_a_word(given: str | bool, wanted: str | bool) -> None:
    """As on a command line, and as in a YAML file."""
    fixed = {"use_cpu": True, "bf16": False}
    _, config = build_arguments({**fixed, "shared_prefix": given}, {}, "out")
    assert config.shared_prefix is wanted or config.shared_prefix == wanted == "auto"
    with pytest.raises(RecipeError, match="shared_prefix"):
        build_arguments(fixed, {"shared_prefix": "odd"}, "out")


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_builds(name: str, tmp_path: Path) -> None:
    _, content = load_recipe(name)
    # Recipes for accelerators ask for bf16 and vLLM, which a machine without one lacks.
    run, config = build_arguments(content, {}, str(tmp_path), elsewhere=[])
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
    mine.write_text("base: geometry3k_grpo\nseed: 5\n")
    _, shipped = load_recipe("geometry3k_grpo")
    assert load_recipe(str(mine))[1] == {**shipped, "seed": 5}
    mine.write_text("base: _published.yaml\n")
    assert load_recipe(str(mine))[1]["num_generations"] == 8


def test_bases_are_no_recipes() -> None:
    assert "geometry3k_grpo" in shipped_recipes()
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
    one.write_text("base: {a: b}\n")
    with pytest.raises(RecipeError, match="expected a name or path, or a list of them"):
        load_recipe(str(one))


def test_of_several_bases_the_later_wins(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("about: one\nbeta: 0.1\nepsilon: 0.1\nmax_steps: 1\n")
    (tmp_path / "two.yaml").write_text("base: deep.yaml\nbeta: 0.2\nepsilon: 0.2\n")
    (tmp_path / "deep.yaml").write_text("about: deep\nbeta: 0.3\nmax_steps: 3\n")
    path = tmp_path / "top.yaml"
    path.write_text("base: [one.yaml, two.yaml]\naccelerate: one_gpu\nepsilon: 0.5\n")
    recipe = read_recipe(str(path))
    assert recipe.fields == {"beta": 0.2, "epsilon": 0.5, "max_steps": 3}
    # What a base says of itself is not said of the recipe.
    assert (recipe.name, recipe.about) == ("top", "")
    assert recipe.launch == launch_configs()["one_gpu"]
    assert recipe.processes == 1
    path.write_text("accelerate: two_gpu\n")
    with pytest.raises(RecipeError, match=r"'two_gpu'.*did you mean 'one_gpu'"):
        read_recipe(str(path))


def test_what_would_take_the_answers_away_is_refused(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    with pytest.raises(RecipeError, match="would take the answers from the rewards"):
        build_arguments(content, {"remove_unused_columns": "true"}, str(tmp_path))


def test_what_this_machine_lacks_is_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrl.runs.machine.is_torch_bf16_gpu_available", lambda: False)
    monkeypatch.setattr("fastrl.runs.machine.find_spec", lambda name: None)
    _, content = load_recipe("geometry3k_grpo_lora")
    with pytest.raises(RecipeError, match="This machine: ") as caught:
        build_arguments(content, {}, str(tmp_path))
    message = str(caught.value)
    assert "bf16 = True: no accelerator with bf16 here" in message
    assert "use_vllm = True: vLLM is not installed; pip install 'trl[vllm]'" in message
    assert "lora_r = 32: PEFT is not installed; pip install 'fastrl-grpo[lora]'" in message
    # To look at, it is built all the same, as it would be where all is there.
    lacking: list[str] = []
    run, config = build_arguments(content, {}, str(tmp_path), lacking)
    assert len(lacking) == 3
    assert (config.bf16, config.use_cpu, config.use_vllm, run.lora_r) == (True, False, True, 32)


def test_bf16_is_asked_for_where_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrl.runs.machine.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(RecipeError, match="bf16 = True: no accelerator"):
        build_arguments({}, {}, str(tmp_path))
    lacking: list[str] = []
    build_arguments({}, {"bf16": "false"}, str(tmp_path), lacking)
    build_arguments({}, {"use_cpu": "true"}, str(tmp_path), lacking)
    assert lacking == []


def test_adapter_settings_that_cannot_be_used_are_told_together(tmp_path: Path) -> None:
    _, content = load_recipe("toy_geometry")
    overrides = {"lora_r": 0, "lora_alpha": 0, "lora_dropout": 1.0}
    with pytest.raises(RecipeError) as caught:
        build_arguments(content, overrides, str(tmp_path))
    message = str(caught.value)
    for told in (
        "lora_r = 0: expected at least 1",
        "lora_alpha = 0: expected at least 1",
        "lora_dropout = 1.0: expected at least 0, below 1",
    ):
        assert told in message
