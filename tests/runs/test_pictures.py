"""Pictures small enough to lie beside every generation batch, and still readable."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastrl.runs.pictures import LONGEST_SIDE, small_picture


def opened(picture: Any) -> Image.Image:
    content = small_picture(picture)
    assert content is not None
    return Image.open(io.BytesIO(content))


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def test_drawings_stay_exact() -> None:
    drawing = Image.new("RGB", (112, 90), "white")
    drawing.paste((10, 20, 30), (5, 5, 50, 60))
    found = opened(drawing)
    assert (found.format, found.size) == ("PNG", (112, 90))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(drawing))


def test_photographs_are_scaled_and_bounded() -> None:
    content = small_picture(noise(1600, 1600))
    assert content is not None
    assert len(content) <= 200_000  # noise is the worst that can come
    found = Image.open(io.BytesIO(content))
    assert (found.format, found.size) == ("JPEG", (LONGEST_SIDE, LONGEST_SIDE))
    assert opened(noise(900, 300)).size == (448, 149)


def test_what_is_transparent_is_white() -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert opened(clear).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (4, 4))
    assert opened(palette).mode == "RGB"


def test_encoded_pictures_are_read() -> None:
    target = io.BytesIO()
    Image.new("L", (4, 4), 7).save(target, "PNG")
    assert opened(target.getvalue()).getpixel((0, 0)) == 7
    assert opened({"bytes": target.getvalue(), "path": None}).getpixel((0, 0)) == 7


@pytest.mark.parametrize("value", ["a.png", {"path": "a.png"}, None])
def test_what_is_no_picture(value: Any) -> None:
    assert small_picture(value) is None
