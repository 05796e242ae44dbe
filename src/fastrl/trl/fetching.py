"""Rows of a generation batch, read from the data set once per prompt."""

from __future__ import annotations

from typing import Any

import torch


class FetchedOnce(torch.utils.data.Dataset[dict[str, Any]]):
    """A data set's stand-in for TRL's loader, which asks for the same rows again and again.

    TRL's sampler repeats a prompt for every rollout, and the whole batch for every micro-step that
    uses its rollouts. Here a row is read once for all of them: it is held until a batch without it
    is asked for. Every row handed out has dictionaries and lists of its own; what they hold
    (pictures) is shared by the rows of a group.

    Args:
        dataset: with a length, and with `__getitems__` as `datasets.Dataset` has it.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._held: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """The rows of these numbers, in this order."""
        held = {index: self._held[index] for index in indices if index in self._held}
        missing = [index for index in dict.fromkeys(indices) if index not in held]
        if missing:
            held |= zip(missing, self._dataset.__getitems__(missing), strict=True)
        self._held = held
        return [own_containers(held[index]) for index in indices]


def own_containers(value: Any) -> Any:
    """A copy of nested dictionaries and lists; whatever else they hold is the same object."""
    if isinstance(value, dict):
        return {key: own_containers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [own_containers(inner) for inner in value]
    return value
