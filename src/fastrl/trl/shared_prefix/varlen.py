"""A packed row as sequences of flash attention's variable-length form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from fastrl.trl.shared_prefix.layout import IntArray, PackedLayout


@dataclass(frozen=True)
class VarlenLayout:
    """S sequences of queries and of keys; keys of a prefix are repeated for each of its spans.

    Causal with the last query at the last key, as flash attention aligns them.

    Attributes:
        query_bounds, key_bounds: (S + 1,) where each sequence begins, and the last ends.
        key_index: place in the packed row of each key.
    """

    query_bounds: IntArray
    key_bounds: IntArray
    key_index: IntArray

    @classmethod
    def of(cls, layout: PackedLayout) -> VarlenLayout:
        """The sequences of a layout."""
        stretches = list(layout.stretches())
        return cls(
            query_bounds=np.cumsum([0, *(stretch.queries for stretch in stretches)]),
            key_bounds=np.cumsum([0, *(stretch.keys for stretch in stretches)]),
            key_index=np.concatenate(
                [np.arange(*span) for each in stretches for span in (each.prefix, each.own)]
            ),
        )


class VarlenKernel(Protocol):
    """Attention over sequences that lie one after another, causal, aligned at the end."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_bounds: torch.Tensor,
        key_bounds: torch.Tensor,
        longest_query: int,
        longest_key: int,
        *,
        scaling: float | None,
        dropout: float,
    ) -> torch.Tensor:
        """(queries, heads, width), of query (queries, heads, width), key (keys, key heads, width).

        Args:
            query, key, value: in half precision.
            query_bounds, key_bounds: (S + 1,) int32.
            longest_query, longest_key: tokens.
            scaling: of the scores; None for 1 / sqrt(width).
            dropout: share of the weights that are dropped.
        """


def flash_attn_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scaling: float | None,
    dropout: float,
) -> torch.Tensor:
    """The package flash-attn's, 2.1 or newer."""
    from flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found,unused-ignore]

    attended: torch.Tensor = flash_attn_varlen_func(
        query,
        key,
        value,
        cu_seqlens_q=query_bounds,
        cu_seqlens_k=key_bounds,
        max_seqlen_q=longest_query,
        max_seqlen_k=longest_key,
        dropout_p=dropout,
        softmax_scale=scaling,
        causal=True,
    )
    return attended


def torch_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scaling: float | None,
    dropout: float,
) -> torch.Tensor:
    """Torch's own flash attention.

    Raises:
        ValueError: dropout, which it does not have.
    """
    from torch.nn.attention.varlen import varlen_attn

    if dropout:
        raise ValueError(f"attention dropout = {dropout}: torch's varlen_attn has none; set it 0")
    attended = varlen_attn(
        query,
        key,
        value,
        query_bounds,
        key_bounds,
        longest_query,
        longest_key,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    if not isinstance(attended, torch.Tensor):
        raise TypeError("torch's varlen_attn returned more than the output")
    return attended


class VarlenAttention:
    """All stretches in one call of a variable-length kernel."""

    def __init__(self, layout: PackedLayout, kernel: VarlenKernel) -> None:
        self._kernel = kernel
        self._sequences = VarlenLayout.of(layout)
        self._tensors: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        dropout: float,
    ) -> torch.Tensor:
        """See `AttentionForm`."""
        query_bounds, key_bounds, key_index = self._on(query.device)
        given = query.dtype
        working = kernel_dtype(query, value)
        query_T, key_T, value_T = (
            tensor[0].transpose(0, 1).to(working) for tensor in (query, key, value)
        )
        sequences = self._sequences
        attended = self._kernel(
            query_T,
            key_T[key_index],
            value_T[key_index],
            query_bounds,
            key_bounds,
            int(np.diff(sequences.query_bounds).max()),
            int(np.diff(sequences.key_bounds).max()),
            scaling=scaling,
            dropout=dropout,
        )
        return attended.to(given)[None]

    def _on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if device not in self._tensors:
            sequences = self._sequences
            bounds = [
                torch.as_tensor(bounds, dtype=torch.int32, device=device)
                for bounds in (sequences.query_bounds, sequences.key_bounds)
            ]
            index = torch.as_tensor(sequences.key_index, device=device)
            self._tensors[device] = (bounds[0], bounds[1], index)
        return self._tensors[device]


def kernel_dtype(query: torch.Tensor, value: torch.Tensor) -> Any:
    """Of attention: autocast's, where it is on (rotary positions leave it), else the value's."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
