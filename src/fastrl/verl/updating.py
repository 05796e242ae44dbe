"""The update of a pruned step: its sizes, told to verl's workers, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastrl.core.seams import HostVersionError
from fastrl.verl.batching import BatchShape
from fastrl.verl.transfer import ScoredBatch
from fastrl.verl.versions import REMEDY
from fastrl.verl.weighting import FULL_TOKENS


@dataclass
class PrunedStep:
    """What a step decided, for the passes that follow.

    Attributes:
        scored: the generation batch, all N rows of it.
        weights: key of each kept row -> its weight.
        exact: whether means are those of the full batch.
        ranks: the data-parallel size.
        baseline_updates: updates that verl makes of the full batch.
        shape: how rows are dealt.
        nothing_left: the update is left out.
    """

    scored: ScoredBatch
    weights: Mapping[str, float]
    exact: bool
    ranks: int
    baseline_updates: int
    shape: BatchShape
    nothing_left: bool = False
    _multiple: int | None = field(default=None, init=False)

    @property
    def updates(self) -> int:
        """Updates of this step: the baseline's, or one a row where there are not so many rows."""
        return min(self.baseline_updates, len(self.weights))

    @property
    def skipped_updates(self) -> int:
        """Updates of the baseline for which no row was left."""
        return self.baseline_updates - (0 if self.nothing_left else self.updates)

    def take_multiple(self, ranks: int) -> int:
        """What the number of rows must divide by; remembers that verl asked."""
        self._multiple = self.shape.row_multiple(ranks, self.updates)
        return self._multiple

    def check_balanced(self, rows: int) -> None:
        """verl balanced the pruned batch to the multiple that it was told.

        Raises:
            HostVersionError: it did not ask, or did not keep to it.
        """
        if self._multiple is None or rows % self._multiple:
            raise HostVersionError(
                f"verl balanced {rows} rows to another multiple than {self._multiple}", REMEDY
            )

    def sizes(self, rows: int) -> dict[str, float]:
        """What the workers are told beside verl's own numbers.

        Means over rollouts are over the update's share of the kept rows, padding aside, or under
        "exact" of all rows; means over tokens are verl's own under "kept".

        Args:
            rows: of the balanced batch, padding included.
        """
        counted = len(self.scored.rows) if self.exact else len(self.weights)
        told = {
            "mini_batch_size": rows // self.updates,
            "global_batch_size": counted / self.updates,
        }
        if self.exact:
            told[FULL_TOKENS] = self.scored.tokens / self.updates
        return told


class SizedUpdates:
    """verl's worker group, whose one update is told the sizes of the pruned step.

    Args:
        workers: verl's worker group.
        step: the pruned step.
        rows: of the balanced batch.
    """

    def __init__(self, workers: Any, step: PrunedStep, rows: int) -> None:
        self._workers = workers
        self._step = step
        self._sizes = step.sizes(rows)
        self._updates_made: int | None = None

    def update_actor(self, batch: Any) -> Any:
        """verl's, of a batch that bears the step's sizes."""
        batch.extra_info.update(self._sizes)
        output = self._workers.update_actor(batch)
        self._updates_made = len(output["metrics"]["grad_norm"])
        return output

    def check_updates(self, epochs: int) -> None:
        """The workers made as many updates as were asked for.

        Args:
            epochs: passes over the batch (`ppo_epochs`).

        Raises:
            HostVersionError: they did not, or verl updates in another way.
        """
        wanted = self._step.updates * epochs
        if self._updates_made != wanted:
            raise HostVersionError(
                f"verl made {self._updates_made} updates of a step in place of {wanted}", REMEDY
            )
