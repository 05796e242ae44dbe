"""The kept rows of a generation batch as micro-batches, each with what its loss counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastrl.core import Selection
from fastrl.trl.batch import loss_mask, num_rows, plan_micro_batches, select_rows, trim_padding
from fastrl.trl.weighting import BatchTotals, MicroBatchShare, items_in_batch, loss_factor

# Under this key a micro-batch carries its MicroBatchShare beside TRL's own inputs.
SHARE_KEY = "fastrl_share"


@dataclass(frozen=True)
class SplitPlan:
    """How a generation batch is split; the same for the whole run.

    Attributes:
        loss_type: TRL's name of the loss.
        weighting: "kept" or "exact".
        windows: update windows of a generation batch.
        micro_batches: micro-batches of a window.
        max_rows: rows of a micro-batch at most (the user's per-device batch).
        pad_to_multiple_of: TRL's setting: widths stay multiples of it.
    """

    loss_type: str
    weighting: str
    windows: int
    micro_batches: int
    max_rows: int
    pad_to_multiple_of: int = 1


def split_kept_rows(
    output: dict[str, Any],
    selection: Selection,
    lengths_N: npt.NDArray[np.int64],
    plan: SplitPlan,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Deal the kept rows to `windows x micro_batches` micro-batches.

    Args:
        output: the N scored rollouts, as TRL returns them.
        selection: which K of them are kept, and their weights.
        lengths_N: (N,) prompt and completion tokens of each row.
        plan: how the batch is split.
        rng: shuffles rows of equal length.

    Returns:
        One dict a micro-batch: TRL's inputs for its rows, `num_items_in_batch` as its loss needs
        it, and under `SHARE_KEY` a `MicroBatchShare`. One without rows holds only its share.
    """
    full = BatchTotals(num_rows(output), float(loss_mask(output).sum().item()))
    kept = select_rows(output, selection.keep)
    tokens_K = loss_mask(kept).sum(dim=1)
    windows = plan_micro_batches(
        lengths_N[selection.keep], plan.windows, plan.micro_batches, plan.max_rows, rng
    )
    micro_batches: list[dict[str, Any]] = []
    for window in windows:
        in_window = np.concatenate(window)
        totals = BatchTotals(len(in_window), float(tokens_K[in_window].sum()))
        for part in window:
            if not len(part):
                micro_batches.append({SHARE_KEY: MicroBatchShare(rows=0)})
                continue
            micro = trim_padding(select_rows(kept, part), plan.pad_to_multiple_of)
            micro["num_items_in_batch"] = items_in_batch(
                plan.weighting, totals, output["num_items_in_batch"], plan.windows
            )
            weights_R = torch.as_tensor(selection.weights[part], device=tokens_K.device)
            micro[SHARE_KEY] = MicroBatchShare(
                rows=len(part),
                loss_factor=loss_factor(
                    plan.loss_type,
                    plan.weighting,
                    BatchTotals(len(part), float(tokens_K[part].sum())),
                    totals,
                    full,
                    plan.windows,
                    plan.micro_batches,
                ),
                weights_R=weights_R if plan.weighting == "exact" else None,
            )
            micro_batches.append(micro)
    return micro_batches
