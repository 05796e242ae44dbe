"""A chunk of rows scored in one call of the model, behind shared prefixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fastrl.trl.shared_prefix.attention import KEYWORD, AttentionForm
from fastrl.trl.shared_prefix.packing import Packing, pack_rows
from fastrl.trl.shared_prefix.pictures import RowPictures


@dataclass(frozen=True)
class Chunk:
    """B rows as TRL scores them.

    Attributes:
        input_ids, attention_mask: (B, W) prompts, padded on the left, then completions.
        completion_width: columns of the completions.
        pictures: of the rows; None where the batch has none.
        mm_token_type_ids: (B, W) which tokens are pictures', or None.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    completion_width: int
    pictures: RowPictures | None = None
    mm_token_type_ids: torch.Tensor | None = None

    def pack(self) -> Packing:
        """The packed row of the chunk."""
        pictures = self.pictures
        return pack_rows(
            self.input_ids.cpu().numpy(),
            self.attention_mask.bool().cpu().numpy(),
            self.completion_width,
            None if pictures is None else pictures.same,
            None if pictures is None else pictures.num_images,
        )


def packed_inputs(
    chunk: Chunk,
    packing: Packing,
    form: AttentionForm,
    rope_index: Callable[..., Any] | None,
) -> dict[str, Any]:
    """The model's arguments for a packed row.

    Labels are shifted already: a completion's tokens are asked for where they are predicted.

    Args:
        rope_index: the model's own `get_rope_index`; None for one position a token.
    """
    device = chunk.input_ids.device
    source_T, target_T = (
        torch.as_tensor(numbers, device=device) for numbers in (packing.source_T, packing.target_T)
    )
    flat = chunk.input_ids.reshape(-1)
    inputs = {
        "input_ids": flat[source_T][None],
        "position_ids": _positions(chunk, packing, rope_index),
        # Four axes: transformers takes it as it is, and makes no (T, T) mask.
        "attention_mask": torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=device),
        "shift_labels": torch.where(target_T >= 0, flat[target_T.clamp(min=0)], -100)[None],
        KEYWORD: form,
    }
    if chunk.pictures is not None:
        inputs |= chunk.pictures.select(packing.first_rows).inputs()
    return inputs


def _positions(
    chunk: Chunk, packing: Packing, rope_index: Callable[..., Any] | None
) -> torch.Tensor:
    """(1, T), or (3, 1, T) where the model has positions for pictures: those that the host gives.

    A row's column is its position, padding counted, as in the host without pictures.
    """
    device, width = chunk.input_ids.device, chunk.input_ids.shape[1]
    column_T = torch.as_tensor(packing.source_T % width, device=device)
    pictures, kinds = chunk.pictures, chunk.mm_token_type_ids
    has_grids = pictures is not None and pictures.grids_B is not None
    if rope_index is None or not has_grids or kinds is None or pictures is None:
        return column_T[None]
    rows, start = list(packing.first_rows), width - chunk.completion_width
    mask_GP = chunk.attention_mask[rows, :start]
    prompts_3GP, _ = rope_index(
        input_ids=chunk.input_ids[rows, :start],
        mm_token_type_ids=kinds[rows, :start],
        image_grid_thw=pictures.select(rows).inputs().get("image_grid_thw"),
        attention_mask=mask_GP,
    )
    group_T, step_T = (
        torch.as_tensor(numbers, device=device) for numbers in (packing.group_T, packing.step_T)
    )
    # A completion goes on after the largest position of its prompt, one by one.
    next_G = prompts_3GP.masked_fill(mask_GP[None] == 0, -1).amax(dim=(0, 2)) + 1
    after_T = next_G[group_T] + step_T - mask_GP.sum(dim=1)[group_T]
    in_prompt_T = column_T < start
    of_prompt_3T = prompts_3GP[:, group_T, column_T.clamp(max=start - 1)]
    return torch.where(in_prompt_T, of_prompt_3T, after_T)[:, None]


def in_rows(values_1T: torch.Tensor, chunk: Chunk, packing: Packing) -> torch.Tensor:
    """(B, C) what stands at each completion token; zero at padding, as the host has it.

    Connected to the model even where no row has a token: every process then passes gradients.
    """
    rows, width = chunk.input_ids.shape
    device = values_1T.device
    target_T = torch.as_tensor(packing.target_T, device=device)
    scored = torch.as_tensor((packing.target_T >= 0).nonzero()[0], device=device)
    values = values_1T[0]
    whole = values.new_zeros(rows * width).index_put((target_T[scored],), values[scored])
    if not len(scored):
        whole = whole + values.sum() * 0
    return whole.view(rows, width)[:, -chunk.completion_width :]


def score_packed(
    model: Any,
    chunk: Chunk,
    packing: Packing,
    form: AttentionForm,
    rope_index: Callable[..., Any] | None = None,
    compute_entropy: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(B, C) log-probs of the completions, and their entropies if asked for.

    Args:
        model: with TRL's fused head, wrapped or not; its text layers attend by the form of a call
            (`let_calls_choose`).
        chunk, packing: the rows, and how they are packed.
        form: the attention of this packing's layout.
        rope_index: the model's own `get_rope_index`, where it has one.
        compute_entropy: whether entropies are wanted.
    """
    output = model(**packed_inputs(chunk, packing, form, rope_index), fused_lm_head=True)
    entropies = in_rows(output.entropy, chunk, packing) if compute_entropy else None
    return in_rows(output.log_probs, chunk, packing), entropies
