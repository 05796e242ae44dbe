"""The accelerate configurations, read by accelerate itself."""

from __future__ import annotations

import argparse

import pytest
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from typer.testing import CliRunner

from fastrl.cli import app
from fastrl.recipes import launch_configs, shipped_recipes

KINDS = {
    "zero3_8gpu": (DistributedType.DEEPSPEED, 8),
    "fsdp_8gpu": (DistributedType.FSDP, 8),
    "one_gpu": (DistributedType.NO, 1),
}


def load(name: str) -> ClusterConfig:
    return load_config_from_file(str(launch_configs()[name]))


def known_to_launch() -> argparse.Namespace:
    """Every setting that `accelerate launch` knows, with its default."""
    return launch_command_parser().parse_args(["script.py"])


def test_all_are_told_apart() -> None:
    assert set(launch_configs()) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_accelerate_reads_it(name: str) -> None:
    # Raises for a key that accelerate does not know.
    config = load(name)
    assert isinstance(config, ClusterConfig)
    assert (config.distributed_type, config.num_processes) == KINDS[name]
    assert config.mixed_precision == "bf16"
    assert config.use_cpu is False


@pytest.mark.parametrize("name", KINDS)
def test_every_deepspeed_and_fsdp_key_is_one_of_accelerate(name: str) -> None:
    config = load(name)
    keys = {**(config.deepspeed_config or {}), **(config.fsdp_config or {})}
    assert bool(keys) == (name != "one_gpu")
    known = known_to_launch()
    assert {key for key in keys if not hasattr(known, key)} == set()


def test_deepspeed_shards_weights_and_gathers_them_to_save() -> None:
    settings = load("zero3_8gpu").deepspeed_config
    assert settings["zero_stage"] == 3
    assert settings["zero3_save_16bit_model"] is True
    assert settings["offload_optimizer_device"] == settings["offload_param_device"] == "none"


def test_fsdp_saves_whole_weights() -> None:
    settings = load("fsdp_8gpu").fsdp_config
    assert settings["fsdp_version"] == 2
    assert settings["fsdp_state_dict_type"] == "FULL_STATE_DICT"


def test_the_command_lists_every_recipe_with_its_gpus() -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["recipes"])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:-2]}
    assert set(rows) == set(shipped_recipes())
    assert rows["toy_geometry"] == "none"
    assert rows["geometry3k_grpo"] == rows["geoqa8k_dapo"] == "8"
    assert rows["geometry3k_gspo_lora"] == "1"
    assert "GeoQA8K, GSPO, LoRA on Qwen2.5-VL-3B" in result.stdout


def test_the_command_finds_a_launch_configuration() -> None:
    def ask(name: str) -> str:
        result = CliRunner().invoke(app, ["recipes", "--accelerate", name])
        return result.stdout.strip() if result.exit_code == 0 else result.stderr

    assert ask("geometry3k_grpo") == str(launch_configs()["zero3_8gpu"])
    assert ask("geoqa8k_dapo") == str(launch_configs()["fsdp_8gpu"])
    assert "needs none: fastrl train toy_geometry" in ask("toy_geometry")
    assert "did you mean 'geoqa8k_gspo'" in ask("geoqa8k_gsp")
