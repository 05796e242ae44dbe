"""Geometry data as the parquet files that verl trains on.

Columns: `data_source` (text), `prompt` (chat messages, an <image> in the text for each picture),
`images` (the pictures as encoded bytes, with their pixel limits), `ability`, `reward_model` (a
`ground_truth`), `extra_info` (the split, and the row's number in the source).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from fastrl.geometry.datasets.loading import (
    PROBLEMS_SHOWN,
    GeometryData,
    RowProblem,
    load_geometry,
)
from fastrl.geometry.datasets.rows import FORMAT_INSTRUCTION, IMAGE_PLACEHOLDER, GeometryRow
from fastrl.geometry.datasets.sources import DatasetError

# Of the published runs; the processor of Qwen2.5-VL resizes to lie between them.
MIN_PIXELS, MAX_PIXELS = 262144, 4194304
# verl takes these for places of media that the rows do not have.
_OTHER_PLACEHOLDERS = ("<video>", "<audio>")
_PLACEHOLDERS = (IMAGE_PLACEHOLDER, *_OTHER_PLACEHOLDERS)
_ROWS_AT_ONCE = 64
_REQUEST = b"fastrl.verl_file"
_FORMAT = 1


@dataclass(frozen=True)
class VerlFileRequest:
    """What a file for verl is made of.

    Attributes:
        dataset: a known name, a hub name or a path; split: see `load_geometry`.
        choices_as, max_rows, skip_broken: see `load_geometry`.
        format_instruction: added to each question; empty for none.
        system_prompt: the first message; empty for none.
        min_pixels, max_pixels: of each picture, aspect kept; verl resizes when it reads. Limits of
            qwen_vl_utils hold where None.
    """

    dataset: str
    split: str | None = None
    choices_as: str = "letter"
    max_rows: int | None = None
    skip_broken: bool = False
    format_instruction: str = FORMAT_INSTRUCTION
    system_prompt: str = ""
    min_pixels: int | None = MIN_PIXELS
    max_pixels: int | None = MAX_PIXELS

    def __post_init__(self) -> None:
        problems = []
        limits = [limit for limit in (self.min_pixels, self.max_pixels) if limit is not None]
        if any(limit < 1 for limit in limits) or limits != sorted(limits):
            problems.append(
                f"min_pixels = {self.min_pixels}, max_pixels = {self.max_pixels}: expected "
                "positive numbers in ascending order"
            )
        for name in ("format_instruction", "system_prompt"):
            words = [word for word in _PLACEHOLDERS if word in getattr(self, name)]
            if words:
                problems.append(f"{name}: {', '.join(words)} stands for a picture or the like")
        if problems:
            raise DatasetError("; ".join(problems) + ".")

    def described(self) -> str:
        """All of it as text, which the file holds."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True)


@dataclass(frozen=True)
class VerlFile:
    """A file that verl can read.

    Attributes:
        path: where it lies; rows: how many it holds.
        written: whether it was made now, and not found finished.
        skipped: rows of the source that were left out because they are broken; empty if it was
            not made now.
    """

    path: Path
    rows: int
    written: bool
    skipped: tuple[RowProblem, ...] = ()


def write_verl_file(
    request: VerlFileRequest,
    path: Path,
    *,
    overwrite: bool = False,
    on_row: Callable[[int, int], None] | None = None,
) -> VerlFile:
    """Make one parquet file for verl, or find it made already.

    It appears under its name when it is whole. A finished file of the same request is left as it
    is, so that whoever was interrupted can start the same again.

    Args:
        request: what it is made of.
        path: where to write it; folders are made.
        overwrite: replace a file of another request, and make one of the same anew.
        on_row: told how many rows are checked, and of how many.

    Raises:
        DatasetError: the data cannot be used (see `load_geometry`), or the path holds something
            else.
    """
    if path.exists() and not overwrite:
        return _found(request, path)
    data = load_geometry(
        request.dataset,
        request.split,
        choices_as=request.choices_as,
        max_rows=request.max_rows,
        skip_broken=request.skip_broken,
        on_row=on_row,
    )
    _refuse_placeholders(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        _write(data, request, partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return VerlFile(path, len(data.rows), True, data.skipped)


def verl_row(row: GeometryRow, number: int, request: VerlFileRequest) -> dict[str, Any]:
    """A row in verl's columns.

    Args:
        row: the problem; number: of the row in its source.
        request: instruction, system prompt and pixel limits.
    """
    question = row.question(request.format_instruction or None)
    if row.pictures and IMAGE_PLACEHOLDER not in question:
        question = IMAGE_PLACEHOLDER * len(row.pictures) + question
    system = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    return {
        "data_source": request.dataset,
        "prompt": [*system, {"role": "user", "content": question}],
        "images": [
            {"bytes": picture.encoded(), **_pixel_limits(request)} for picture in row.pictures
        ],
        "ability": "geometry",
        "reward_model": {"style": "rule", "ground_truth": row.answer},
        "extra_info": {"split": request.split or "train", "index": number},
    }


def _pixel_limits(request: VerlFileRequest) -> dict[str, int]:
    limits = {"min_pixels": request.min_pixels, "max_pixels": request.max_pixels}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _schema(request: VerlFileRequest) -> pa.Schema:
    text = pa.string()
    picture = [("bytes", pa.binary()), *((name, pa.int64()) for name in _pixel_limits(request))]
    columns = [
        ("data_source", text),
        ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))),
        ("images", pa.list_(pa.struct(picture))),
        ("ability", text),
        ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
        ("extra_info", pa.struct([("split", text), ("index", pa.int64())])),
    ]
    return pa.schema(columns, metadata={_REQUEST: request.described().encode()})


def _write(data: GeometryData, request: VerlFileRequest, path: Path) -> None:
    schema = _schema(request)
    numbers = list(data.rows.numbers)
    with parquet.ParquetWriter(path, schema) as writer:
        # A few rows at a time: the pictures of all may be gigabytes.
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            part = range(start, min(start + _ROWS_AT_ONCE, len(numbers)))
            rows = [verl_row(data.rows[place], numbers[place], request) for place in part]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _found(request: VerlFileRequest, path: Path) -> VerlFile:
    try:
        with parquet.ParquetFile(path) as file:
            found = (file.schema_arrow.metadata or {}).get(_REQUEST, b"").decode()
            rows = file.metadata.num_rows
    except (OSError, pa.ArrowInvalid) as error:
        raise DatasetError(
            f"{path}: exists, and is no parquet file ({error}). Remove it, or use --overwrite."
        ) from error
    if found != request.described():
        raise DatasetError(
            f"{path}: exists, and holds {_difference(found, request)}. Write to another folder, or "
            "use --overwrite."
        )
    return VerlFile(path, rows, False)


def _difference(found: str, request: VerlFileRequest) -> str:
    if not found:
        return "data that FastRL did not write"
    theirs: Mapping[str, Any] = json.loads(found)
    ours: Mapping[str, Any] = json.loads(request.described())
    differing = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
    return "other data: " + ", ".join(
        f"{key} = {theirs.get(key)!r} and not {ours.get(key)!r}" for key in differing
    )


def _refuse_placeholders(data: GeometryData) -> None:
    """verl would look for a video, and stop in the middle of a run."""
    found = [
        f"row {number}: {word}"
        for number, row in zip(data.rows.numbers, data.rows, strict=True)
        for word in _OTHER_PLACEHOLDERS
        if row.pictures and word in row.question(None)
    ]
    if found:
        shown = "; ".join(found[:PROBLEMS_SHOWN])
        raise DatasetError(
            f"{data.name}: verl takes these words for places of media: {shown}. Write them "
            "otherwise."
        )
