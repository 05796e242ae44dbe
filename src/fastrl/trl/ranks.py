"""What processes tell one another: facts of every row, and the rows that change their process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed

from fastrl.trl.batch import loss_mask

IntRows = Sequence[npt.NDArray[np.int64]]


@dataclass(frozen=True)
class RowPlaces:
    """Where the N rows of a batch are.

    Attributes:
        home_N: (N,) the process that holds each row.
        place_N: (N,) its place in the output of that process.
    """

    home_N: npt.NDArray[np.int64]
    place_N: npt.NDArray[np.int64]

    @classmethod
    def in_order(cls, home_N: npt.NDArray[np.int64]) -> RowPlaces:
        """The places where every process holds its rows in the order of the batch, and no other."""
        place_N = np.zeros_like(home_N)
        for home in np.unique(home_N):
            place_N[home_N == home] = np.arange(np.count_nonzero(home_N == home))
        return cls(home_N, place_N)


@dataclass(frozen=True)
class GlobalRows:
    """What every process knows of the N rows of a generation batch, whoever holds them.

    TRL lays the processes' rows one after another, so that a prompt's group may begin on one
    process and end on the next.

    Attributes:
        advantages_N: (N,) advantages.
        completion_ids: N ragged rows of token ids as they were sampled.
        loss_tokens_N: (N,) tokens that the loss counts.
        lengths_N: (N,) prompt and completion tokens.
        prompt_lengths_N: (N,) prompt tokens.
        places: which process holds each row, and where.
    """

    advantages_N: npt.NDArray[np.float64]
    completion_ids: IntRows
    loss_tokens_N: npt.NDArray[np.int64]
    lengths_N: npt.NDArray[np.int64]
    prompt_lengths_N: npt.NDArray[np.int64]
    places: RowPlaces

    def __len__(self) -> int:
        return len(self.advantages_N)


def full_group_advantages(output: dict[str, Any]) -> npt.NDArray[np.float64]:
    """(N,) advantages; those per token become their mean over the tokens of the loss."""
    advantages = output["advantages"].double()
    if advantages.dim() == 2:
        if advantages.shape[1] == 1:
            advantages = advantages.squeeze(1)
        else:
            mask = loss_mask(output)
            advantages = (advantages * mask).sum(1) / mask.sum(1).clamp(min=1)
    return np.asarray(advantages.cpu().numpy(), dtype=np.float64)


def gather_rows(
    output: dict[str, Any],
    completion_ids: IntRows,
    gather: Callable[[list[Any]], list[Any]] = lambda facts: facts,
    places: RowPlaces | None = None,
) -> GlobalRows:
    """The facts of every process's rows, the same on all of them.

    Args:
        output: this process's scored rows, as TRL returns them.
        completion_ids: their token ids as they were sampled, masked or not.
        gather: joins the lists of all processes in order (accelerate's `gather_object`); left
            out, there is one process.
        places: the order of the rows and where they are; left out, it is TRL's: as many rows on
            every process, one process after another.

    Raises:
        ValueError: processes with unequal numbers of rows, where no places are given.
    """
    prompt_lengths = output["prompt_mask"].sum(dim=1).cpu().numpy().astype(np.int64)
    told = gather(
        [
            (
                full_group_advantages(output),
                [np.asarray(ids, dtype=np.int64) for ids in completion_ids],
                loss_mask(output).sum(dim=1).cpu().numpy().astype(np.int64),
                prompt_lengths + np.array([len(ids) for ids in completion_ids], dtype=np.int64),
                prompt_lengths,
            )
        ]
    )
    advantages, ids, loss_tokens, lengths, prompts = zip(*told, strict=True)
    counts = [len(rows) for rows in ids]
    if places is None and len(set(counts)) > 1:
        raise ValueError(
            f"processes with {counts} rows: TRL and FastRL need as many on every process; leave "
            "accelerator_config.even_batches on."
        )
    if places is None:
        places = RowPlaces.in_order(np.repeat(np.arange(len(counts)), counts))
    first_S = np.cumsum([0, *counts[:-1]])
    order_N = first_S[places.home_N] + places.place_N
    all_ids = [row for rows in ids for row in rows]
    return GlobalRows(
        advantages_N=np.concatenate(advantages)[order_N],
        completion_ids=[all_ids[row] for row in order_N.tolist()],
        loss_tokens_N=np.concatenate(loss_tokens)[order_N],
        lengths_N=np.concatenate(lengths)[order_N],
        prompt_lengths_N=np.concatenate(prompts)[order_N],
        places=places,
    )


@dataclass(frozen=True)
class Move:
    """Rows that leave one process for another: `rows_M`, (M,) numbers in the global batch."""

    source: int
    target: int
    rows_M: npt.NDArray[np.int64]


def moves_between(
    rows_K: npt.NDArray[np.int64],
    home_K: npt.NDArray[np.int64],
    rank_K: npt.NDArray[np.int64],
) -> list[Move]:
    """Every exchange of rows, in the order that all processes keep.

    Args:
        rows_K: (K,) numbers of the rows in the global batch.
        home_K, rank_K: (K,) the processes that hold them and that they go to.
    """
    pairs = sorted({(int(a), int(b)) for a, b in zip(home_K, rank_K, strict=True) if a != b})
    return [
        Move(source, target, np.sort(rows_K[(home_K == source) & (rank_K == target)]))
        for source, target in pairs
    ]


def send_batch(batch: dict[str, Any], target: int) -> None:
    """Send rows to another process; waits until they are on their way."""
    # Copies: a view would be sent with all of the tensor that it is cut from.
    payload = {
        key: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }
    distributed.send_object_list([payload], dst=target)


def receive_batch(source: int, device: torch.device) -> dict[str, Any]:
    """Receive the rows that `send_batch` sent, on `device`."""
    received: list[Any] = [None]
    distributed.recv_object_list(received, src=source)
    return {
        key: value.to(device) if isinstance(value, torch.Tensor) else value
        for key, value in received[0].items()
    }
