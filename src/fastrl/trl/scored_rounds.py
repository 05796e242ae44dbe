"""Several calls of TRL's generation and scoring, and the one batch that is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastrl.core import Selection
from fastrl.trl.batch import select_rows
from fastrl.trl.merging import merge_rows

# Differences below this many decimals are none: the same as the pruning rules'.
CONTRAST_DECIMALS = 4
# Why a row of a rejected group is not kept, in records.
DISCARDED = "resampled"

# A column of TRL's completions table: its name, after "rewards" or "extra" where it is in one.
Column = tuple[str, ...]


@dataclass(frozen=True)
class ScoredRound:
    """N scored rollouts of all processes in whole, consecutive groups.

    Attributes:
        output: this process's rows, as TRL's `_generate_and_score_completions` returns them; empty
            where there are none, or they are only told of.
        completion_ids: this process's rows of token ids as they were sampled.
        rank: this process.
        home_N: (N,) the process that holds each row; it holds its rows in their order.
        rewards_NF: (N, F) a column per reward function; NaN where it did not apply.
        advantages_N: (N,) advantages, of the full groups.
        pictures_N: the pictures of each row's prompt.
        columns: what TRL noted for its completions table, N values each (or none at all).
    """

    output: dict[str, Any]
    completion_ids: list[npt.NDArray[np.int64]]
    rank: int
    home_N: npt.NDArray[np.int64]
    rewards_NF: torch.Tensor
    advantages_N: npt.NDArray[np.float64]
    pictures_N: list[tuple[Any, ...]]
    columns: dict[Column, list[Any]]

    def __len__(self) -> int:
        return len(self.advantages_N)

    def select(self, rows_K: npt.NDArray[np.int64]) -> ScoredRound:
        """These rows alone, in this order."""
        rows = rows_K.tolist()
        is_mine_N = self.home_N == self.rank
        place_N = np.cumsum(is_mine_N) - 1
        mine = place_N[rows_K[is_mine_N[rows_K]]]
        return ScoredRound(
            output=select_rows(self.output, mine) if self.output and len(mine) else {},
            completion_ids=[self.completion_ids[row] for row in mine.tolist()],
            rank=self.rank,
            home_N=self.home_N[rows_K],
            rewards_NF=self.rewards_NF[torch.as_tensor(rows_K, device=self.rewards_NF.device)],
            advantages_N=self.advantages_N[rows_K],
            pictures_N=[self.pictures_N[row] for row in rows],
            columns={
                name: [values[row] for row in rows] if values else []
                for name, values in self.columns.items()
            },
        )

    def parted(
        self, accepted_G: npt.NDArray[np.bool_], num_generations: int
    ) -> tuple[ScoredRound, ScoredRound]:
        """The rows of the accepted groups; and of the others what there is to tell, no tensors."""
        told = replace(self, output={})
        return (
            self.select(rows_of(np.flatnonzero(accepted_G), num_generations)),
            told.select(rows_of(np.flatnonzero(~accepted_G), num_generations)),
        )


def join_rounds(rounds: Sequence[ScoredRound], pad_token_id: int) -> ScoredRound:
    """The rows of all rounds, in order, as one.

    A column that a round lacks (a reward function may note one now and then) is None in its rows.
    `num_items_in_batch` and other values that belong to no row are those of the first round.
    """
    outputs = [each.output for each in rounds if each.output]
    names = dict.fromkeys(name for each in rounds for name in each.columns)
    return ScoredRound(
        output=merge_rows(outputs, pad_token_id) if outputs else {},
        completion_ids=[ids for each in rounds for ids in each.completion_ids],
        rank=rounds[0].rank,
        home_N=np.concatenate([each.home_N for each in rounds]),
        rewards_NF=torch.cat([each.rewards_NF for each in rounds]),
        advantages_N=np.concatenate([each.advantages_N for each in rounds]),
        pictures_N=[pictures for each in rounds for pictures in each.pictures_N],
        columns={
            name: [
                value for each in rounds for value in (each.columns.get(name) or [None] * len(each))
            ]
            if any(each.columns.get(name) for each in rounds)
            else []
            for name in names
        },
    )


def groups_with_contrast(
    scored: ScoredRound, num_generations: int, reward: int | None = None
) -> npt.NDArray[np.bool_]:
    """(G,) whether the members of a group differ in what they earned.

    Args:
        scored: rows in whole groups.
        num_generations: rows of a group.
        reward: number of the reward function that decides: its values must differ, NaN aside.
            None: the sum decides: some advantage is not zero. Both to 4 decimals.
    """
    if reward is None:
        largest_G = np.abs(scored.advantages_N).reshape(-1, num_generations).max(axis=1)
        return np.asarray(np.round(largest_G, CONTRAST_DECIMALS) != 0)
    values_Gn = scored.rewards_NF[:, reward].double().cpu().numpy().reshape(-1, num_generations)
    # A group that the reward function did not apply to has no values, and so no contrast.
    highest_G = np.where(np.isnan(values_Gn), -np.inf, values_Gn).max(axis=1)
    lowest_G = np.where(np.isnan(values_Gn), np.inf, values_Gn).min(axis=1)
    spread_G = np.where(highest_G >= lowest_G, highest_G - lowest_G, 0.0)
    return np.asarray(np.round(spread_G, CONTRAST_DECIMALS) > 0)


def rows_of(groups: npt.NDArray[np.int64], num_generations: int) -> npt.NDArray[np.int64]:
    """The rows of these groups."""
    rows: npt.NDArray[np.int64] = (
        groups[:, None] * num_generations + np.arange(num_generations)
    ).ravel()
    return rows


def shareable_groups(count: int, num_generations: int, ranks: int) -> int:
    """The most groups up to `count` whose rows every process has as many of.

    TRL gathers rows without telling who has how many. Where the rollouts of a group are a multiple
    of the processes, it is `count`; else up to a few short of it, never more: so that a round
    cannot bring more groups than fit.
    """
    least = ranks // math.gcd(ranks, num_generations)
    return count - count % least


def with_discarded(selection: Selection, num_rows: int, num_generations: int) -> Selection:
    """The selection of a batch followed by so many rows of discarded groups."""
    num_groups = num_rows // num_generations
    reason_N = np.concatenate([selection.reason, np.full(num_rows, DISCARDED)])
    first = int(selection.group_ids.max()) + 1 if len(selection.group_ids) else 0
    return replace(
        selection,
        reason=reason_N,
        duplicate_of=np.append(selection.duplicate_of, np.full(num_rows, -1)),
        similarity=np.append(selection.similarity, np.full(num_rows, np.nan)),
        kept_per_group=np.append(selection.kept_per_group, np.zeros(num_groups, dtype=np.int64)),
        group_ids=np.append(selection.group_ids, first + np.arange(num_groups)),
        informative_per_group=np.append(
            selection.informative_per_group, np.zeros(num_groups, dtype=np.bool_)
        ),
    )


def without_any(selection: Selection) -> Selection:
    """The selection of the same rows that keeps none of them."""
    return replace(
        selection,
        keep=np.empty(0, dtype=np.int64),
        weights=np.empty(0),
        num_before_refill=0,
        kept_per_group=np.zeros_like(selection.kept_per_group),
        reason=np.full(len(selection.reason), DISCARDED),
        duplicate_of=np.full(len(selection.reason), -1),
        similarity=np.full(len(selection.reason), np.nan),
    )
