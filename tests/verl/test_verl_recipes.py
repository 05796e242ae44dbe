"""The launch scripts for verl: each resolves against verl's own configuration, 8 and 32 GPUs."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
import verl  # noqa: F401  first: verl loads its own parts in its own order
from omegaconf import DictConfig, OmegaConf
from typer.testing import CliRunner
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from fastrl.cli import app
from fastrl.recipes import shipped_recipes, verl_recipes
from fastrl.verl.refusals import check_run
from fastrl.verl.trainer import batch_shape

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SHARED: dict[str, Any] = {
    "data.train_batch_size": 256,
    f"{ROLLOUT}.n": 8,
    f"{ACTOR}.ppo_mini_batch_size": 256 // 4,
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.optim.lr_scheduler_type": "constant",
    f"{ACTOR}.optim.weight_decay": 0.01,
    f"{ACTOR}.optim.clip_grad": 1.0,
    f"{ACTOR}.entropy_coeff": 0,
    f"{ROLLOUT}.temperature": 1.0,
    f"{ROLLOUT}.top_p": 1.0,
    f"{ROLLOUT}.top_k": -1,
    f"{ROLLOUT}.val_kwargs.temperature": 0.6,
    f"{ROLLOUT}.val_kwargs.top_p": 0.95,
    f"{ROLLOUT}.val_kwargs.do_sample": True,
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-7B-Instruct",
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    "data.max_prompt_length": 2048,
    "trainer.n_gpus_per_node": 8,
    "trainer.fastrl": {
        "prune_rule": "differential",
        "similarity_threshold": 0.2,
        "weighting": "kept",
        "adaptive_rollouts": True,
    },
}
DATA = {
    "geometry3k": {"data.max_response_length": 2048, "trainer.total_epochs": 25},
    "geoqa8k": {"data.max_response_length": 4096, "trainer.total_epochs": 15},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {
        f"{ACTOR}.policy_loss.loss_mode": "vanilla",
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.2,
        f"{ACTOR}.use_kl_loss": True,
        f"{ACTOR}.kl_loss_coef": 0.01,
        f"{ACTOR}.kl_loss_type": "low_var_kl",
        "algorithm.filter_groups.enable": False,
    },
    "dapo": {
        f"{ACTOR}.policy_loss.loss_mode": "vanilla",
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.use_kl_loss": False,
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.metric": "acc",
    },
    "gspo": {
        f"{ACTOR}.policy_loss.loss_mode": "gspo",
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{ACTOR}.clip_ratio_low": 3e-4,
        f"{ACTOR}.clip_ratio_high": 4e-4,
        f"{ACTOR}.use_kl_loss": False,
        "algorithm.filter_groups.enable": False,
    },
}
NAMES = [f"{data}_{algorithm}" for data in DATA for algorithm in ALGORITHMS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose name wants quoting, and a `python` that tells what it was given."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "my data=1").mkdir()
    for name in ("train", "test"):
        (folder / "my data=1" / f"{name}.parquet").touch()
    (folder / "python").write_text('#!/usr/bin/env bash\nprintf "%s\\0" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


def run_script(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(verl_recipes()[name]), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )


@cache
def resolved(folder: Path, name: str, *words: str) -> DictConfig:
    """The whole configuration of a script's run, as verl composes it."""
    result = run_script(folder, name, "my data=1", *words)
    assert result.returncode == 0, result.stderr
    python, module, *overrides = result.stdout.rstrip("\0").split("\0")
    assert (python, module) == ("-m", "fastrl.verl")
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides)
    OmegaConf.resolve(config)
    return config


def differing(config: DictConfig, expected: dict[str, Any]) -> dict[str, Any]:
    found = {name: OmegaConf.select(config, name) for name in expected}
    return {name: value for name, value in found.items() if value != expected[name]}


def test_a_script_for_every_data_set_and_algorithm() -> None:
    assert sorted(verl_recipes()) == sorted(NAMES)
    # The names are those of TRL's recipes.
    assert set(NAMES) <= set(shipped_recipes())


@pytest.mark.parametrize("name", NAMES)
def test_the_published_settings(folder: Path, name: str) -> None:
    data, algorithm = name.split("_")
    config = resolved(folder, name)
    assert differing(config, SHARED | DATA[data] | ALGORITHMS[algorithm]) == {}
    assert config.data.train_files == str(folder / "my data=1" / "train.parquet")
    assert config.data.val_files == str(folder / "my data=1" / "test.parquet")
    assert config.trainer.experiment_name == name


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_verl_and_fastrl_accept_it(folder: Path, name: str, nodes: int) -> None:
    words = () if nodes == 1 else ("--nodes", str(nodes))
    config = resolved(folder, name, *words)
    assert config.trainer.nnodes == nodes
    assert config.ray_kwargs.ray_init.get("address") == (None if nodes == 1 else "auto")
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    assert need_critic(config) is False
    assert need_reference_policy(config) is name.endswith("grpo")
    settings = check_run(config)
    assert (settings.weighting, settings.adaptive_rollouts) == ("kept", True)
    assert omega_conf_to_dataclass(config.actor_rollout_ref.rollout).n == 8
    # The longest row fits a micro-batch; a pruned batch divides by GPUs x updates and no more.
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    shape = batch_shape(config)
    updates = shape.updates(256 * 8, 8)
    assert updates == 4
    assert shape.row_multiple(8 * nodes, updates) == 8 * nodes * 4


def test_the_reward_is_found_by_verl(folder: Path) -> None:
    reward = get_custom_reward_fn(resolved(folder, "geoqa8k_dapo"))
    assert reward is not None
    right = r"<thinking>4 + 5</thinking>\boxed{9}"
    given = {"data_source": "geoqa8k", "ground_truth": "9", "extra_info": {"index": 0}}
    parts = {"score": 1.5, "acc": 1.0, "format": 1.0, "undecided": 0.0}
    assert reward(solution_str=right, **given) == parts
    # What DAPO filters by does not see the format.
    assert reward(solution_str=r"\boxed{8}", **given)["acc"] == 0.0


def test_overrides_come_last(folder: Path) -> None:
    words = ("--nodes", "2", "trainer.total_epochs=1", "trainer.fastrl.weighting=exact")
    config = resolved(folder, "geometry3k_gspo", *words)
    assert (config.trainer.nnodes, config.trainer.total_epochs) == (2, 1)
    assert check_run(config).weighting == "exact"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "usage: geometry3k_grpo.sh DATA_DIR"),
        (("trainer.total_epochs=1",), "usage:"),
        (("nowhere",), "nowhere/train.parquet: no such file."),
        (("my data=1", "--nodes"), "--nodes N"),
    ],
)
def test_what_is_missing_is_told(folder: Path, words: tuple[str, ...], told: str) -> None:
    result = run_script(folder, "geometry3k_grpo", *words)
    assert result.returncode != 0
    assert told in result.stderr
    assert result.stdout == ""


def test_the_command_names_the_script() -> None:
    found = CliRunner().invoke(app, ["recipes", "--verl", "geometry3k_dapo"])
    assert Path(found.output.strip()) == verl_recipes()["geometry3k_dapo"]
    refused = CliRunner().invoke(app, ["recipes", "--verl", "geometry3k_dapi"])
    assert refused.exit_code == 2
    assert "did you mean 'geometry3k_dapo'?" in refused.output
