"""Pictures as data sets hold them: opened when asked for, upright, RGB, within pixel limits."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

# Beyond it vision processors refuse a picture.
MAX_ASPECT = 200
_PLAIN_FORMATS = ("PNG", "JPEG")
# The EXIF tag that says which way is up: 1 is upright.
_ORIENTATION = 0x0112
# What PIL raises for a file that is no picture, is cut short, or has broken contents.
_UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError)


class PictureError(ValueError):
    """A picture is missing or cannot be read; the message says which and why."""


class Picture:
    """One picture of a row, not yet opened.

    Args:
        source: a path, the bytes of an image file, a mapping with `bytes` or `path` (as Hugging
            Face stores pictures), or an opened PIL image.
        folder: what relative paths are relative to.

    Raises:
        PictureError: it is none of these.
    """

    def __init__(self, source: Any, folder: Path | None = None) -> None:
        if isinstance(source, Mapping) and {"bytes", "path"} & source.keys():
            content = source.get("bytes")
            source = content if content is not None else source.get("path")
        if not isinstance(source, str | Path | bytes | Image.Image) or not source:
            raise PictureError(f"{_brief(source)} is no picture: expected a path or image bytes")
        if isinstance(source, str | Path) and folder is not None:
            source = folder / source
        self.source = source

    def size(self) -> tuple[int, int]:
        """Width and height in pixels, upright; only the head of the file is read.

        Raises:
            PictureError: it cannot be read.
        """
        try:
            with _opened(self.source) as picture:
                width, height = picture.size
                # Orientations 5 to 8 lie on their side.
                turned = picture.getexif().get(_ORIENTATION, 1) >= 5
        except _UNREADABLE as error:
            raise self._error(error) from error
        return (height, width) if turned else (width, height)

    def check(self) -> tuple[int, int]:
        """Decode it, drop it, and return width and height.

        Raises:
            PictureError: it cannot be read to its end, or is too thin for a vision processor.
        """
        width, height = self.open().size
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise PictureError(f"the picture is {width} x {height}: beyond 1 : {MAX_ASPECT}")
        return width, height

    def open(self, min_pixels: int | None = None, max_pixels: int | None = None) -> Image.Image:
        """The decoded picture: RGB, upright, on white where it is transparent.

        Args:
            min_pixels, max_pixels: resize to lie between them, aspect kept; None for no limit.

        Raises:
            PictureError: it cannot be read.
        """
        try:
            with _opened(self.source) as picture:
                picture.load()
                picture = on_white(ImageOps.exif_transpose(picture))
        except _UNREADABLE as error:
            raise self._error(error) from error
        return fit_pixels(picture, min_pixels, max_pixels)

    def encoded(self) -> bytes:
        """The picture as an image file that every reader shows alike.

        The source's own bytes if it is a PNG or JPEG, RGB or grey, opaque and upright; else a PNG
        of what `open` returns.

        Raises:
            PictureError: it cannot be read.
        """
        try:
            with _opened(self.source) as picture:
                plain = (
                    picture.format in _PLAIN_FORMATS
                    and picture.mode in ("RGB", "L")
                    and "transparency" not in picture.info
                    and picture.getexif().get(_ORIENTATION, 1) == 1
                )
            if plain and isinstance(self.source, bytes):
                return self.source
            if plain and isinstance(self.source, str | Path):
                return Path(self.source).read_bytes()
        except _UNREADABLE as error:
            raise self._error(error) from error
        file = io.BytesIO()
        self.open().save(file, "png")
        return file.getvalue()

    def _error(self, error: Exception) -> PictureError:
        return PictureError(f"the picture {_brief(self.source)} cannot be read: {error}")


def on_white(picture: Image.Image) -> Image.Image:
    """The picture as RGB; palettes are looked up, and transparent parts become white paper.

    Dropping the alpha channel would show whatever lies under it, for line drawings often black.
    """
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode.startswith("I"):
        # Sixteen bits of grey; PIL's own conversion would clip them to white.
        picture = picture.convert("F").point(lambda value: value * (1 / 257)).convert("L")
    if "transparency" in picture.info or picture.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        layer = picture.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return picture.convert("RGB")


def fit_pixels(
    picture: Image.Image, min_pixels: int | None = None, max_pixels: int | None = None
) -> Image.Image:
    """The picture, resized if its width times height lies outside the limits, aspect kept.

    Args:
        picture: any picture; min_pixels, max_pixels: in pixels, None for no limit.
    """
    size = fitted_size(*picture.size, min_pixels, max_pixels)
    return picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC)


def fitted_size(
    width: int, height: int, min_pixels: int | None = None, max_pixels: int | None = None
) -> tuple[int, int]:
    """Width and height after `fit_pixels`."""
    pixels = width * height
    if max_pixels is not None and pixels > max_pixels:
        # Rounded down, so that the limit holds.
        scale = math.sqrt(max_pixels / pixels)
        return max(1, math.floor(width * scale)), max(1, math.floor(height * scale))
    if min_pixels is not None and pixels < min_pixels:
        scale = math.sqrt(min_pixels / pixels)
        return math.ceil(width * scale), math.ceil(height * scale)
    return width, height


def _opened(source: Any) -> Image.Image:
    if isinstance(source, Image.Image):
        return source.copy()
    with warnings.catch_warnings():
        # A picture that could exhaust the memory is an error, not a warning.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise ValueError(str(error)) from error


def _brief(source: Any) -> str:
    if isinstance(source, bytes):
        return f"of {len(source)} bytes"
    if isinstance(source, Image.Image):
        return f"{source.mode} {source.size}"
    text = str(source) if isinstance(source, str | Path) else repr(source)
    return text if len(text) <= 200 else text[:200] + "..."
