import copy
import sys
import warnings
from typing import Any

import hydra
import pytest
import ray
from omegaconf import DictConfig, OmegaConf

from fastrl.verl.__main__ import main
from fastrl.verl.config import SETTINGS
from fastrl.verl.launching import launch
from fastrl.verl.refusals import check_run

ORDINARY = [
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
]


@pytest.fixture(scope="module")
def ordinary() -> DictConfig:
    """verl's own configuration, as its command line makes it."""
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", ORDINARY)


def changed(ordinary: DictConfig, *overrides: str) -> DictConfig:
    config = copy.deepcopy(ordinary)
    OmegaConf.set_struct(config, False)
    return OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides)))


def refused(ordinary: DictConfig, *overrides: str) -> str:
    with pytest.raises(ValueError, match="FastRL cannot run this") as caught:
        check_run(changed(ordinary, *overrides))
    return str(caught.value)


def test_an_ordinary_run_is_accepted(ordinary: DictConfig) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = check_run(changed(ordinary, "trainer.fastrl.prune_rule=random"))
    assert settings.prune_rule == "random"


def test_everything_is_refused_in_one_list(ordinary: DictConfig) -> None:
    told = refused(
        ordinary,
        "algorithm.adv_estimator=gae",
        "algorithm.use_kl_in_reward=True",
        "critic.enable=True",
        "trainer.use_v1=False",
        "trainer.v1.trainer_mode=separate_async",
        "actor_rollout_ref.rollout.n=1",
        "actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov",
        "trainer.fastrl.similarity=0.1",
    )
    assert "8 problem(s)" in told
    for name in (
        "algorithm.adv_estimator = 'gae'",
        "algorithm.use_kl_in_reward = True",
        "critic.enable = True",
        "trainer.use_v1 = False",
        "trainer.v1.trainer_mode = 'separate_async'",
        "actor_rollout_ref.rollout.n = 1",
        "loss_mode = 'clip_cov'",
        "similarity = 0.1: there is no such setting",
    ):
        assert name in told


@pytest.mark.parametrize(
    "estimator",
    ["remax", "optimal_token_baseline", "tir_optimal_token_baseline", "reinforce_plus_plus", "x"],
)
def test_estimators_that_need_more_than_group_rewards(ordinary: DictConfig, estimator: str) -> None:
    told = refused(ordinary, f"algorithm.adv_estimator={estimator}")
    assert "1 problem(s)" in told
    assert f"algorithm.adv_estimator = '{estimator}'" in told


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov", "loss_mode = 'kl_cov'"),
        ("actor_rollout_ref.actor.strategy=megatron", "strategy = 'megatron'"),
        (
            "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            "loss_scale_factor = None",
        ),
        ("distillation.enabled=True", "distillation.enabled = True"),
        ("algorithm.rollout_correction.rollout_rs=token_k1", "rollout_rs = 'token_k1'"),
        ("algorithm.rollout_correction.bypass_mode=True", "bypass_mode = True"),
        (
            "algorithm.rollout_correction.rollout_is_batch_normalize=True",
            "rollout_is_batch_normalize = True",
        ),
    ],
)
def test_what_only_exact_refuses(ordinary: DictConfig, override: str, field: str) -> None:
    assert field in refused(ordinary, override)
    check_run(changed(ordinary, override, "trainer.fastrl.weighting=kept"))
    check_run(changed(ordinary, override, "trainer.fastrl.prune_rule=none"))


def test_exact_takes_the_norm_of_dr_grpo_when_it_is_constant(ordinary: DictConfig) -> None:
    check_run(
        changed(
            ordinary,
            "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            "actor_rollout_ref.actor.loss_scale_factor=1024",
        )
    )


def test_micro_batch_sizes_of_all_ranks_are_refused(ordinary: DictConfig) -> None:
    told = refused(
        ordinary,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null",
        "actor_rollout_ref.actor.ppo_micro_batch_size=8",
    )
    assert "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = None" in told


def test_fewer_rollouts_than_the_floor(ordinary: DictConfig) -> None:
    assert "min_generations = 9" in refused(ordinary, "trainer.fastrl.min_generations=9")


def test_the_prefix_grouper_is_warned_about(ordinary: DictConfig) -> None:
    with pytest.warns(UserWarning, match="use_prefix_grouper = True has no effect"):
        check_run(changed(ordinary, "actor_rollout_ref.actor.use_prefix_grouper=True"))


@pytest.mark.parametrize("given", [True, ["differential"]])
def test_something_else_than_settings(ordinary: DictConfig, given: Any) -> None:
    config = changed(ordinary)
    OmegaConf.update(config, "trainer.fastrl", given, force_add=True)
    with pytest.raises(ValueError, match=r"trainer\.fastrl: expected keys such as"):
        check_run(config)


def test_nothing_is_started_for_a_run_that_is_refused(ordinary: DictConfig) -> None:
    with pytest.raises(ValueError, match="estimator = 'gae'"):
        launch(changed(ordinary, "algorithm.adv_estimator=gae"))
    assert not ray.is_initialized()


def test_help_names_every_setting_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fastrl.verl", "--help"])
    main()
    told = capsys.readouterr().out
    for name in SETTINGS:
        assert f"+trainer.fastrl.{name}=" in told
    assert "verl.trainer.main_ppo" in told
    assert not ray.is_initialized()
