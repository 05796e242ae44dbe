"""Rows of a log file, whatever its type, each with the place it came from."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARQUET = (".parquet",)
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson")


@dataclass(frozen=True)
class Row:
    """One line of a JSONL file or one row of a Parquet file.

    Attributes:
        file: path of the file, as given.
        number: line or row, from 1.
        values: the fields.
    """

    file: str
    number: int
    values: dict[str, Any]

    @property
    def where(self) -> str:
        """The place, for messages."""
        unit = "row" if self.file.endswith(PARQUET) else "line"
        return f"{self.file}, {unit} {self.number}"


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """All rows of a file, and what there is to say about them.

    Args:
        path: a .parquet, .jsonl or .jsonl.gz file.

    Raises:
        ValueError: the file is absent, of another type, empty, or broken; names file and line.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file; give a file or folder of logged rollouts.")
    if path.name.endswith(PARQUET):
        return _filled(path, _parquet_rows(path)), []
    if not path.name.endswith(JSON_LINES):
        raise ValueError(
            f"{path}: unknown type {path.suffix or '(none)'!r}; expected .parquet, .jsonl or "
            ".jsonl.gz."
        )
    rows, notes = _json_rows(path)
    return _filled(path, rows), notes


def _filled(path: Path, rows: list[Row]) -> list[Row]:
    if not rows:
        raise ValueError(f"{path}: holds no rollouts; leave it out or give another file.")
    return rows


def _parquet_rows(path: Path) -> list[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError(
            f"{path}: reading Parquet needs pyarrow; pip install 'fastrl-grpo[report]'."
        ) from error
    try:
        # Not a data set: a folder name such as seed=1 would add a column.
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(
            f"{path}: not a whole Parquet file ({error}); it was cut short or is something else: "
            "leave it out."
        ) from error
    if "picture" in table.column_names:
        table = table.drop_columns(["picture"])  # nobody reads it from a row
    values = table.to_pylist()
    return [Row(str(path), number, value) for number, value in enumerate(values, start=1)]


def _json_rows(path: Path) -> tuple[list[Row], list[str]]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error}); write it again.") from error
    lines = [(n, line) for n, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    rows, notes = [], []
    for position, (number, line) in enumerate(lines):
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if position == len(lines) - 1:
                notes.append(f"{path}, line {number}: half-written last line, skipped.")
                break
            raise ValueError(
                f"{path}, line {number}: not JSON ({error}); mend or remove the line."
            ) from error
        if not isinstance(value, dict):
            raise ValueError(
                f"{path}, line {number}: a JSON {type(value).__name__}; expected an object with "
                "one field a property."
            )
        rows.append(Row(str(path), number, value))
    return rows, notes
