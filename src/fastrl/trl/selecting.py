"""From a scored generation batch to the rows that are kept of it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from fastrl.core import PruningRule, Rollouts, Selection, Weighting, prune
from fastrl.trl.ranks import GlobalRows


def select_rollouts(
    rows: GlobalRows,
    num_generations: int,
    rule: PruningRule,
    *,
    multiple_of: int = 1,
    weighting: str = "kept",
    seed: tuple[int, ...] = (0,),
    drop_uninformative: bool = False,
) -> Selection:
    """Apply a rule to N rollouts in whole, consecutive groups; the same on every process.

    Rows whose loss mask is empty (truncated ones, with `mask_truncated_completions`) teach
    nothing, so under "kept" the rule sees them last: where advantages tie, a row that counts is
    the seed of its bucket.

    Args:
        rows: the rows of all processes.
        num_generations: rows of a group; group g is rows g n to (g + 1) n - 1.
        rule, multiple_of, weighting, seed, drop_uninformative: see `fastrl.core.prune`.

    Raises:
        ValueError: advantages that are not finite; a weighting that the rule does not have.
    """
    order_N = np.arange(len(rows))
    if weighting == "kept":
        order_N = np.argsort(rows.loss_tokens_N == 0, kind="stable")
    rollouts = Rollouts(
        group_ids=order_N // num_generations,
        advantages=rows.advantages_N[order_N],
        completion_ids=[rows.completion_ids[row] for row in order_N.tolist()],
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
