"""Weighting "exact" in verl's own losses: a kept row's gradient is its weight times the full one's.

That is the whole proof: the weights' expectation is 1 for every row (tests/core/test_exact.py).
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from fastrl.verl.refusals import PROVEN_LOSSES
from fastrl.verl.weighting import FULL_TOKENS, WEIGHTS, weighted_ppo_loss

PROMPTS = [3, 2, 4, 2, 3]
ANSWERS = [4, 1, 3, 5, 2]
KEPT = [0, 2, 3]
KEPT_WEIGHTS = [2.0, 0.0, 3.0]
UPDATES = 2
AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class Batch:
    """Five rows of random numbers: tokens' log-probs (prompt and answer), entropies, the rest."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)

        def rows(lengths: list[int]) -> list[torch.Tensor]:
            return [torch.rand(n, generator=draw, dtype=torch.float64) - 1 for n in lengths]

        whole = [p + a for p, a in zip(PROMPTS, ANSWERS, strict=True)]
        self.log_probs, self.entropies = rows(whole), rows(whole)
        self.old, self.reference = rows(ANSWERS), rows(ANSWERS)
        advantages = [1.5, -0.5, 0.7, -1.2, 0.3]
        self.advantages = [torch.full((n,), a) for n, a in zip(ANSWERS, advantages, strict=True)]
        self.masks = [torch.ones(n) for n in ANSWERS]
        self.masks[3][2] = 0  # a token that a tool wrote

    @property
    def tokens(self) -> float:
        return float(sum(mask.sum() for mask in self.masks))

    def gradients(
        self, loss: Any, rows: list[int], told: dict[str, Any], weights: list[float] | None
    ) -> tuple[list[torch.Tensor], float]:
        """Gradient of the loss by each row's log-probs and entropies; the loss."""
        fields = {
            "prompts": nested([torch.ones(PROMPTS[row], dtype=torch.long) for row in rows]),
            "responses": nested([torch.ones(ANSWERS[row], dtype=torch.long) for row in rows]),
            "response_mask": nested([self.masks[row] for row in rows]),
            "old_log_probs": nested([self.old[row] for row in rows]),
            "ref_log_prob": nested([self.reference[row] for row in rows]),
            "advantages": nested([self.advantages[row] for row in rows]),
        }
        if weights is not None:
            fields[WEIGHTS] = torch.tensor(weights)[:, None]
        data = TensorDict(fields, batch_size=len(rows))
        tensordict_utils.assign_non_tensor(data, dp_size=1, **told)
        leaves = [
            [values[row].clone().requires_grad_() for row in rows]
            for values in (self.log_probs, self.entropies)
        ]
        output = {
            "log_probs": torch.nested.nested_tensor_from_jagged(
                torch.cat(leaves[0]), offsets(leaves[0])
            ),
            "entropy": torch.nested.nested_tensor_from_jagged(
                torch.cat(leaves[1]), offsets(leaves[1])
            ),
        }
        value, _ = loss(model_output=output, data=data)
        value.backward()
        grads = [
            torch.cat([log_prob.grad, entropy.grad])
            for log_prob, entropy in zip(*leaves, strict=True)
        ]
        return grads, float(value.detach())


def offsets(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([0, *np.cumsum([len(row) for row in rows])])


def actor_config(loss_mode: str, aggregation: str) -> FSDPActorConfig:
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=5,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=aggregation,
        loss_scale_factor=8 if aggregation == "seq-mean-token-sum-norm" else None,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode),
        use_kl_loss=True,
        kl_loss_coef=0.3,
        entropy_coeff=0.1,
    )


@pytest.mark.parametrize("loss_mode", PROVEN_LOSSES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_kept_rows_gradient_is_weight_times_the_full_batchs(
    loss_mode: str, aggregation: str
) -> None:
    batch, config = Batch(), actor_config(loss_mode, aggregation)
    everything = list(range(5))
    share = {"global_batch_size": 5 / UPDATES, "batch_num_tokens": batch.tokens / UPDATES}
    full, _ = batch.gradients(partial(ppo_loss, config), everything, share, None)
    # What the driver and the engine say of the pruned batch: the engine counts kept tokens.
    told = {
        "global_batch_size": 5 / UPDATES,
        "batch_num_tokens": 11,
        FULL_TOKENS: batch.tokens / UPDATES,
    }
    pruned, value = batch.gradients(partial(weighted_ppo_loss, config), KEPT, told, KEPT_WEIGHTS)
    for row, weight, gradient in zip(KEPT, KEPT_WEIGHTS, pruned, strict=True):
        torch.testing.assert_close(gradient, weight * full[row], rtol=1e-6, atol=1e-9)
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in full)
    # The value told is that of the kept rows, unweighted.
    _, unweighted = batch.gradients(partial(weighted_ppo_loss, config), KEPT, told, [1.0] * 3)
    assert value == pytest.approx(unweighted, abs=1e-7)


@pytest.mark.parametrize("loss_mode", ["vanilla", "gspo"])
def test_without_weights_the_loss_is_verls(loss_mode: str) -> None:
    batch, config = Batch(), actor_config(loss_mode, "token-mean")
    # A step before `start_step`: the driver says nothing of weights or of the full batch.
    told = {"global_batch_size": 5 / UPDATES, "batch_num_tokens": batch.tokens / UPDATES}
    everything = list(range(5))
    theirs, their_loss = batch.gradients(partial(ppo_loss, config), everything, told, None)
    ours, our_loss = batch.gradients(partial(weighted_ppo_loss, config), everything, told, None)
    assert our_loss == their_loss
    for our_row, their_row in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_row, their_row, rtol=0, atol=0)
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in ours)
