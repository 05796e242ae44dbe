"""Rows of a TRL generation batch: selecting them, and trimming padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

# The keys of a batch that hold pictures; without a picture left none of them may be passed on.
PICTURE_KEYS = (
    "pixel_values",
    "image_grid_thw",
    "image_position_ids",
    "pixel_attention_mask",
    "spatial_shapes",
    "image_sizes",
    "num_images",
    "num_tiles",
)
# Per-token keys of width P + C, beside those of width P (prompt) and C (completion).
FULL_WIDTH_KEYS = ("token_type_ids", "mm_token_type_ids")


def num_rows(batch: dict[str, Any]) -> int:
    """Rollouts in a batch."""
    return int(batch["completion_ids"].shape[0])


def split_pictures(batch: dict[str, Any]) -> dict[str, Any]:
    """TRL's split of pixels by row, which knows its layouts by their sizes.

    Idefics and SmolVLM pad all pictures of a row into one row of pixels, with a mask. Where there
    are as many pictures as rows, though not one in each, TRL's helper takes theirs for a row of
    pixels a picture (LLaVA's layout) and hands a row the pixels of the next.
    """
    if "pixel_attention_mask" in batch and "spatial_shapes" not in batch:
        return dict(batch)
    split: dict[str, Any] = split_pixel_values_by_grid(batch)
    return split


def select_rows(batch: dict[str, Any], rows_K: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The given rows of a batch, in the given order, every one with exactly its own pictures.

    Args:
        batch: N rollouts as TRL's `_generate_and_score_completions` returns them. Pixel rows may
            belong to patches, pictures or tiles: TRL's own helpers take them apart and together.
        rows_K: (K,) row numbers.
    """
    total = num_rows(batch)
    index = torch.as_tensor(rows_K, dtype=torch.long)
    selected: dict[str, Any] = {}
    for key, value in split_pictures(batch).items():
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == total:
            selected[key] = value[index.to(value.device)]
        elif isinstance(value, list) and len(value) == total:
            selected[key] = [value[row] for row in index.tolist()]
        else:
            selected[key] = value
    # TRL says None where it had to give up a batch's pictures, and has dropped them itself.
    if selected.get("num_images") is not None and sum(selected["num_images"]) == 0:
        for key in PICTURE_KEYS:
            selected.pop(key, None)
    merged: dict[str, Any] = unsplit_pixel_values_by_grid(selected)
    return merged


def trim_padding(batch: dict[str, Any], multiple_of: int = 1) -> dict[str, Any]:
    """Drop the columns that are padding in every row: left of the prompts, right of the answers.

    Fewer rows are often shorter rows; log-probs and losses stay the same. At least one column of
    the prompt and of the completion always stays.

    Args:
        batch: R rows of a TRL batch.
        multiple_of: both widths stay multiples of this (TRL's `pad_to_multiple_of`).
    """
    prompt_width = batch["prompt_ids"].shape[1]
    completion_width = batch["completion_ids"].shape[1]
    prompt_used = max(1, int(batch["prompt_mask"].sum(dim=1).max()))
    completion_used = max(1, int(_last_token(batch).max()))
    left = prompt_width - min(prompt_width, _rounded_up(prompt_used, multiple_of))
    right = min(completion_width, _rounded_up(completion_used, multiple_of))
    if left == 0 and right == completion_width:
        return batch
    trimmed: dict[str, Any] = {}
    for key, value in batch.items():
        if not isinstance(value, torch.Tensor) or value.dim() != 2 or key in PICTURE_KEYS:
            trimmed[key] = value
        elif key.startswith("prompt_"):
            trimmed[key] = value[:, left:]
        elif key in FULL_WIDTH_KEYS:
            trimmed[key] = value[:, left : prompt_width + right]
        elif value.shape[1] == completion_width:
            trimmed[key] = value[:, :right]
        else:
            trimmed[key] = value
    return trimmed


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _last_token(batch: dict[str, Any]) -> torch.Tensor:
    """(N,) columns up to the last real completion token."""
    mask: torch.Tensor = batch["completion_mask"].bool()
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    last_N: torch.Tensor = (mask * positions).amax(dim=1)
    return last_N


def loss_mask(batch: dict[str, Any]) -> torch.Tensor:
    """(N, C) tokens that the host's loss counts."""
    completion_mask: torch.Tensor = batch["completion_mask"]
    if "tool_mask" not in batch:
        return completion_mask
    tool_mask: torch.Tensor = batch["tool_mask"]
    return completion_mask * tool_mask
