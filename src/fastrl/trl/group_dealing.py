"""Whole groups dealt to windows, processes and micro-batches: rows of a prompt stay together.

A group is cut only where it does not fit: its prompt is then computed once for each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrl.trl.balancing import rank_of_rows
from fastrl.trl.planning import Part, SplitPlan

IntArray = npt.NDArray[np.int64]
# Host's tokens over packed ones; below it, sharing prefixes costs more than it saves.
LEAST_RATIO = 1.25


@dataclass(frozen=True)
class RowFacts:
    """What dealing needs of K kept rows.

    Attributes:
        group_K: (K,) the group of each row.
        prompt_K: (K,) tokens of its prompt, the same within a group.
        completion_K: (K,) tokens of its completion.
    """

    group_K: IntArray
    prompt_K: IntArray
    completion_K: IntArray

    def units(self, rows: IntArray) -> list[IntArray]:
        """The rows, group by group, in the order in which the groups first appear."""
        groups = self.group_K[rows]
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        return [rows[number == index] for index in np.argsort(first)]

    def tokens(self, rows: IntArray) -> int:
        """Tokens of rows of one group behind one copy of their prompt."""
        if not len(rows):
            return 0
        return int(self.prompt_K[rows[0]] - 1 + self.completion_K[rows].sum())

    @property
    def ratio(self) -> float:
        """r = K (P + L) / (P - 1 + K (L + 1)), over all groups kept whole."""
        rows = np.arange(len(self.group_K))
        packed = sum(self.tokens(unit) + len(unit) for unit in self.units(rows))
        return float((self.prompt_K + self.completion_K).sum() / max(packed, 1))


def deal_group_windows(facts: RowFacts, windows: int, rng: np.random.Generator) -> list[IntArray]:
    """Deal K rows to update windows: row counts as equal as without groups, few groups cut.

    Args:
        facts: of the rows.
        windows: update windows in the generation batch.
        rng: shuffles groups, and rows within them.
    """
    rows = rng.permutation(len(facts.group_K))
    waiting = facts.units(rows)
    dealt = []
    for quota in (len(share) for share in np.array_split(rows, windows)):
        taken, waiting = _take(waiting, quota)
        dealt.append(np.concatenate(taken) if taken else np.empty(0, dtype=np.int64))
    return dealt


def _take(waiting: list[IntArray], room: int) -> tuple[list[IntArray], list[IntArray]]:
    """The first units that fit, `room` rows in all; where none does, a part of the first."""
    taken, left = [], []
    for unit in waiting:
        if len(unit) <= room:
            taken.append(unit)
            room -= len(unit)
        else:
            left.append(unit)
    if room:
        taken.append(left[0][:room])
        left[0] = left[0][room:]
    return taken, left


def deal_group_ranks(
    windows: Sequence[IntArray], facts: RowFacts, home_K: IntArray, plan: SplitPlan
) -> IntArray:
    """(K,) the process that each kept row goes to, window by window.

    A group goes to one process, mostly that of most of its rows: as for single rows, few move, and
    only to level numbers and tokens. A group is cut where a process would have more rows than its
    micro-batches hold.
    """
    rank_K = home_K.copy()
    room = plan.micro_batches * plan.max_rows
    for rows_W in windows:
        units = facts.units(rows_W)
        home_U = [np.bincount(home_K[unit], minlength=plan.ranks).argmax() for unit in units]
        tokens_U = np.array([facts.tokens(unit) for unit in units], dtype=np.int64)
        rank_U = rank_of_rows(tokens_U, np.array(home_U, dtype=np.int64), plan.ranks)
        for unit, rank in zip(units, rank_U.tolist(), strict=True):
            rank_K[unit] = rank
        _make_room(rows_W, rank_K, room, plan.ranks)
    return rank_K


def _make_room(rows_W: IntArray, rank_K: IntArray, room: int, ranks: int) -> None:
    """Move rows, in place, from processes with more than `room` rows to those with the fewest."""
    while True:
        counts_S = np.bincount(rank_K[rows_W], minlength=ranks)
        giver, taker = int(counts_S.argmax()), int(counts_S.argmin())
        if counts_S[giver] <= room:
            return
        number = min(counts_S[giver] - room, room - counts_S[taker])
        rank_K[rows_W[rank_K[rows_W] == giver][-number:]] = taker


def plan_group_window(
    rows_W: IntArray, facts: RowFacts, rank_K: IntArray, plan: SplitPlan
) -> list[Part]:
    """One process's micro-batches of an update window; see `plan_window`.

    As few micro-batches as can hold the groups whole; where even all of them cannot, as few as
    leave the fewest groups cut.
    """
    of_ranks = [facts.units(rows_W[rank_K[rows_W] == rank]) for rank in range(plan.ranks)]
    most = max(sum(map(len, units)) for units in of_ranks)
    fewest = plan.micro_batches if plan.fills_all else -(-most // plan.max_rows)
    empty = Part(np.empty(0, dtype=np.int64), 0)
    if not fewest:
        return [empty] * plan.micro_batches
    candidates = (
        [fill_micro_batches(units, facts, number, plan.max_rows) for units in of_ranks]
        for number in range(fewest, plan.micro_batches + 1)
    )
    filled = min(candidates, key=lambda ranks: sum(_pieces(shares, facts) for shares in ranks))
    sizes = [max(map(len, shares)) for shares in zip(*filled, strict=True)]
    if plan.fills_all:
        sizes = [max(size, 1) for size in sizes]
    mine = filled[plan.rank]
    parts = [
        Part(share, size - len(share)) for share, size in zip(mine, sizes, strict=True) if size
    ]
    return [empty] * (plan.micro_batches - len(parts)) + parts


def _pieces(shares: Sequence[IntArray], facts: RowFacts) -> int:
    """Prompts that are computed: a cut group counts once for each part."""
    return sum(len(np.unique(facts.group_K[share])) for share in shares)


def fill_micro_batches(
    units: Sequence[IntArray], facts: RowFacts, number: int, max_rows: int
) -> list[IntArray]:
    """Put groups into `number` micro-batches, the longest first, each where the fewest tokens are.

    A group for which none has room fills the one with the most, and goes on elsewhere.

    Returns:
        Rows of each micro-batch, those with the most rows first; none above `max_rows`.

    Source: longest-processing-time scheduling (Graham 1969), with bounded cardinality.
    """
    shares: list[list[IntArray]] = [[] for _ in range(number)]
    rows_S = np.zeros(number, dtype=np.int64)
    tokens_S = np.zeros(number, dtype=np.int64)
    waiting = sorted(units, key=lambda unit: (-len(unit), -facts.tokens(unit)))
    while waiting:
        unit = waiting.pop(0)
        has_room_S = rows_S + len(unit) <= max_rows
        if has_room_S.any():
            share = int(np.where(has_room_S, tokens_S, np.iinfo(np.int64).max).argmin())
        else:
            share = int(rows_S.argmin())
            room = max_rows - rows_S[share]
            waiting.insert(0, unit[room:])
            unit = unit[:room]
        shares[share].append(unit)
        rows_S[share] += len(unit)
        tokens_S[share] += facts.tokens(unit)
    empty = np.empty(0, dtype=np.int64)
    joined = [np.concatenate(share) if share else empty for share in shares]
    return sorted(joined, key=len, reverse=True)
