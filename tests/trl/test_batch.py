"""Rows of a TRL batch: every kept sample has exactly its own pictures; only padding goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fastrl.trl.batch import select_rows, trim_padding


def text_batch(rows: int = 4, prompt: int = 3, completion: int = 4) -> dict[str, Any]:
    """Row i's values are 100 i and up; prompts padded left, completions right."""
    numbers = torch.arange(rows).unsqueeze(1) * 100
    prompt_mask = torch.ones(rows, prompt, dtype=torch.long)
    completion_mask = torch.ones(rows, completion, dtype=torch.long)
    return {
        "prompt_ids": numbers + torch.arange(prompt),
        "prompt_mask": prompt_mask,
        "completion_ids": numbers + 50 + torch.arange(completion),
        "completion_mask": completion_mask,
        "advantages": torch.arange(rows, dtype=torch.float32),
        "num_items_in_batch": torch.tensor(rows * completion),
    }


def marked(row: int, part: int, size: int, *shape: int) -> torch.Tensor:
    """`size` pixel rows that say whose they are."""
    return torch.full((size, *shape), 10.0 * row + part)


# -- select_rows --------------------------------------------------------------------------


def test_text_rows_come_in_the_order_asked_for() -> None:
    batch = text_batch()
    selected = select_rows(batch, np.array([3, 1]))
    assert selected["prompt_ids"][:, 0].tolist() == [300, 100]
    assert selected["completion_ids"][:, 0].tolist() == [350, 150]
    assert selected["advantages"].tolist() == [3.0, 1.0]
    assert selected["num_items_in_batch"] is batch["num_items_in_batch"]


def test_grid_layout_with_several_pictures_and_none() -> None:
    num_images = [2, 0, 1, 3]
    grids, pixels = [], []
    for row, number in enumerate(num_images):
        for part in range(number):
            grids.append([1, 2, 2 + 2 * part])
            pixels.append(marked(row, part, 4 + 4 * part, 5))
    batch = text_batch() | {
        "pixel_values": torch.cat(pixels),
        "image_grid_thw": torch.tensor(grids),
        "num_images": num_images,
        "mm_token_type_ids": torch.arange(4).unsqueeze(1).repeat(1, 7),
    }
    selected = select_rows(batch, np.array([3, 1, 0]))
    assert selected["num_images"] == [3, 0, 2]
    assert selected["image_grid_thw"].tolist() == [
        *([1, 2, 2], [1, 2, 4], [1, 2, 6]),
        *([1, 2, 2], [1, 2, 4]),
    ]
    wanted = [30.0] * 4 + [31.0] * 8 + [32.0] * 12 + [0.0] * 4 + [1.0] * 8
    assert selected["pixel_values"][:, 0].tolist() == wanted
    assert selected["mm_token_type_ids"][:, 0].tolist() == [3, 1, 0]


def test_grid_layout_of_a_selection_without_pictures() -> None:
    batch = text_batch() | {
        "pixel_values": torch.cat([marked(0, 0, 4, 5), marked(2, 0, 4, 5)]),
        "image_grid_thw": torch.tensor([[1, 2, 2], [1, 2, 2]]),
        "num_images": [1, 0, 1, 0],
    }
    for rows in ([1, 3], []):
        selected = select_rows(batch, np.array(rows, dtype=np.int64))
        assert not selected.keys() & {"pixel_values", "image_grid_thw", "num_images"}
        assert len(selected["prompt_ids"]) == len(rows)


def test_position_layout() -> None:
    batch = text_batch(3) | {
        "pixel_values": torch.stack([marked(0, 0, 1, 2)[0], *marked(2, 0, 2, 2)]),
        "image_position_ids": torch.tensor([[0], [20], [21]]),
        "num_images": [1, 0, 2],
    }
    selected = select_rows(batch, np.array([2, 0]))
    assert selected["image_position_ids"].tolist() == [[20], [21], [0]]
    assert selected["pixel_values"][:, 0].tolist() == [20.0, 20.0, 0.0]
    assert selected["num_images"] == [2, 1]


def test_tile_layout_with_spatial_shapes() -> None:
    tiles = [2, 0, 3]
    batch = text_batch(3) | {
        "pixel_values": torch.cat([marked(0, 0, 2, 4), marked(2, 0, 3, 4)]),
        "pixel_attention_mask": torch.tensor([[1], [2], [21], [22], [23]]),
        "spatial_shapes": torch.tensor([[1, 1], [1, 2], [2, 1], [2, 2], [2, 3]]),
        "num_images": [1, 0, 2],
        "num_tiles": tiles,
    }
    selected = select_rows(batch, np.array([2, 1, 0]))
    assert selected["pixel_values"][:, 0].tolist() == [20.0] * 3 + [0.0] * 2
    assert selected["pixel_attention_mask"].flatten().tolist() == [21, 22, 23, 1, 2]
    assert selected["spatial_shapes"].tolist() == [[2, 1], [2, 2], [2, 3], [1, 1], [1, 2]]
    assert selected["num_tiles"] == [3, 0, 2]


def test_tile_layout_without_spatial_shapes() -> None:
    batch = text_batch(3) | {
        "pixel_values": torch.cat([marked(0, 0, 3, 3, 2, 2), marked(2, 0, 2, 3, 2, 2)]),
        "num_images": [1, 0, 1],
        "num_tiles": [3, 0, 2],
    }
    selected = select_rows(batch, np.array([2]))
    assert selected["pixel_values"].shape == (2, 3, 2, 2)
    assert selected["pixel_values"].unique().tolist() == [20.0]
    assert selected["num_tiles"] == [2]


def test_image_layout() -> None:
    batch = text_batch(3) | {
        "pixel_values": torch.cat([marked(0, 0, 2, 3), marked(1, 0, 1, 3)]),
        "image_sizes": torch.tensor([[1, 1], [2, 2], [11, 11]]),
        "num_images": [2, 1, 0],
    }
    selected = select_rows(batch, np.array([2, 1, 0]))
    assert selected["pixel_values"][:, 0].tolist() == [10.0, 0.0, 0.0]
    assert selected["image_sizes"].tolist() == [[11, 11], [1, 1], [2, 2]]
    assert selected["num_images"] == [0, 1, 2]


def test_row_layout() -> None:
    """Idefics: a row of pictures per sample, padded to the largest number."""
    batch = text_batch(3) | {
        "pixel_values": torch.stack([marked(row, 0, 2, 3) for row in range(3)]),
        "pixel_attention_mask": torch.arange(3).view(3, 1, 1).repeat(1, 2, 1),
        "num_images": [2, 0, 2],
    }
    selected = select_rows(batch, np.array([2, 0]))
    assert selected["pixel_values"][:, 0, 0].tolist() == [20.0, 0.0]
    assert selected["pixel_attention_mask"][:, 0, 0].tolist() == [2, 0]
    assert "pixel_values" not in select_rows(batch, np.array([1]))


def test_pictures_that_trl_gave_up_stay_away() -> None:
    batch = text_batch(2) | {"num_images": None, "mm_token_type_ids": torch.zeros(2, 7)}
    assert select_rows(batch, np.array([1]))["num_images"] is None


# -- trim_padding -------------------------------------------------------------------------


def padded_batch() -> dict[str, Any]:
    """Prompts of 1 and 2 of 4 tokens, completions of 2 and 3 of 5."""
    batch = text_batch(2, prompt=4, completion=5)
    batch["prompt_mask"] = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]])
    batch["completion_mask"] = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    columns = torch.arange(9).repeat(2, 1)
    return batch | {
        "tool_mask": torch.arange(5).repeat(2, 1),
        "old_per_token_logps": torch.arange(5).repeat(2, 1),
        "ref_per_token_logps": torch.arange(5).repeat(2, 1),
        "sampling_per_token_logps": torch.arange(5).repeat(2, 1),
        "importance_sampling_ratio": torch.ones(2, 1),
        "token_type_ids": columns,
        "mm_token_type_ids": columns,
        "pixel_values": torch.zeros(8, 5),
        "image_grid_thw": torch.tensor([[1, 2, 2], [1, 2, 2]]),
        "num_images": [1, 1],
    }


def test_every_key_is_trimmed_on_its_own_side() -> None:
    trimmed = trim_padding(padded_batch())
    assert trimmed["prompt_ids"].tolist() == [[2, 3], [102, 103]]
    assert trimmed["prompt_mask"].tolist() == [[0, 1], [1, 1]]
    assert trimmed["completion_ids"].tolist() == [[50, 51, 52], [150, 151, 152]]
    for key in ("tool_mask", "old_per_token_logps", "ref_per_token_logps"):
        assert trimmed[key].tolist() == [[0, 1, 2]] * 2
    assert trimmed["sampling_per_token_logps"].tolist() == [[0, 1, 2]] * 2
    assert trimmed["importance_sampling_ratio"].shape == (2, 1)
    for key in ("token_type_ids", "mm_token_type_ids"):
        assert trimmed[key].tolist() == [[2, 3, 4, 5, 6]] * 2
    assert trimmed["pixel_values"].shape == (8, 5)
    assert trimmed["advantages"].tolist() == [0.0, 1.0]


def test_widths_stay_multiples() -> None:
    trimmed = trim_padding(padded_batch(), multiple_of=2)
    assert trimmed["prompt_ids"].shape[1] == 2
    assert trimmed["completion_ids"].shape[1] == 4
    assert trimmed["mm_token_type_ids"].shape[1] == 6


def test_a_column_always_stays() -> None:
    batch = padded_batch()
    batch["completion_mask"] = torch.zeros_like(batch["completion_mask"])
    assert trim_padding(batch)["completion_ids"].shape == (2, 1)
