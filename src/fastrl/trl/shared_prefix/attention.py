"""Attention over a packed row: the interface registered with transformers, and its plain form."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from fastrl.trl.shared_prefix.layout import PackedLayout

# The name in transformers' registry, and the keyword under which a call carries its form.
INTERFACE = "fastrl_shared_prefix"
KEYWORD = "shared_prefix"
# Queries of a span computed at once: keys that come after all of them are not touched.
BLOCK = 256


class AttentionForm(Protocol):
    """A way to compute the attention of one packed row; made anew for every row."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        dropout: float,
    ) -> torch.Tensor:
        """(1, T, heads, width) what each token takes in.

        Args:
            query: (1, heads, T, width).
            key, value: (1, key heads, T, width).
            scaling: of the scores; None for 1 / sqrt(width).
            dropout: share of the weights that are dropped.
        """


def shared_prefix_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in every text layer; the form that the call carries does the work."""
    form: AttentionForm = kwargs[KEYWORD]
    return form(query, key, value, scaling=scaling, dropout=dropout), None


AttentionInterface.register(INTERFACE, shared_prefix_attention)


class _ByCall:
    """Hooks of one attention module: where a call carries a form, that form attends.

    Hooks, for gradient checkpointing runs layers again in the backward pass, whenever that is.
    """

    def __init__(self) -> None:
        self._before: str | None = None

    def enter(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Before the module: choose our interface for a call that carries a form."""
        current = module.config._attn_implementation
        if KEYWORD in kwargs and current != INTERFACE:
            self._before = current
            module.config._attn_implementation = INTERFACE

    def leave(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """After it, whether it failed or not: the model's own again."""
        if self._before is not None:
            module.config._attn_implementation = self._before
            self._before = None


def let_calls_choose(decoder: torch.nn.Module) -> int:
    """From now on the text layers attend by the form of a call that carries one; others as before.

    Args:
        decoder: the text model; a vision tower beside it keeps its own attention.

    Returns:
        Attention modules that were found.
    """
    found = [module for module in decoder.modules() if hasattr(module, "num_key_value_groups")]
    for module in found:
        hooks = _ByCall()
        module.register_forward_pre_hook(hooks.enter, with_kwargs=True)
        module.register_forward_hook(hooks.leave, with_kwargs=True, always_call=True)
    return len(found)


class SplitAttention:
    """Stretch by stretch with torch's own attention: exact on every device and in every type."""

    def __init__(self, layout: PackedLayout) -> None:
        self._stretches = list(layout.stretches())
        self._most_keys = max(stretch.keys for stretch in self._stretches)
        self._masks: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

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
        # Split, not sliced: the backward pass of a slice fills a whole row with zeros.
        lengths = [stretch.queries for stretch in self._stretches]
        pieces = (torch.split(row, lengths, dim=2) for row in (query, key, value))
        repeats = query.shape[1] // key.shape[1]
        settings: dict[str, Any] = {"scale": scaling, "dropout_p": dropout}
        prefix_keys = prefix_values = key
        parts = []
        for stretch, queries, keys, values in zip(self._stretches, *pieces, strict=True):
            if stretch.prefix[0] == stretch.prefix[1]:
                # A prefix comes before the stretches that see it.
                prefix_keys, prefix_values = keys, values
                parts.append(
                    scaled_dot_product_attention(
                        queries, keys, values, is_causal=True, enable_gqa=repeats > 1, **settings
                    )
                )
                continue
            keys = torch.cat([prefix_keys, keys], dim=2)
            values = torch.cat([prefix_values, values], dim=2)
            if repeats > 1:
                keys = keys.repeat_interleave(repeats, dim=1)
                values = values.repeat_interleave(repeats, dim=1)
            seen = stretch.keys - stretch.queries
            for block in queries.split(BLOCK, dim=2):
                seen += block.shape[2]
                mask = self._mask(block.shape[2], seen, query)
                parts.append(
                    scaled_dot_product_attention(
                        block, keys[:, :, :seen], values[:, :, :seen], attn_mask=mask, **settings
                    )
                )
        attended = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return attended.transpose(1, 2).contiguous()

    def _mask(self, queries: int, keys: int, like: torch.Tensor) -> torch.Tensor:
        """(queries, keys) what is added to the scores: the last of both are the same token.

        Cut out of one mask for all stretches and layers, for each is kept for the backward pass.
        """
        name = (like.dtype, like.device)
        if name not in self._masks:
            whole = like.new_full((BLOCK, self._most_keys + BLOCK), float("-inf"))
            self._masks[name] = whole.triu(self._most_keys + 1)
        first = self._most_keys + queries - keys
        return self._masks[name][:queries, first : first + keys]
