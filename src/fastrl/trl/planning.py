"""Who computes what: kept rows dealt to update windows, processes and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrl.core import balanced_shares
from fastrl.trl.balancing import rank_of_rows

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SplitPlan:
    """How a generation batch is split; the same for the whole run.

    Attributes:
        loss_type: TRL's name of the loss.
        weighting: "kept" or "exact".
        windows: update windows of a generation batch.
        micro_batches: micro-batches of a window, on each process.
        max_rows: rows of a micro-batch at most (the user's per-device batch).
        pad_to_multiple_of: TRL's setting: widths stay multiples of it.
        pad_token_id: fills prompts and completions where rows of other processes join.
        ranks: processes.
        rank: this process.
        fills_all: no micro-batch may be without rows (an engine that counts backward passes).
        spans_batches: an update goes on in the next generation batch.
        keeps_groups: "auto" | True | False: rows of one prompt stay together; "auto" where that
            pays.
    """

    loss_type: str
    weighting: str
    windows: int
    micro_batches: int
    max_rows: int
    pad_to_multiple_of: int = 1
    pad_token_id: int = 0
    ranks: int = 1
    rank: int = 0
    fills_all: bool = False
    spans_batches: bool = False
    keeps_groups: str | bool = False


@dataclass(frozen=True)
class Part:
    """A micro-batch of one process: `rows_P`, (P,) places among the kept rows, and blank rows."""

    rows_P: IntArray
    blanks: int

    @property
    def size(self) -> int:
        """Rows, blank ones included."""
        return len(self.rows_P) + self.blanks


def deal_windows(
    tokens_K: Sequence[int] | IntArray, windows: int, rng: np.random.Generator
) -> list[IntArray]:
    """Deal K rows to update windows: equal row counts, balanced token sums.

    Args:
        tokens_K: (K,) tokens of each row.
        windows: update windows in the generation batch.
        rng: shuffles rows of equal length, so that a group does not always land together.
    """
    tokens = np.asarray(tokens_K, dtype=np.int64)
    shuffled = rng.permutation(len(tokens))
    return [shuffled[share] for share in balanced_shares(tokens[shuffled], windows)]


def plan_window(
    rows_W: IntArray, tokens_K: IntArray, rank_K: IntArray, plan: SplitPlan
) -> list[Part]:
    """One process's micro-batches of an update window.

    Rows fill as few micro-batches as `max_rows` allows, balanced by tokens; those left over are
    empty and come first, so that the last of a window (where gradients are synchronised) has rows
    whenever one has. On every process the same micro-batch has the same number of rows: where a
    process has fewer, blank rows fill up.

    Args:
        rows_W: (W,) places of the window's rows among the kept ones, on all processes.
        tokens_K: (K,) tokens of each kept row.
        rank_K: (K,) the process that each kept row goes to.
        plan: how the batch is split.
    """
    per_rank = np.bincount(rank_K[rows_W], minlength=plan.ranks)
    most = int(per_rank.max())
    filled = plan.micro_batches if plan.fills_all else -(-most // plan.max_rows)
    empty = Part(np.empty(0, dtype=np.int64), 0)
    parts = [empty] * (plan.micro_batches - filled)
    if not filled:
        return parts
    mine = rows_W[rank_K[rows_W] == plan.rank]
    most = max(most, filled)  # with fills_all every micro-batch has a row
    for index, share in enumerate(balanced_shares(tokens_K[mine], filled)):
        size = most // filled + (index < most % filled)
        parts.append(Part(mine[share], size - len(share)))
    return parts


def deal_ranks(
    windows: Sequence[IntArray], tokens_K: IntArray, home_K: IntArray, ranks: int
) -> IntArray:
    """(K,) the process that each kept row goes to, window by window; see `rank_of_rows`."""
    rank_K = home_K.copy()
    for rows_W in windows:
        rank_K[rows_W] = rank_of_rows(tokens_K[rows_W], home_K[rows_W], ranks)
    return rank_K
