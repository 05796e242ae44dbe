"""Small pictures and data sets made of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw


def drawn(number: int = 0, size: tuple[int, int] = (80, 40)) -> Image.Image:
    """A white picture with a line of a colour of its own."""
    picture = Image.new("RGB", size, "white")
    colour = (number * 37 % 256, number * 91 % 256, 200)
    ImageDraw.Draw(picture).line((2, 2, size[0] - 3, size[1] - 3), fill=colour, width=3)
    return picture


def encoded(picture: Image.Image, kind: str = "png", **settings: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **settings)
    return file.getvalue()


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def picture_folder(folder: Path, count: int, split: str = "train") -> Path:
    """`count` rows in a JSONL file with paths of pictures."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        drawn(number).save(folder / "images" / f"{number}.png")
        rows.append(
            {
                "problem": f"Find x. ({number})",
                "image": f"images/{number}.png",
                "answer": str(number),
            }
        )
    write_jsonl(folder / f"{split}.jsonl", rows)
    return folder
