"""Pictures are processed once per prompt: the rollouts of a group share theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image

# Processors whose pixels lie patch by patch, each picture's extent in a grid (the Qwen-VL family).
GRID_OUTPUTS = {"pixel_values", "image_grid_thw"}


class OncePerPicture:
    """An image processor's stand-in that processes equal pictures once and repeats the outcome.

    Its output is that of the processor itself, to the bit. Whatever else is asked of it the
    processor answers.

    Args:
        image_processor: one that `knows_layout`.
    """

    def __init__(self, image_processor: Any) -> None:
        self._image_processor = image_processor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._image_processor, name)

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        """The processor's output for `images`, nested or not, in their order."""
        pictures = list(_flat(images))
        if not all(isinstance(picture, Image.Image) for picture in pictures):
            return self._image_processor(images, *args, **kwargs)
        # Rows that share pictures are those of a group; without any, groups may hold copies.
        shares = len({id(picture) for picture in pictures}) < len(pictures)
        place_of: dict[Any, int] = {}
        places = [
            place_of.setdefault(id(picture) if shares else _content(picture), len(place_of))
            for picture in pictures
        ]
        if len(place_of) == len(pictures):
            return self._image_processor(images, *args, **kwargs)
        first = [places.index(place) for place in range(len(place_of))]
        output = self._image_processor([pictures[row] for row in first], *args, **kwargs)
        grid = torch.as_tensor(output["image_grid_thw"])
        patches = torch.split(torch.as_tensor(output["pixel_values"]), grid.prod(dim=1).tolist())
        output["pixel_values"] = torch.cat([patches[place] for place in places])
        output["image_grid_thw"] = grid[places]
        return output


def knows_layout(image_processor: Any) -> bool:
    """Whether the outputs of an image processor can be repeated picture by picture."""
    return set(getattr(image_processor, "model_input_names", ())) == GRID_OUTPUTS


@contextmanager
def pictures_once(processor: Any) -> Iterator[None]:
    """While it lasts, a processor processes equal pictures of one call once.

    Args:
        processor: of texts and pictures; it is left as it is if it has no image processor, or one
            whose layout is not known.
    """
    own = getattr(processor, "image_processor", None)
    if own is None or not knows_layout(own):
        yield
        return
    processor.image_processor = OncePerPicture(own)
    try:
        yield
    finally:
        processor.image_processor = own


def _flat(images: Any) -> Iterator[Any]:
    if isinstance(images, list | tuple):
        for inner in images:
            yield from _flat(inner)
    else:
        yield images


def _content(picture: Image.Image) -> tuple[Any, ...]:
    """What makes two pictures equal, be they copies."""
    palette = picture.palette.tobytes() if picture.palette else b""
    transparency = repr(picture.info.get("transparency"))
    pixels = hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
    return picture.mode, picture.size, palette, transparency, pixels
