"""Rows of several batches as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_batch import marked, text_batch

from fastrl.trl.batch import select_rows, trim_padding
from fastrl.trl.merging import blank_row, merge_rows

GRID = {
    "pixel_values": torch.cat([marked(0, 0, 4, 5), marked(2, 0, 8, 5), marked(2, 1, 4, 5)]),
    "image_grid_thw": torch.tensor([[1, 2, 2], [1, 2, 4], [1, 2, 2]]),
    "num_images": [1, 0, 2],
    "mm_token_type_ids": torch.arange(3).unsqueeze(1).repeat(1, 7),
}
POSITIONS = {
    "pixel_values": torch.stack([marked(0, 0, 1, 2)[0], *marked(2, 0, 2, 2)]),
    "image_position_ids": torch.tensor([[0], [20], [21]]),
    "num_images": [1, 0, 2],
    "token_type_ids": torch.arange(3).unsqueeze(1).repeat(1, 7),
}
SPATIAL = {
    "pixel_values": torch.cat([marked(0, 0, 2, 4), marked(2, 0, 3, 4)]),
    "pixel_attention_mask": torch.tensor([[1], [2], [21], [22], [23]]),
    "spatial_shapes": torch.tensor([[1, 1], [1, 2], [2, 1], [2, 2], [2, 3]]),
    "num_images": [1, 0, 2],
    "num_tiles": [2, 0, 3],
}
TILES = {
    "pixel_values": torch.cat([marked(0, 0, 3, 3, 2, 2), marked(2, 0, 2, 3, 2, 2)]),
    "num_images": [1, 0, 1],
    "num_tiles": [3, 0, 2],
}
IMAGES = {
    "pixel_values": torch.cat([marked(0, 0, 2, 3), marked(2, 0, 1, 3)]),
    "image_sizes": torch.tensor([[1, 1], [2, 2], [11, 11]]),
    "num_images": [2, 0, 1],
}
# Idefics: a row of pictures per sample, padded to the largest number.
ROWS = {
    "pixel_values": torch.stack([marked(0, 0, 2, 3), torch.zeros(2, 3), marked(2, 0, 2, 3)]),
    "pixel_attention_mask": torch.tensor([[1, 1], [0, 0], [1, 1]]).unsqueeze(2),
    "num_images": [2, 0, 2],
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "text": {},
    "grid": GRID,
    "positions": POSITIONS,
    "spatial": SPATIAL,
    "tiles": TILES,
    "images": IMAGES,
    "rows": ROWS,
}


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, right[key], msg=key)
        else:
            assert value == right[key], key


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [[[0, 1], [2]], [[1], [2, 0]], [[2], [1], [0]], [[1, 2, 0]]])
def test_merging_undoes_taking_apart(layout: str, parts: list[list[int]]) -> None:
    """Row 1 has no picture, so that a batch without any is among them."""
    batch = text_batch(3) | LAYOUTS[layout]
    if "mm_token_type_ids" in batch:
        batch["mm_token_type_ids"][1] = 0  # as TRL has it for a row without pictures
    taken = [select_rows(batch, np.array(rows)) for rows in parts]
    wanted = select_rows(batch, np.array([row for rows in parts for row in rows]))
    same(merge_rows(taken, 0), wanted)


def test_widths_become_common() -> None:
    """Prompts grow on the left, completions on the right; trimming gives the short one back."""
    short = text_batch(1, prompt=2, completion=3)
    long = text_batch(2, prompt=4, completion=5)
    for batch in (short, long):
        batch["sampling_per_token_logps"] = -batch["completion_ids"].float()
        batch["mm_token_type_ids"] = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    merged = merge_rows([short, long], pad_token_id=9)
    assert merged["prompt_ids"][0].tolist() == [9, 9, 0, 1]
    assert merged["prompt_mask"][0].tolist() == [0, 0, 1, 1]
    assert merged["completion_ids"][0].tolist() == [50, 51, 52, 9, 9]
    assert merged["completion_mask"][0].tolist() == [1, 1, 1, 0, 0]
    assert merged["sampling_per_token_logps"][0].tolist() == [-50, -51, -52, 0, 0]
    assert merged["mm_token_type_ids"][0].tolist() == [0, 0, 0, 1, 50, 51, 52, 0, 0]
    same(trim_padding(select_rows(merged, np.array([0]))), short)
    same(select_rows(merged, np.array([1, 2])), long | {"num_items_in_batch": torch.tensor(3)})


def test_rows_of_pictures_padded_to_other_numbers() -> None:
    """Idefics pads to the most pictures of a batch: processes differ."""
    one = text_batch(1) | {
        "pixel_values": torch.ones(1, 1, 3, 4, 4),
        "pixel_attention_mask": torch.ones(1, 1, 4, 4),
        "num_images": [1],
    }
    two = text_batch(1) | {
        "pixel_values": torch.full((1, 2, 3, 5, 4), 2.0),
        "pixel_attention_mask": torch.ones(1, 2, 5, 4),
        "num_images": [2],
    }
    merged = merge_rows([one, two], 0)
    assert merged["pixel_values"].shape == (2, 2, 3, 5, 4)
    assert merged["pixel_values"][0].sum() == 3 * 4 * 4
    assert merged["pixel_attention_mask"][0].sum() == 4 * 4
    assert merged["num_images"] == [1, 2]


def test_positions_are_padded_with_minus_one() -> None:
    batches = [
        text_batch(1)
        | {
            "pixel_values": torch.ones(1, patches, 2),
            "image_position_ids": torch.ones(1, patches, 2, dtype=torch.long),
            "num_images": [1],
        }
        for patches in (2, 3)
    ]
    merged = merge_rows(batches, 0)
    assert merged["image_position_ids"][0].tolist() == [[1, 1], [1, 1], [-1, -1]]
    assert merged["pixel_values"][0, 2].tolist() == [0.0, 0.0]


def test_a_key_that_only_some_have_is_told() -> None:
    with pytest.raises(ValueError, match="tool_mask is in some and not in others"):
        merge_rows([text_batch(1), text_batch(1) | {"tool_mask": torch.ones(1, 4)}], 0)


def test_a_blank_row_is_the_shortest_and_counts_nothing() -> None:
    batch = text_batch(3)
    batch["prompt_mask"] = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]])
    blank = blank_row(batch)
    assert blank["prompt_ids"][0].tolist() == [100, 101, 102]
    assert blank["completion_mask"].tolist() == [[0] * 4]
    assert batch["completion_mask"].sum() == 12
    assert trim_padding(blank)["prompt_ids"].tolist() == [[102]]
    assert trim_padding(blank)["completion_ids"].shape == (1, 1)


def test_a_blank_row_has_a_picture_where_there_is_one() -> None:
    """The vision tower must take part on every process."""
    batch = text_batch(3) | GRID
    batch["prompt_mask"] = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]])
    blank = blank_row(batch)
    assert blank["num_images"] == [2]
    assert blank["pixel_values"].unique().tolist() == [20.0, 21.0]
