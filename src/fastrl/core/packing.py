"""Equal, token-balanced shares of rows for ranks and micro-batches."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core.rollouts import IntArray
from fastrl.core.validation import describe_rows, is_int, raise_problems


def balanced_shares(
    tokens_N: Sequence[int] | npt.NDArray[Any], num_shares: int
) -> list[npt.NDArray[np.int64]]:
    """Split N rows into shares of nearly equal row counts and nearly equal token sums.

    Row counts differ by at most one, larger shares first; with fewer rows than shares the last
    shares are empty. The heaviest share is never heavier than in the contiguous equal split.
    Deterministic: every rank that knows all lengths computes the same shares.

    Args:
        tokens_N: (N,) tokens of each row, not negative.
        num_shares: S, at least 1.

    Returns:
        S arrays of ascending row numbers that together hold every row once.

    Raises:
        ValueError: lists every argument that is wrong.

    Source: longest-processing-time scheduling (Graham 1969), with equal cardinality.
    """
    given = np.asarray(tokens_N)
    problems = []
    if given.ndim != 1:
        problems.append(f"tokens_N: shape {given.shape}; expected (N,)")
    elif len(given) and given.dtype.kind not in "iu":
        problems.append(f"tokens_N: type {given.dtype}; expected integers")
    else:
        bad = np.flatnonzero(given < 0).tolist()
        problems += describe_rows("tokens_N", bad, given, "a token count is not negative")
    if not is_int(num_shares) or num_shares < 1:
        problems.append(f"num_shares = {num_shares!r}: expected an integer of at least 1")
    raise_problems("balanced_shares", problems)

    tokens = given.astype(np.int64)
    # Greedy is not optimal: where rows happen to lie well already, keep them as they lie.
    candidates = [_lightest_with_room(tokens, num_shares), _contiguous(tokens, num_shares)]

    def imbalance(share_of_N: IntArray) -> tuple[int, int]:
        sums_S = np.bincount(share_of_N, weights=tokens, minlength=num_shares)
        return int(sums_S.max()), int(-sums_S.min())

    share_of_N = min(candidates, key=imbalance)
    shares = [np.flatnonzero(share_of_N == share).astype(np.int64) for share in range(num_shares)]
    return sorted(shares, key=lambda rows: -len(rows))


def _lightest_with_room(tokens_N: IntArray, num_shares: int) -> IntArray:
    """The heaviest row left goes to the lightest share that still has room."""
    share_of_N = np.empty(len(tokens_N), dtype=np.int64)
    room, num_longer = divmod(len(tokens_N), num_shares)
    heap = [(0, 0, share) for share in range(num_shares)]
    for row in np.argsort(-tokens_N, kind="stable").tolist():
        total, count, share = heapq.heappop(heap)
        while count == room and not num_longer:
            total, count, share = heapq.heappop(heap)
        num_longer -= count == room
        share_of_N[row] = share
        if count < room:
            heapq.heappush(heap, (total + int(tokens_N[row]), count + 1, share))
    return share_of_N


def _contiguous(tokens_N: IntArray, num_shares: int) -> IntArray:
    """The plain split into blocks of consecutive rows, longer blocks first."""
    blocks = np.array_split(np.arange(len(tokens_N)), num_shares)
    return np.repeat(np.arange(num_shares), [len(block) for block in blocks])
