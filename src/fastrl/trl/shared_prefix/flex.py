"""A packed row as a block mask of torch's flex attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from fastrl.trl.shared_prefix.layout import PackedLayout


def block_mask(layout: PackedLayout, device: torch.device) -> BlockMask:
    """(1, 1, T, T) who sees whom; blocks in which nobody does are never computed."""
    group_T, segment_T = (
        torch.as_tensor(numbers, device=device) for numbers in layout.group_and_segment()
    )

    def sees(batch: Any, head: Any, query: Any, key: Any) -> Any:
        of_prefix = segment_T[key] == 0
        reachable = of_prefix | (segment_T[key] == segment_T[query])
        return (query >= key) & (group_T[query] == group_T[key]) & reachable

    return create_block_mask(sees, None, None, layout.length, layout.length, device=device)


@lru_cache(maxsize=1)
def compiled_flex() -> Callable[..., Any]:
    """Torch's flex attention, compiled once."""
    return torch.compile(flex_attention, dynamic=True)  # type: ignore[no-any-return,unused-ignore]


class FlexAttention:
    """All groups in one call of flex attention."""

    def __init__(self, layout: PackedLayout, kernel: Callable[..., Any]) -> None:
        self._layout = layout
        self._kernel = kernel
        self._masks: dict[torch.device, BlockMask] = {}

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        dropout: float,
    ) -> torch.Tensor:
        """See `AttentionForm`.

        Raises:
            ValueError: dropout, which flex attention does not have.
        """
        if dropout:
            raise ValueError(f"attention dropout = {dropout}: flex attention has none; set it 0")
        if query.device not in self._masks:
            self._masks[query.device] = block_mask(self._layout, query.device)
        repeats = query.shape[1] // key.shape[1]
        if repeats & (repeats - 1):
            # Its kernels share a key head among a power of two of heads (Qwen2.5-7B has seven).
            key, value = (heads.repeat_interleave(repeats, dim=1) for heads in (key, value))
        attended: torch.Tensor = self._kernel(
            query.to(value.dtype),
            key.to(value.dtype),
            value,
            block_mask=self._masks[query.device],
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended.transpose(1, 2).contiguous()
