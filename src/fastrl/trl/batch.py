"""Rows of a TRL generation batch: selecting them, trimming padding, planning micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from fastrl.core import balanced_shares

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
    for key, value in split_pixel_values_by_grid(batch).items():
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == total:
            selected[key] = value[index.to(value.device)]
        elif isinstance(value, list) and len(value) == total:
            selected[key] = [value[row] for row in index.tolist()]
        else:
            selected[key] = value
    selected = unsplit_pixel_values_by_grid(selected)
    if "num_images" in selected and sum(selected["num_images"]) == 0:
        for key in PICTURE_KEYS:
            selected.pop(key, None)
    return selected


def trim_padding(batch: dict[str, Any]) -> dict[str, Any]:
    """Drop the columns that are padding in every row: left of the prompts, right of the answers.

    Fewer rows are often shorter rows; log-probs and losses stay the same. At least one column of
    the prompt and of the completion always stays.
    """
    prompt_width = batch["prompt_ids"].shape[1]
    completion_width = batch["completion_ids"].shape[1]
    prompt_used = int(batch["prompt_mask"].sum(dim=1).max())
    completion_used = int(_last_token(batch).max())
    left = prompt_width - max(1, prompt_used)
    right = max(1, completion_used)
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


def _last_token(batch: dict[str, Any]) -> torch.Tensor:
    """(N,) columns up to the last real completion token."""
    mask = batch["completion_mask"].bool()
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * positions).max(dim=1).values


def loss_mask(batch: dict[str, Any]) -> torch.Tensor:
    """(N, C) tokens that the host's loss counts."""
    mask: torch.Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def token_counts(batch: dict[str, Any]) -> npt.NDArray[np.int64]:
    """(N,) prompt and completion tokens of each row, padding not counted."""
    counts = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
    return np.asarray(counts.cpu().numpy(), dtype=np.int64)


def completion_rows(batch: dict[str, Any]) -> list[npt.NDArray[np.int64]]:
    """N ragged rows of completion token ids, without padding."""
    ids = batch["completion_ids"].cpu().numpy()
    mask = batch["completion_mask"].cpu().numpy().astype(bool)
    return [row[used] for row, used in zip(ids, mask, strict=True)]


def plan_micro_batches(
    tokens_K: Sequence[int] | npt.NDArray[np.int64],
    windows: int,
    micro_batches: int,
    max_rows: int,
    rng: np.random.Generator,
) -> list[list[npt.NDArray[np.int64]]]:
    """Deal K rows to update windows, and each window's rows to micro-batches.

    Windows get equal row counts and balanced token sums. A window fills as few micro-batches as
    `max_rows` allows, balanced by tokens; those left over are empty and come first, so that the
    last micro-batch of a window (where gradients are synchronised) has rows whenever one has.

    Args:
        tokens_K: (K,) tokens of each row.
        windows: update windows in the generation batch.
        micro_batches: micro-batches in a window.
        max_rows: rows of a micro-batch at most (the user's per-device batch).
        rng: shuffles rows of equal length, so that a group does not always land together.

    Returns:
        `windows` lists of `micro_batches` arrays of row numbers.
    """
    tokens = np.asarray(tokens_K, dtype=np.int64)
    shuffled = rng.permutation(len(tokens))
    plan = []
    for share in balanced_shares(tokens[shuffled], windows):
        rows = shuffled[share]
        filled = -(-len(rows) // max_rows)
        packed: list[npt.NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * (
            micro_batches - filled
        )
        if filled:
            packed += [rows[part] for part in balanced_shares(tokens[rows], filled)]
        plan.append(packed)
    return plan
