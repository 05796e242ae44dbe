"""What an evaluation writes: predictions shard by shard, settings, summary; and how it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastrl.evaluation.answers import Verdict
from fastrl.evaluation.engines import Completion
from fastrl.evaluation.questions import Question

TAG = "tag/"
_SECONDS = b"seconds"
_COLUMNS = (
    ("batch", pa.int32()),
    ("question_id", pa.string()),
    ("group", pa.string()),
    ("sample", pa.int32()),
    ("question", pa.string()),
    ("gold", pa.string()),
    ("completion", pa.string()),
    ("answer", pa.string()),
    ("vote", pa.string()),
    ("outcome", pa.string()),
    ("correct", pa.bool_()),
    ("in_format", pa.bool_()),
    ("tokens", pa.int32()),
    ("finished", pa.bool_()),
)


@dataclass(frozen=True)
class Prediction:
    """One completion of one question, judged."""

    question: Question
    sample: int
    completion: Completion
    verdict: Verdict
    correct: bool
    in_format: bool


class EvaluationFolder:
    """Files of one evaluation.

    `evaluation.json` (the settings), `predictions/` (a parquet file a batch, whole or not there),
    `summary.json`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.predictions_path = path / "predictions"
        self.settings_path = path / "evaluation.json"
        self.summary_path = path / "summary.json"

    def is_used(self) -> bool:
        """Whether an evaluation has already written here."""
        return self.settings_path.exists()

    def create(self, settings: dict[str, Any]) -> None:
        """Make the folder and write the settings; from then on it is in use."""
        self.predictions_path.mkdir(parents=True, exist_ok=True)
        _write_whole(self.settings_path, lambda path: _write_json(path, settings))

    def read_settings(self) -> dict[str, Any]:
        """What `evaluation.json` holds.

        Raises:
            ValueError: it cannot be read.
        """
        try:
            content: dict[str, Any] = json.loads(self.settings_path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise ValueError(f"{self.settings_path}: cannot be read ({error}).") from error
        return content

    def shard(self, batch: int) -> Path:
        """The file of a batch."""
        return self.predictions_path / f"batch-{batch:06d}.parquet"

    def holds(self, batch: int, rows: int) -> bool:
        """Whether a batch was written to its end, with that many rows."""
        path = self.shard(batch)
        if not path.exists():
            return False
        try:
            return int(pq.read_metadata(path).num_rows) == rows
        except (OSError, pa.ArrowInvalid):
            return False  # cut short by a power failure: it is simply made again

    def write_batch(self, batch: int, rows: Sequence[Prediction], seconds: float) -> None:
        """Write a batch, whole or not at all.

        Args:
            batch: its number; rows: its predictions.
            seconds: what it took; kept in the file's metadata, not in its rows.
        """
        table = prediction_table(batch, rows).replace_schema_metadata({_SECONDS: str(seconds)})
        _write_whole(self.shard(batch), lambda path: pq.write_table(table, path))

    def read_predictions(self, batches: int) -> tuple[pa.Table, float]:
        """All rows of the first so many batches in order, and the seconds that they took."""
        tables = [pq.read_table(self.shard(batch)) for batch in range(batches)]
        seconds = sum(float((t.schema.metadata or {}).get(_SECONDS, b"0")) for t in tables)
        plain = [table.replace_schema_metadata(None) for table in tables]
        return pa.concat_tables(plain, promote_options="default"), seconds

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`."""
        _write_whole(self.summary_path, lambda path: _write_json(path, summary))


def prediction_table(batch: int, rows: Sequence[Prediction]) -> pa.Table:
    """Predictions as a table, one row a completion; a list column `tag/<name>` for each tag."""
    columns: dict[str, list[Any]] = {
        "batch": [batch] * len(rows),
        "question_id": [row.question.id for row in rows],
        "group": [row.question.group or row.question.id for row in rows],
        "sample": [row.sample for row in rows],
        "question": [row.question.text for row in rows],
        "gold": [row.question.answer for row in rows],
        "completion": [row.completion.text for row in rows],
        "answer": [row.verdict.answer for row in rows],
        "vote": [row.verdict.vote for row in rows],
        "outcome": [row.verdict.outcome.value for row in rows],
        "correct": [row.correct for row in rows],
        "in_format": [row.in_format for row in rows],
        "tokens": [row.completion.tokens for row in rows],
        "finished": [row.completion.finished for row in rows],
    }
    fields = list(_COLUMNS)
    for tag in sorted({tag for row in rows for tag in row.question.tags}):
        columns[TAG + tag] = [list(row.question.tags.get(tag, ())) for row in rows]
        fields.append((TAG + tag, pa.list_(pa.string())))
    return pa.table(columns, schema=pa.schema(fields))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside the target, then rename: a kill leaves the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    write(temporary)
    os.replace(temporary, path)
