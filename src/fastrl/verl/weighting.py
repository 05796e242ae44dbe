"""Weighting "exact" inside verl's own loss: each rollout's gradient by its weight."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

# The rows' weights, as a field of the TransferQueue.
WEIGHTS = "fastrl_weights"
# Beside verl's own numbers of a batch: trained tokens of an update's share of the full batch.
FULL_TOKENS = "fastrl_full_tokens"
# What of the model's output depends on its weights, and so on a rollout's own tokens alone.
WEIGHED_OUTPUTS = ("log_probs", "entropy")


def weighted_loss(actor_config: DictConfig) -> partial[Any]:
    """`weighted_ppo_loss` for the workers' `set_loss_fn`, with the actor's configuration."""
    return partial(weighted_ppo_loss, config=omega_conf_to_dataclass(actor_config))


def weighted_ppo_loss(
    config: Any, model_output: Mapping[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's `ppo_loss` of a micro-batch; each row's gradient multiplied by its weight.

    A rollout's loss (policy term, KL and entropy alike) depends on the model only through what the
    model says of its own tokens. Scaling the gradient there weighs the whole loss, whatever verl's
    loss does with it; the loss value stays that of the kept rows, unweighted. Means over tokens
    are over the full batch's, split over its updates.

    Args:
        config: the actor's configuration.
        model_output: log-probs (and entropies) of all R rows' tokens, prompts included.
        data: R rows with `WEIGHTS`, and `FULL_TOKENS`; without them the loss is verl's.
        dp_group: the data-parallel group.

    Returns:
        The loss, and verl's metrics of it.
    """
    weights = data.get(WEIGHTS, None)
    if weights is None:  # a step before `start_step`
        loss = ppo_loss(config=config, model_output=model_output, data=data, dp_group=dp_group)
        return cast("tuple[torch.Tensor, dict[str, Any]]", loss)
    weights_R = (weights.values() if weights.is_nested else weights).reshape(-1)
    lengths_R = data["prompts"].offsets().diff() + data["responses"].offsets().diff()
    weights_T = torch.repeat_interleave(weights_R, lengths_R)
    weighed = {
        name: _weigh_gradient(value, weights_T) if name in WEIGHED_OUTPUTS else value
        for name, value in model_output.items()
    }
    full_tokens = tensordict_utils.get_non_tensor_data(data, FULL_TOKENS, None)
    tensordict_utils.assign_non_tensor(data, batch_num_tokens=full_tokens)
    loss = ppo_loss(config=config, model_output=weighed, data=data, dp_group=dp_group)
    return cast("tuple[torch.Tensor, dict[str, Any]]", loss)


def _weigh_gradient(values: torch.Tensor | None, weights_T: torch.Tensor) -> torch.Tensor | None:
    """The same T values, flat, whose gradients are multiplied by T weights."""
    if values is None:
        return None
    flat_T = values.values() if values.is_nested else values
    still_T = flat_T.detach()
    return still_T + weights_T.to(flat_T) * (flat_T - still_T)
