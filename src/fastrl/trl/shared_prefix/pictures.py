"""The pictures of a chunk's rows, taken apart and put together again for the rows that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class RowPictures:
    """What the model is given of the pictures of B rows.

    Attributes:
        pixels_B: the pixels of each row: patches where there are grids, else one row a picture.
        grids_B: (pictures, 3) grids of each row; None where pictures are all of one size.
    """

    pixels_B: tuple[torch.Tensor, ...]
    grids_B: tuple[torch.Tensor, ...] | None

    @classmethod
    def of(
        cls,
        pixel_values: torch.Tensor,
        image_grid_thw: torch.Tensor | None,
        num_images: Sequence[int],
    ) -> RowPictures | None:
        """None where the pixels are laid out in neither of the two ways.

        Args:
            pixel_values: pixels of all rows, one after another.
            image_grid_thw: (pictures, 3) patches of each picture, or None.
            num_images: (B,) pictures of each row.
        """
        counts = list(num_images)
        if image_grid_thw is not None:
            grids = torch.split(image_grid_thw, counts)
            sizes = [int(grid.prod(dim=1).sum()) for grid in grids]
            if sum(sizes) != len(pixel_values):
                return None
            return cls(torch.split(pixel_values, sizes), grids)
        if sum(counts) != len(pixel_values):
            return None
        return cls(torch.split(pixel_values, counts), None)

    @property
    def num_images(self) -> list[int]:
        """(B,) pictures of each row."""
        return [len(part) for part in self.grids_B or self.pixels_B]

    def same(self, first: int, second: int) -> bool:
        """Whether two rows have the same pictures."""
        if self.grids_B is not None and not torch.equal(self.grids_B[first], self.grids_B[second]):
            return False
        return torch.equal(self.pixels_B[first], self.pixels_B[second])

    def select(self, rows: Sequence[int]) -> RowPictures:
        """The pictures of some rows, in the given order."""
        grids = self.grids_B
        return RowPictures(
            tuple(self.pixels_B[row] for row in rows),
            None if grids is None else tuple(grids[row] for row in rows),
        )

    def inputs(self) -> dict[str, Any]:
        """The model's arguments for these rows; none without a picture."""
        if not sum(self.num_images):
            return {}
        inputs = {"pixel_values": torch.cat(self.pixels_B)}
        if self.grids_B is not None:
            inputs["image_grid_thw"] = torch.cat(self.grids_B)
        return inputs
