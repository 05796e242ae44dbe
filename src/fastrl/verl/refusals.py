"""What FastRL refuses in a verl run before any worker starts, all of it at once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fastrl.core.validation import is_int, raise_problems
from fastrl.verl.config import FastRLSettings, read_settings

TRAINER_MODE = "fastrl"
SYNC_MODES = ("sync", TRAINER_MODE)
# Advantages from the rewards of the whole group and nothing else: known before any log-prob.
GROUP_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "opo",
    "reinforce_plus_plus_baseline",
    "gpg",
)
REFUSED_ESTIMATORS = {
    "gae": "it needs a critic's values before anything can be pruned",
    "remax": "its baseline is a greedy rollout, not the group",
    "optimal_token_baseline": "it needs log-probs before anything can be pruned",
    "tir_optimal_token_baseline": "it needs log-probs before anything can be pruned",
    "reinforce_plus_plus": "its advantages differ from token to token, and it has no groups",
}
# Losses whose rows do not look at one another, so that a row's weight acts on its gradient alone;
# each is proven in tests/verl/test_verl_weighting.py.
PROVEN_LOSSES = ("vanilla", "gspo", "sapo", "cispo", "dppo_tv", "dppo_kl", "gpg")
PROVEN_STRATEGIES = ("fsdp", "fsdp2")


def check_run(config: DictConfig) -> FastRLSettings:
    """The settings of a run that FastRL can prune; warns of what verl ignores.

    Args:
        config: verl's whole configuration.

    Raises:
        ValueError: lists everything that is wrong or cannot work: field, value, remedy.
    """
    settings, found = settings_of(config)
    problems = [f"trainer.fastrl: {problem}" for problem in found]
    problems += run_problems(config, settings)
    raise_problems("FastRL cannot run this", problems)
    for told in run_warnings(config, settings):
        warnings.warn(told, stacklevel=2)
    return settings


def settings_of(config: DictConfig) -> tuple[FastRLSettings, list[str]]:
    """The settings under `trainer.fastrl`, and every problem with them."""
    given = OmegaConf.select(config, "trainer.fastrl")
    if isinstance(given, DictConfig):
        given = OmegaConf.to_container(given, resolve=True)
    return read_settings(given)


def run_warnings(config: DictConfig, settings: FastRLSettings) -> list[str]:
    """What is asked for and has no effect."""
    told = []
    if settings.adaptive_rollouts and not settings.prunes:
        # No error: the baseline of a comparison is a recipe with another prune_rule.
        told.append(
            "trainer.fastrl.adaptive_rollouts = True has no effect: prune_rule = 'none' keeps "
            "every rollout"
        )
    if _get(config, "actor_rollout_ref.actor.use_prefix_grouper"):
        told.append(
            "actor_rollout_ref.actor.use_prefix_grouper = True has no effect: verl's v1 trainer "
            "ignores it"
        )
    return told


def run_problems(config: DictConfig, settings: FastRLSettings) -> list[str]:
    """Everything in verl's own configuration that pruning cannot work with."""
    problems = _trainer_problems(config) + _advantage_problems(config)
    num_generations = _get(config, "actor_rollout_ref.rollout.n")
    if not is_int(num_generations) or num_generations < 2:
        problems.append(
            f"actor_rollout_ref.rollout.n = {num_generations!r}: a group needs at least 2 rollouts"
        )
    elif is_int(settings.min_generations) and settings.min_generations > num_generations:
        problems.append(
            f"trainer.fastrl.min_generations = {settings.min_generations}: more than "
            f"actor_rollout_ref.rollout.n = {num_generations}"
        )
    problems += _micro_batch_problems(config)
    if settings.prunes and settings.weighting == "exact":
        problems += _exact_problems(config)
    return problems


def _get(config: DictConfig, name: str) -> Any:
    return OmegaConf.select(config, name)


def _trainer_problems(config: DictConfig) -> list[str]:
    problems = []
    if not _get(config, "trainer.use_v1"):
        problems.append("trainer.use_v1 = False: FastRL extends the v1 trainer; leave it at True")
    mode = _get(config, "trainer.v1.trainer_mode")
    if mode not in SYNC_MODES:
        problems.append(
            f"trainer.v1.trainer_mode = {mode!r}: prompts are submitted ahead of their step, so "
            "after rollouts per prompt have shrunk a batch would hold groups of several sizes; "
            "set it to 'sync'"
        )
    return problems


def _advantage_problems(config: DictConfig) -> list[str]:
    problems = []
    estimator = _get(config, "algorithm.adv_estimator")
    if estimator not in GROUP_ESTIMATORS:
        why = REFUSED_ESTIMATORS.get(str(estimator), "not known to depend on rewards alone")
        problems.append(
            f"algorithm.adv_estimator = {estimator!r}: {why}; use one of "
            f"{', '.join(GROUP_ESTIMATORS)}"
        )
    if _get(config, "critic.enable"):
        problems.append(
            "critic.enable = True: values would be needed before pruning; use a group estimator "
            "without a critic"
        )
    if _get(config, "algorithm.use_kl_in_reward"):
        problems.append(
            "algorithm.use_kl_in_reward = True: the reward would need log-probs before pruning; "
            "use the KL loss (actor_rollout_ref.actor.use_kl_loss=True)"
        )
    return problems


def _micro_batch_problems(config: DictConfig) -> list[str]:
    """Sizes that verl's workers need, each where its own section is not dynamic.

    The old names are totals of all ranks, of which no worker takes a share.
    """
    actor, rollout, ref = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
    dynamic_of = {
        f"{actor}.ppo_micro_batch_size_per_gpu": f"{actor}.use_dynamic_bsz",
        f"{rollout}.log_prob_micro_batch_size_per_gpu": f"{rollout}.log_prob_use_dynamic_bsz",
    }
    flags = {flag: bool(_get(config, flag)) for flag in dynamic_of.values()}
    if _get(config, f"{actor}.use_kl_loss"):
        size = f"{ref}.log_prob_micro_batch_size_per_gpu"
        dynamic_of[size] = f"{ref}.log_prob_use_dynamic_bsz"
    problems = [
        f"{size} = {_get(config, size)!r}: set it to a whole number, or {flag}=True"
        for size, flag in dynamic_of.items()
        if not _get(config, flag) and not _is_count(_get(config, size))
    ]
    if len(set(flags.values())) > 1:
        told, wanted = (f"{flag} = {flags[flag]}" for flag in reversed(flags))
        problems.append(f"{told}: verl's workers need the same as {wanted}; leave it out")
    return problems


def _is_count(value: Any) -> bool:
    return is_int(value) and value >= 1


def _exact_problems(config: DictConfig) -> list[str]:
    """What weighting 'exact' is not proven for."""
    remedy = "use trainer.fastrl.weighting=kept"
    problems = []
    loss = _get(config, "actor_rollout_ref.actor.policy_loss.loss_mode")
    if loss not in PROVEN_LOSSES:
        problems.append(
            f"actor_rollout_ref.actor.policy_loss.loss_mode = {loss!r}: weighting 'exact' is "
            f"proven for {', '.join(PROVEN_LOSSES)}; {remedy}"
        )
    strategy = _get(config, "actor_rollout_ref.actor.strategy")
    if strategy not in PROVEN_STRATEGIES:
        problems.append(
            f"actor_rollout_ref.actor.strategy = {strategy!r}: weighting 'exact' is proven for "
            f"{', '.join(PROVEN_STRATEGIES)}; {remedy}"
        )
    if (
        _get(config, "actor_rollout_ref.actor.loss_agg_mode") == "seq-mean-token-sum-norm"
        and _get(config, "actor_rollout_ref.actor.loss_scale_factor") is None
    ):
        problems.append(
            "actor_rollout_ref.actor.loss_scale_factor = None: the norm would be the longest "
            "answer of each micro-batch, which pruning changes; set it to data.max_response_length"
        )
    if _get(config, "distillation.enabled"):
        problems.append(
            f"distillation.enabled = True: weighting 'exact' weighs verl's PPO loss only; {remedy}"
        )
    correction = _get(config, "algorithm.rollout_correction")
    refused = {"rollout_rs": None, "bypass_mode": False, "rollout_is_batch_normalize": False}
    if isinstance(correction, Mapping | DictConfig):
        problems += [
            f"algorithm.rollout_correction.{name} = {correction.get(name)!r}: what it leaves of "
            f"dropped rollouts is not known; {remedy}"
            for name, harmless in refused.items()
            if correction.get(name, harmless) not in (harmless, None)
        ]
    return problems
