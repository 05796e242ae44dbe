"""Further prompts for a batch whose own taught too little: a walk of its own over the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from datasets import IterableDataset

# Keeps this walk apart from every other draw that is made from the run's seed.
STREAM_KEY = 0x5075


class PromptStream:
    """Rows of a training set in a shuffled order of its own, pass after pass.

    The order depends on the seed and the pass alone, so that every process draws the same rows,
    and a resumed run goes on where the checkpoint's position stands.

    Args:
        dataset: anything with a length and rows by number, or a `datasets.IterableDataset` (its
            own buffered shuffle then sets the order).
        seed: the run's.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._pass, self._position = 0, 0
        self._rows: Iterator[dict[str, Any]] | None = None

    @property
    def _size(self) -> int | None:
        """Rows of the data set; None where only reading it would tell."""
        return None if isinstance(self._dataset, IterableDataset) else len(self._dataset)

    def take(self, count: int, ends_seen: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The next rows, and how often the end of the data has been passed.

        Args:
            count: rows wanted.
            ends_seen: what an earlier call for the same batch returned. At the second end every
                row has been tried: the data is used up.

        Returns:
            Up to `count` rows, fewer only when the data is used up; `ends_seen` brought forward.
        """
        rows: list[dict[str, Any]] = []
        while len(rows) < count and ends_seen < 2:
            if self._rows is None:
                self._rows = self._from_here()
            row = next(self._rows, None)
            if row is None:
                ends_seen += 1
                self._pass, self._position, self._rows = self._pass + 1, 0, None
                continue
            self._position += 1
            rows.append(row)
        return rows, ends_seen

    def _from_here(self) -> Iterator[dict[str, Any]]:
        if isinstance(self._dataset, IterableDataset):
            # The trainer's loader shuffles with the seed itself: this is to be another order.
            rest = self._dataset.shuffle(seed=self._seed + STREAM_KEY).skip(self._position)
            rest.set_epoch(self._pass)  # last: skipping forgets it
            yield from rest
            return
        rng = np.random.default_rng((self._seed, STREAM_KEY, self._pass))
        for row in rng.permutation(len(self._dataset))[self._position :].tolist():
            yield self._dataset[row]

    def state_dict(self) -> dict[str, Any]:
        """Where the walk is, in JSON's types."""
        return {"pass": self._pass, "position": self._position, "rows": self._size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            ValueError: lists what is wrong with the state, or that the data has another size.
        """
        problems = []
        for name in ("pass", "position"):
            value = state.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                problems.append(f"{name} = {value!r}: expected an integer of at least 0")
        if state.get("rows") != self._size:
            problems.append(
                f"rows = {state.get('rows')!r}, but the training set has {self._size}: resume "
                "with the data of the first run"
            )
        if problems:
            raise ValueError("prompt stream: " + "; ".join(problems) + ".")
        self._pass, self._position, self._rows = state["pass"], state["position"], None
