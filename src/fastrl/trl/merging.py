"""Rows of several batches as one batch, whatever their widths and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from trl.trainer.utils import unsplit_pixel_values_by_grid

from fastrl.trl.batch import FULL_WIDTH_KEYS, PICTURE_KEYS, num_rows, select_rows, split_pictures

# What stands in the padding that processors add themselves, where it is not zero.
PICTURE_PADDING = {"image_position_ids": -1}


def merge_rows(batches: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The rows of all batches in order, padded to common widths.

    A batch without pictures may be merged with one that has some. Values that do not belong to
    rows (`num_items_in_batch`) are those of the first batch.

    Args:
        batches: TRL batches of at least one row each.
        pad_token_id: token that fills prompts and completions.

    Raises:
        ValueError: a key that some batches lack, unless it holds pictures.
    """
    if len(batches) == 1:
        return batches[0]
    batches = _with_tiles(batches)
    prompt_width = max(batch["prompt_ids"].shape[1] for batch in batches)
    completion_width = max(batch["completion_ids"].shape[1] for batch in batches)
    parts = [
        split_pictures(_widened(batch, prompt_width, completion_width, pad_token_id))
        for batch in batches
    ]
    keys = list(dict.fromkeys(key for part in parts for key in part))
    _check_keys(parts, keys)
    merged = {
        key: _joined(key, parts, prompt_width + completion_width)
        for key in keys
        if any(part.get(key) is not None for part in parts)
    }
    whole: dict[str, Any] = unsplit_pixel_values_by_grid(merged)
    return whole


def blank_row(batch: dict[str, Any]) -> dict[str, Any]:
    """A row that costs little and counts nothing: it fills the places of rows that a rank lacks.

    Its loss, its gradient and its part in TRL's means over tokens are zero, for none of its
    completion's tokens is in the mask; only means of one value a row (clip ratios per sequence,
    VESPO's phi) count it, as a row whose ratio is 1. Yet it passes through the whole model, the
    part for pictures included where the batch has pictures, so that every process takes part in
    what they do together.
    """
    lengths = batch["prompt_mask"].sum(dim=1).cpu().numpy()
    num_images = batch.get("num_images")
    if num_images is not None and sum(num_images):
        lengths = np.where(np.asarray(num_images) > 0, lengths, np.iinfo(np.int64).max)
    row = select_rows(batch, np.array([int(np.argmin(lengths))]))
    row["completion_mask"] = torch.zeros_like(row["completion_mask"])
    return row


def _widened(
    batch: dict[str, Any], prompt_width: int, completion_width: int, pad_token_id: int
) -> dict[str, Any]:
    """Per-token values padded: prompts on the left, completions on the right."""
    old_completion = batch["completion_ids"].shape[1]
    left = prompt_width - batch["prompt_ids"].shape[1]
    right = completion_width - old_completion
    widened: dict[str, Any] = {}
    for key, value in batch.items():
        filler = pad_token_id if key in ("prompt_ids", "completion_ids") else 0
        if not isinstance(value, torch.Tensor) or value.dim() != 2 or key in PICTURE_KEYS:
            widened[key] = value
        elif key.startswith("prompt_"):
            widened[key] = pad(value, (left, 0), value=filler)
        elif key in FULL_WIDTH_KEYS:
            widened[key] = pad(value, (left, right), value=filler)
        elif value.shape[1] == old_completion:
            widened[key] = pad(value, (0, right), value=filler)
        else:
            widened[key] = value
    return widened


def _with_tiles(batches: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Counts of tiles for all where one batch has them: TRL's has them if some picture has two."""
    if not any("num_tiles" in batch for batch in batches):
        return batches
    return [
        {**batch, "num_tiles": list(batch["num_images"])}
        if "pixel_values" in batch and "num_tiles" not in batch
        else batch
        for batch in batches
    ]


def _check_keys(parts: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    may_lack = (*PICTURE_KEYS, *FULL_WIDTH_KEYS)
    lacking = [
        key for key in keys if key not in may_lack and any(key not in part for part in parts)
    ]
    if lacking:
        raise ValueError(
            f"rows of several batches cannot be joined: {', '.join(lacking)} is in some and not in "
            "others; _generate_and_score_completions must return the same keys on every process."
        )


def _joined(key: str, parts: Sequence[dict[str, Any]], full_width: int) -> Any:
    """One key of all batches; where a batch lacks it, what TRL has for rows without a picture."""
    given = [part for part in parts if part.get(key) is not None]
    # Where every row happens to have one picture, TRL takes a row of pictures for a picture.
    like, rows = min(
        ((part[key], num_rows(part)) for part in given), key=lambda one: isinstance(one[0], list)
    )
    if not _is_per_row(like, rows):
        return like
    if isinstance(like, list):
        absent = like[0][:0] if isinstance(like[0], torch.Tensor) else 0
        joined = [value for part in parts for value in (part.get(key) or [absent] * num_rows(part))]
        return _padded_alike(key, joined) if isinstance(joined[0], torch.Tensor) else joined
    width = (full_width,) if key in FULL_WIDTH_KEYS else like.shape[1:]
    tensors = []
    for part in parts:
        value = part.get(key)
        if value is None:
            value = like.new_zeros((num_rows(part), *width))
        tensors.append(torch.cat(value) if isinstance(value, list) else value)
    return torch.cat(_padded_alike(key, tensors) if key in PICTURE_KEYS else tensors)


def _is_per_row(value: Any, rows: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and value.shape[0] == rows
    return isinstance(value, list) and len(value) == rows


def _padded_alike(key: str, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors padded at the end of every axis but the first, as processors pad within a batch."""
    widest = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    padded = []
    for value in values:
        missing = [wide - size for wide, size in zip(widest, value.shape[1:], strict=True)]
        widths = [width for size in reversed(missing) for width in (0, size)]
        padded.append(
            pad(value, widths, value=PICTURE_PADDING.get(key, 0)) if any(widths) else value
        )
    return padded
