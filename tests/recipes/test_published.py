"""The values of the shipped recipes: those of the publication, and what was chosen for one GPU."""

from __future__ import annotations

from typing import Any

import pytest
from recipe_runs import OWN_RECIPES, SHORT_NAMES

from fastrl.recipes import shipped_recipes
from fastrl.recipes.reading import read_recipe
from fastrl.runs.arguments import RunArguments
from fastrl.runs.recipe import build_arguments
from fastrl.trl import FastGRPOConfig

DATA = {
    "geometry3k": {"num_train_epochs": 25, "max_completion_length": 2048},
    "geoqa8k": {"num_train_epochs": 15, "max_completion_length": 4096},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.01,
        "use_bias_correction_kl": False,
        "epsilon": 0.2,
        "epsilon_high": None,
    },
    "dapo": {
        "loss_type": "dapo",
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "dynamic_sampling": True,
        "contrast": "accuracy_reward",
    },
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "beta": 0.0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
}
PUBLISHED = [f"{data}_{algorithm}" for data in DATA for algorithm in ALGORITHMS]


def arguments(name: str) -> tuple[RunArguments, FastGRPOConfig]:
    """A recipe's arguments, on whatever machine this is."""
    return build_arguments(read_recipe(name).fields, {}, "out", elsewhere=[])


def differing(config: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config that are not as expected."""
    return {
        name: getattr(config, name)
        for name, value in expected.items()
        if getattr(config, name) != value
    }


def test_a_recipe_for_every_data_set_and_algorithm() -> None:
    assert {*PUBLISHED, *(f"{name}_lora" for name in PUBLISHED)} == {
        name for name in shipped_recipes() if name not in (*OWN_RECIPES, *SHORT_NAMES)
    }


@pytest.mark.parametrize(("name", "full_name"), SHORT_NAMES.items())
def test_a_short_name_is_the_published_grpo_run(name: str, full_name: str) -> None:
    assert name in shipped_recipes()
    short, full = read_recipe(name), read_recipe(full_name)
    assert short.fields == full.fields
    assert (short.launch, short.processes) == (full.launch, 8)
    assert short.about != full.about
    run, config = arguments(name)
    full_run, full_config = arguments(full_name)
    assert run == full_run
    # Dates stand in the names of log folders.
    own = {"logging_dir", "run_name"}
    values, full_values = config.to_dict(), full_config.to_dict()
    assert {k for k in full_values if values[k] != full_values[k]} <= own


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_settings(name: str) -> None:
    data, algorithm = name.split("_")
    run, config = arguments(name)
    assert (run.dataset, run.model) == (data, "Qwen/Qwen2.5-VL-7B-Instruct")
    assert (run.min_pixels, run.max_pixels, run.max_prompt_length) == (262144, 4194304, 2048)
    assert (run.accuracy_weight, run.format_weight) == (1.0, 0.5)
    assert (run.lora_r, run.skip_long, run.skip_broken) == (None, True, True)
    assert differing(config, DATA[data] | ALGORITHMS[algorithm]) == {}
    shared = {
        "learning_rate": 1e-6,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "temperature": 1.0,
        "num_generations": 8,
        "prune_rule": "differential",
        "similarity_threshold": 0.2,
        "weighting": "kept",
        "adaptive_rollouts": True,
    }
    assert differing(config, shared) == {}


@pytest.mark.parametrize("devices", [4, 8])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_generation_batch_is_256_prompts_in_4_updates(name: str, devices: int) -> None:
    recipe = read_recipe(name)
    assert recipe.processes == 8
    # docs/recipes.md: half the devices, twice the micro-batches.
    more = 8 // devices
    accumulation = recipe.fields["gradient_accumulation_steps"] * more
    steps = recipe.fields["steps_per_generation"] * more
    rows = devices * recipe.fields["per_device_train_batch_size"]
    assert rows * steps == 256 * 8
    assert steps == 4 * accumulation


@pytest.mark.parametrize("name", PUBLISHED)
def test_on_one_gpu_the_algorithm_and_the_data_are_the_same(name: str) -> None:
    data, algorithm = name.split("_")
    recipe = read_recipe(f"{name}_lora")
    assert recipe.processes == 1
    run, config = arguments(f"{name}_lora")
    assert (run.dataset, run.model) == (data, "Qwen/Qwen2.5-VL-3B-Instruct")
    assert (run.min_pixels, run.max_pixels, run.max_prompt_length) == (262144, 4194304, 2048)
    assert (run.lora_r, run.lora_alpha, run.lora_dropout) == (32, 64, 0.0)
    length = DATA[data]["max_completion_length"]
    expected = ALGORITHMS[algorithm] | {
        "max_completion_length": length,
        "vllm_max_model_length": 2048 + length,
        "num_train_epochs": 5,
        "weighting": FastGRPOConfig.weighting,
        "adaptive_rollouts": FastGRPOConfig.adaptive_rollouts,
        "dynamic_sampling": algorithm == "dapo",
        "drop_uninformative": False,
    }
    assert differing(config, expected) == {}
    assert config.per_device_train_batch_size * config.steps_per_generation == 64 * 8
    assert config.steps_per_generation == 4 * config.gradient_accumulation_steps


def test_dapo_on_several_processes_is_not_launched_with_deepspeed() -> None:
    for data in DATA:
        recipe = read_recipe(f"{data}_dapo")
        # DeepSpeed's engine cannot skip an update that is left without rows.
        assert recipe.launch is not None
        assert recipe.launch.stem == "fsdp_8gpu"
