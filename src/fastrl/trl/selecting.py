"""From a scored TRL generation batch to the rows that are kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastrl.core import PruningRule, Rollouts, Selection, Weighting, prune
from fastrl.trl.batch import loss_mask, num_rows

IntRows = Sequence[npt.NDArray[np.int64]]


def full_group_advantages(output: dict[str, Any]) -> npt.NDArray[np.float64]:
    """(N,) advantages; those per token become their mean over the tokens of the loss."""
    advantages = output["advantages"].double()
    if advantages.dim() == 2:
        if advantages.shape[1] == 1:
            advantages = advantages.squeeze(1)
        else:
            mask = loss_mask(output)
            advantages = (advantages * mask).sum(1) / mask.sum(1).clamp(min=1)
    return np.asarray(advantages.cpu().numpy(), dtype=np.float64)


def select_rollouts(
    output: dict[str, Any],
    completion_ids: IntRows,
    num_generations: int,
    rule: PruningRule,
    *,
    multiple_of: int = 1,
    weighting: str = "kept",
    seed: tuple[int, ...] = (0,),
    drop_uninformative: bool = False,
) -> Selection:
    """Apply a rule to N rollouts in whole, consecutive groups.

    Rows whose loss mask is empty (truncated ones, with `mask_truncated_completions`) teach
    nothing, so under "kept" the rule sees them last: where advantages tie, a row that counts is
    the seed of its bucket.

    Args:
        output: what TRL's `_generate_and_score_completions` returned.
        completion_ids: N ragged rows of token ids as they were sampled, masked or not.
        num_generations: rows of a group; group g is rows g n to (g + 1) n - 1.
        rule, multiple_of, weighting, seed, drop_uninformative: see `fastrl.core.prune`.

    Raises:
        ValueError: advantages that are not finite; a weighting that the rule does not have.
    """
    total = num_rows(output)
    masked_N = loss_mask(output).sum(dim=1).cpu().numpy() == 0
    order_N = np.arange(total)
    if weighting == "kept":
        order_N = np.argsort(masked_N, kind="stable")
    rollouts = Rollouts(
        group_ids=order_N // num_generations,
        advantages=full_group_advantages(output)[order_N],
        completion_ids=[completion_ids[row] for row in order_N.tolist()],
    )
    selection = prune(
        rollouts,
        rule,
        multiple_of=multiple_of,
        weighting=cast(Weighting, weighting),
        seed=seed,
        drop_uninformative=drop_uninformative,
    )
    return _in_row_order(selection, order_N)


def _in_row_order(selection: Selection, order_N: npt.NDArray[np.int64]) -> Selection:
    """The selection of rows that were shown in another order, in terms of the rows themselves."""
    place_N = np.argsort(order_N)
    keep_K = order_N[selection.keep]
    ascending = np.argsort(keep_K)
    duplicate_of_N = selection.duplicate_of[place_N]
    is_duplicate_N = duplicate_of_N >= 0
    duplicate_of_N[is_duplicate_N] = order_N[duplicate_of_N[is_duplicate_N]]
    return replace(
        selection,
        keep=keep_K[ascending],
        weights=selection.weights[ascending],
        reason=selection.reason[place_N],
        duplicate_of=duplicate_of_N,
        similarity=selection.similarity[place_N],
    )
