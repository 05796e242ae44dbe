"""What a micro-batch counts: the factor of its loss, and the weight of each of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# How TRL's losses are normalised (`loss_type`): by the rows of a micro-batch, by its tokens, or by
# the tokens of the whole generation batch.
BY_ROWS = ("grpo", "dr_grpo", "sapo", "luspo")
BY_MICRO_BATCH_TOKENS = ("bnpo",)
BY_BATCH_TOKENS = ("dapo", "cispo", "vespo")
KNOWN_LOSSES = BY_ROWS + BY_MICRO_BATCH_TOKENS + BY_BATCH_TOKENS

# Under this key a micro-batch carries its MicroBatchShare beside TRL's own inputs.
SHARE_KEY = "fastrl_share"


@dataclass(frozen=True)
class BatchTotals:
    """Rows and loss tokens of some part of a generation batch."""

    rows: int
    tokens: float


@dataclass(frozen=True)
class MicroBatchShare:
    """What the trainer needs to know of a micro-batch beyond TRL's own inputs.

    Attributes:
        rows: rollouts in it, blank ones included; 0 means that there is nothing to compute.
        blanks: rows at its end that only fill up.
        loss_factor: multiplies the host's loss.
        weights_R: (R,) factor of each row's gradient, or None where all are 1.
        filler: a blank row for a micro-batch without rows that may have to synchronise gradients
            of earlier generation batches, or None.
    """

    rows: int
    blanks: int = 0
    loss_factor: float = 1.0
    weights_R: torch.Tensor | None = None
    filler: dict[str, Any] | None = None


def loss_factor(
    loss_type: str,
    weighting: str,
    micro: BatchTotals,
    window: BatchTotals,
    full: BatchTotals,
    windows: int,
    micro_batches: int,
) -> float:
    """The factor that makes unequal micro-batches add up to the right mean.

    TRL divides a micro-batch's sum by its own rows (or tokens) and by the micro-batches of an
    update. Under "kept" the mean wanted is over the window's kept rows (or tokens); under "exact"
    it is the sum over the generation batch's full rows (or tokens), split over its windows.
    Losses normalised by the tokens of the batch need no factor: see `items_in_batch`.

    Args:
        micro, window: kept rows and tokens of this micro-batch and of its update window.
        full: rows and tokens of the generation batch before pruning.
        windows: update windows of a generation batch; `micro_batches`: those of a window.

    Source: the method's table of normalisers for "exact"; "kept" means are per update.
    """
    if loss_type in BY_BATCH_TOKENS:
        return 1.0
    if loss_type in BY_ROWS:
        mine, kept, everything = float(micro.rows), float(window.rows), float(full.rows)
    else:
        mine, kept, everything = micro.tokens, window.tokens, full.tokens
    if weighting == "exact":
        return mine * micro_batches * windows / max(everything, 1.0)
    return mine * micro_batches / max(kept, 1.0)


def items_in_batch(
    weighting: str, window: BatchTotals, full_items: torch.Tensor, windows: int
) -> torch.Tensor:
    """`num_items_in_batch` for the losses that TRL normalises by the tokens of the batch.

    TRL takes an equal part of it for each update window: "kept" hands it the window's own kept
    tokens times the windows, "exact" the full batch's tokens.
    """
    if weighting == "exact":
        return full_items
    return torch.full_like(full_items, window.tokens * windows)


def weigh_gradient(values_RT: torch.Tensor, weights_R: torch.Tensor | None) -> torch.Tensor:
    """The same values, with each row's gradient multiplied by its weight.

    A rollout's loss (policy term and KL alike) depends on the weights of the model only through
    its own log-probs. Scaling their gradient therefore weighs the whole per-rollout loss, whatever
    the host's loss does with them and however it takes its mean.

    Args:
        values_RT: (R, T) log-probs; returned as they are without gradients or weights.
        weights_R: (R,) factors, or None where all are 1.
    """
    if weights_R is None or not values_RT.requires_grad:
        return values_RT
    factors_R1 = weights_R.to(values_RT).unsqueeze(1)
    # A view, so that nobody else's use of the same tensor is weighed.
    weighed_RT = values_RT.view_as(values_RT)
    weighed_RT.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient_RT: gradient_RT * factors_R1
    )
    return weighed_RT
