"""How many rows verl needs for its ranks, updates and micro-batches, and where padding lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchShape:
    """What decides how a step's rows are dealt; the same for the whole run.

    Attributes:
        mini_batch_prompts: `actor.ppo_mini_batch_size`, counted in prompts.
        update_micro_batch: rows of a micro-batch of the update on each rank; None with dynamic
            batching, which takes any number of rows.
        score_micro_batches: the same for each pass that only scores (old and reference
            log-probs); empty with dynamic batching.
    """

    mini_batch_prompts: int
    update_micro_batch: int | None
    score_micro_batches: tuple[int, ...]

    def updates(self, rows: int, num_generations: int) -> int:
        """Updates that verl makes of a whole generation batch: the baseline's, kept as they are.

        Args:
            rows: generated rows, before anything is dropped.
            num_generations: rollouts per prompt.
        """
        return max(1, math.ceil(rows / (self.mini_batch_prompts * num_generations)))

    def row_multiple(self, ranks: int, updates: int) -> int:
        """What the number of rows must divide by: whole micro-batches, as many on every rank.

        Args:
            ranks: the data-parallel size.
            updates: updates that the rows are split into.
        """
        per_rank = math.lcm(updates * (self.update_micro_batch or 1), *self.score_micro_batches)
        return ranks * per_rank


def spread_padding(is_padding_N: Sequence[bool], ranks: int, updates: int) -> list[int]:
    """The order of N rows in which padding is dealt evenly to the updates of each rank.

    verl lays the rows out rank by rank, and splits a rank's rows into its updates in that order.
    An update of padding alone has no token to average over.

    Args:
        is_padding_N: for each row, rank by rank, whether it only fills up.
        ranks: R; N divides by R times the updates.
        updates: U, into which each rank's rows are split.

    Returns:
        N row numbers; each rank keeps its own rows, real rows stay in their order.
    """
    per_rank = len(is_padding_N) // ranks
    per_update = per_rank // updates
    order = []
    dealt = 0
    for rank in range(ranks):
        mine = range(rank * per_rank, (rank + 1) * per_rank)
        padding = [row for row in mine if is_padding_N[row]]
        real = [row for row in mine if not is_padding_N[row]]
        shares = [0] * updates
        for place in range(len(real)):
            shares[(dealt + place) % updates] += 1
        # The next rank goes on where this one stopped, so that all ranks together come out even.
        dealt += len(real)
        for share in shares:
            order += real[:share] + padding[: per_update - share]
            real, padding = real[share:], padding[per_update - share :]
    return order
