"""Refill: bring the kept total up to a multiple of what the host needs."""

from __future__ import annotations

import numpy as np

from fastrl.core.groups import rank_in_group
from fastrl.core.rollouts import BoolArray, FloatArray, IntArray


def refill_rows(
    group_of_N: IntArray,
    advantages_N: FloatArray,
    keep_N: BoolArray,
    allowed_N: BoolArray,
    multiple_of: int,
) -> IntArray:
    """Rows to add until the kept total is a multiple, or until no row is left.

    The groups are walked in ascending id, again and again; each visit takes the group's best
    row not yet kept, by |advantage| (unrounded), the earlier on a tie.

    Args:
        group_of_N: (N,) each row's group, numbered in ascending id.
        advantages_N: (N,) advantages.
        keep_N: (N,) what is kept already.
        allowed_N: (N,) False where a row must not be taken.
        multiple_of: at least 1.

    Returns:
        (R,) row numbers in the order they are taken; fewer than needed when rows run out.

    Source: the FastRL paper, advantage pruning (batch alignment).
    """
    num_missing = -int(np.count_nonzero(keep_N)) % multiple_of
    candidates = np.flatnonzero(~keep_N & allowed_N)
    if not num_missing or not len(candidates):
        return np.empty(0, dtype=np.int64)
    group_of_C = group_of_N[candidates]
    # The n-th visit to a group takes its n-th best, so the walk is a sort by (rank, group).
    rank_C = rank_in_group(group_of_C, np.abs(advantages_N[candidates]))
    return candidates[np.lexsort((group_of_C, rank_C))[:num_missing]]
