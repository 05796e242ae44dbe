"""Pictures of prompts, made small enough to be kept beside every generation batch."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

LONGEST_SIDE = 448  # pixels: enough to read a figure's labels
JPEG_QUALITY = 85  # noise of that size takes 150 kB, and the report shows up to 200
SMALL_ENOUGH = 32_000  # bytes of a PNG that is kept as it is: line drawings stay sharp


def small_picture(picture: Any) -> bytes | None:
    """A picture as PNG (drawings) or JPEG (photographs) of at most 200 kB.

    Long sides above 448 pixels are scaled down to that.

    Args:
        picture: a PIL image, or encoded bytes, or a dictionary with them in `bytes` as data sets
            hold undecoded ones.

    Returns:
        None for anything else, such as a path.
    """
    content = picture.get("bytes") if isinstance(picture, dict) else picture
    if isinstance(content, bytes):
        content = Image.open(io.BytesIO(content))
    if not isinstance(content, Image.Image):
        return None
    small = content
    if max(content.size) > LONGEST_SIDE:
        small = content.copy()
        small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if small.mode not in ("RGB", "L"):
        # What is transparent is drawn on white, as on paper.
        layered = small.convert("RGBA")
        small = Image.new("RGB", small.size, "white")
        small.paste(layered, mask=layered.getchannel("A"))
    # Level 1: on a drawing the default saves a tenth of the bytes for twice the time.
    drawing = _encoded(small, format="PNG", compress_level=1)
    if len(drawing) <= SMALL_ENOUGH:
        return drawing
    return _encoded(small, format="JPEG", quality=JPEG_QUALITY)


def _encoded(picture: Image.Image, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, **options)
    return target.getvalue()
