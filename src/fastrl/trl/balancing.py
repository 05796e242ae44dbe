"""Which process updates on which kept rows: as few as possible change theirs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# A process may have this much more than the mean before rows are moved for the tokens' sake:
# moving costs too, and micro-batches are padded anyway.
TOLERATED_EXCESS = 0.05

IntArray = npt.NDArray[np.int64]


def rank_of_rows(tokens_K: IntArray, home_K: IntArray, num_ranks: int) -> IntArray:
    """(K,) the process that each kept row of an update goes to.

    No process gets more than ceil(K / num_ranks) rows: with equal row counts nobody waits, and
    more would wait for the one that has them. Beyond that rows change their process only while the
    heaviest has over 5% more tokens than the mean, and only where that makes it lighter.
    Deterministic: every process that knows all lengths finds the same.

    Args:
        tokens_K: (K,) tokens of each row.
        home_K: (K,) the process that holds each row.
        num_ranks: processes.
    """
    rank_K = home_K.copy()
    if num_ranks == 1 or not len(rank_K):
        return rank_K
    tokens = tokens_K.astype(np.int64)
    room = -(-len(tokens) // num_ranks)
    _level_counts(tokens, rank_K, num_ranks, room)
    _level_tokens(tokens, rank_K, num_ranks, room)
    return rank_K


def _loads(tokens_K: IntArray, rank_K: IntArray, num_ranks: int) -> tuple[IntArray, IntArray]:
    counts_S = np.bincount(rank_K, minlength=num_ranks)
    loads_S = np.bincount(rank_K, weights=tokens_K, minlength=num_ranks).astype(np.int64)
    return counts_S, loads_S


def _level_counts(tokens_K: IntArray, rank_K: IntArray, num_ranks: int, room: int) -> None:
    """Move rows, in place, from processes with more than `room` rows to the lightest with fewer."""
    while True:
        counts_S, loads_S = _loads(tokens_K, rank_K, num_ranks)
        if counts_S.max() <= room:
            return
        giver = int(np.argmax(np.where(counts_S > room, loads_S, -1)))
        taker = int(np.argmin(np.where(counts_S < room, loads_S, np.iinfo(np.int64).max)))
        rows = np.flatnonzero(rank_K == giver)
        half = (loads_S[giver] - loads_S[taker]) / 2
        rank_K[rows[np.argmin(np.abs(tokens_K[rows] - half))]] = taker


def _level_tokens(tokens_K: IntArray, rank_K: IntArray, num_ranks: int, room: int) -> None:
    """Move or swap rows, in place, between the heaviest and the lightest while it gets lighter."""
    for _ in range(len(tokens_K)):
        counts_S, loads_S = _loads(tokens_K, rank_K, num_ranks)
        giver, taker = int(np.argmax(loads_S)), int(np.argmin(loads_S))
        if loads_S[giver] <= (1 + TOLERATED_EXCESS) * loads_S.mean():
            return
        rows_A, rows_B = np.flatnonzero(rank_K == giver), np.flatnonzero(rank_K == taker)
        gap = int(loads_S[giver] - loads_S[taker])
        # What the giver would lose: by a swap with each row of the taker, or with none.
        lost_AB = tokens_K[rows_A][:, None] - tokens_K[rows_B][None, :]
        if counts_S[taker] < room:
            lost_AB = np.concatenate([tokens_K[rows_A][:, None], lost_AB], axis=1)
            rows_B = np.concatenate([[-1], rows_B])
        if not lost_AB.size:
            return
        heavier_AB = np.maximum(-lost_AB, lost_AB - gap)  # of the two, relative to the giver now
        a, b = np.unravel_index(int(np.argmin(heavier_AB)), heavier_AB.shape)
        if heavier_AB[a, b] >= 0:
            return
        rank_K[rows_A[a]] = taker
        if rows_B[b] >= 0:
            rank_K[rows_B[b]] = giver
