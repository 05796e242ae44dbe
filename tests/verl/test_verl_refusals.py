import copy
import inspect
import sys
import warnings
from typing import Any

import hydra
import pytest
import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls
from verl.workers.engine_workers import ActorRolloutRefWorker

from fastrl.verl.__main__ import main
from fastrl.verl.batching import BatchShape
from fastrl.verl.config import SETTINGS
from fastrl.verl.launching import launch
from fastrl.verl.refusals import check_run
from fastrl.verl.trainer import batch_shape

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


@pytest.mark.parametrize("rule", ["differential", "none"])
@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("actor_rollout_ref.actor", "ppo_micro_batch_size"),
        ("actor_rollout_ref.rollout", "log_prob_micro_batch_size"),
    ],
)
def test_micro_batch_sizes_of_all_ranks_are_refused(
    ordinary: DictConfig, rule: str, section: str, name: str
) -> None:
    told = refused(
        ordinary,
        f"trainer.fastrl.prune_rule={rule}",
        f"{section}.{name}_per_gpu=null",
        f"{section}.{name}=8",
    )
    assert "1 problem(s)" in told
    assert f"{section}.{name}_per_gpu = None" in told


def test_actor_and_rollout_must_both_be_dynamic_or_neither(ordinary: DictConfig) -> None:
    # verl asserts it in its workers, whether or not sizes are given.
    worker = inspect.getsource(ActorRolloutRefWorker.init_model)
    assert (
        "assert self.config.actor.use_dynamic_bsz == self.config.rollout.log_prob_use_dyn" in worker
    )
    told = refused(
        ordinary,
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False",
    )
    assert "1 problem(s)" in told
    assert "rollout.log_prob_use_dynamic_bsz = False: verl's workers need" in told
    without_size = refused(
        ordinary,
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=null",
    )
    assert "rollout.log_prob_micro_batch_size_per_gpu = None" in without_size
    assert "log_prob_use_dynamic_bsz = True: verl's workers need" in refused(
        ordinary, "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True"
    )


def test_the_reference_model_has_a_flag_of_its_own(ordinary: DictConfig) -> None:
    kl = "actor_rollout_ref.actor.use_kl_loss=True"
    sizeless = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=null"
    dynamic = "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True"
    config = changed(ordinary, kl, sizeless, dynamic)
    check_run(config)
    assert batch_shape(config) == BatchShape(256, 4, (4,))
    everything_but = changed(
        ordinary,
        kl,
        sizeless,
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=False",
    )
    with pytest.raises(ValueError, match=r"ref\.log_prob_micro_batch_size_per_gpu = None"):
        check_run(everything_but)
    # Without KL there is no reference model.
    check_run(changed(ordinary, sizeless))


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_micro_batches_of_no_whole_number(ordinary: DictConfig, size: Any) -> None:
    told = refused(ordinary, f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={size}")
    assert f"ppo_micro_batch_size_per_gpu = {size}" in told


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_asynchronous_modes_are_refused_with_the_reason(ordinary: DictConfig, mode: str) -> None:
    told = refused(ordinary, f"trainer.v1.trainer_mode={mode}")
    assert "1 problem(s)" in told
    assert f"trainer.v1.trainer_mode = '{mode}': prompts are submitted ahead of their step" in told
    assert "set it to 'sync'" in told
    # The reason: a batch of prompts goes out before the first step takes one.
    trainer = get_trainer_cls(mode)
    assert "self._add_async_warmup_batches(" in inspect.getsource(trainer.on_train_begin)
    assert "_add_async_warmup_batches" not in inspect.getsource(PPOTrainerSync.on_train_begin)


def test_adaptive_rollouts_without_pruning_are_warned_about(ordinary: DictConfig) -> None:
    idle = changed(
        ordinary, "trainer.fastrl.prune_rule=none", "trainer.fastrl.adaptive_rollouts=True"
    )
    with pytest.warns(UserWarning, match="adaptive_rollouts = True has no effect: prune_rule"):
        check_run(idle)


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
