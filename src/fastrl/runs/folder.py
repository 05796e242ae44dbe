"""The run folder: what is written, where, and how a killed run is taken up again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from fastrl.runs.pictures import small_picture
from fastrl.trl import GenerationRecord
from fastrl.trl.checkpoints import checkpoint_step, read_state

CHECKPOINT_PREFIX = "checkpoint-"


class RunFolder:
    """Files of one run.

    `config.yaml`, `metrics.jsonl` (a line per optimiser step), `scores.jsonl` (a line per scoring
    of held-out pictures), `rollouts/` (a parquet file per generation batch), `checkpoint-*`,
    `summary.json`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.scores_path = path / "scores.jsonl"
        self.rollouts_path = path / "rollouts"
        self.config_path = path / "config.yaml"
        self.summary_path = path / "summary.json"

    def is_used(self) -> bool:
        """Whether a run has already written here."""
        return self.config_path.exists()

    def create(self) -> None:
        """Make the folder and what hangs below it."""
        self.rollouts_path.mkdir(parents=True, exist_ok=True)

    # -- config -----------------------------------------------------------------------------

    def write_config(self, config: dict[str, Any]) -> None:
        """Write the resolved configuration; from then on the folder is in use."""

        def write(content: dict[str, Any], path: Path) -> None:
            path.write_text(yaml.safe_dump(content, sort_keys=False))

        write_whole(write, config, self.config_path)

    def read_config(self) -> dict[str, Any]:
        """What `config.yaml` holds; empty before there is one."""
        if not self.config_path.exists():
            return {}
        content: dict[str, Any] = yaml.safe_load(self.config_path.read_text())
        return content

    # -- metrics ----------------------------------------------------------------------------

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one line, flushed to disk."""
        _append_line(line, self.metrics_path)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every whole line; one cut short by a kill is left out."""
        return _whole_lines(self.metrics_path)

    def append_score(self, step: int, seconds: float, score: dict[str, Any]) -> None:
        """Append what held-out pictures gave after an update.

        Args:
            step: updates so far, 0 before training.
            seconds: of training so far; scoring, evaluation and checkpoints left out.
            score: shares between 0 and 1, and of how many pictures and samples.
        """
        _append_line({"step": step, "seconds": seconds, **score}, self.scores_path)

    def read_scores(self) -> list[dict[str, Any]]:
        """Every whole line of `scores.jsonl`."""
        return _whole_lines(self.scores_path)

    # -- rollouts ---------------------------------------------------------------------------

    def write_rollouts(self, record: GenerationRecord, with_pictures: bool = False) -> None:
        """Write a generation batch, whole or not at all."""
        path = self.rollouts_path / f"generation_{record.generation_step:06d}.parquet"
        write_whole(pq.write_table, rollout_table(record, with_pictures), path)

    def read_rollouts(self) -> pa.Table:
        """All rollouts of the run, in order."""
        paths = sorted(self.rollouts_path.glob("generation_*.parquet"))
        # A run that was resumed with other log_pictures has files with and without that column.
        tables = [pq.read_table(path) for path in paths]
        return pa.concat_tables(tables, promote_options="default")

    # -- summary ----------------------------------------------------------------------------

    def update_summary(self, **values: Any) -> dict[str, Any]:
        """Merge values into `summary.json` and return all of it."""
        summary = self.read_summary()
        summary.update(values)

        def write(content: dict[str, Any], path: Path) -> None:
            path.write_text(json.dumps(content, indent=1) + "\n")

        write_whole(write, summary, self.summary_path)
        return summary

    def read_summary(self) -> dict[str, Any]:
        """What `summary.json` holds; empty before there is one."""
        if not self.summary_path.exists():
            return {}
        content: dict[str, Any] = json.loads(self.summary_path.read_text())
        return content

    def totals(self) -> dict[str, Any]:
        """Seconds, phases and shares of the whole run, resumes included."""
        lines = self.read_metrics()

        def total(name: str) -> float:
            return sum(line.get(name) or 0.0 for line in lines)

        phases = sorted({n for line in lines for n in line if n.startswith("fastrl/time/")})
        return {
            "steps": lines[-1]["step"],
            "seconds": lines[-1]["seconds"],
            "seconds_per_phase": {
                name.removeprefix("fastrl/time/"): round(total(name), 2) for name in phases
            },
            "generated": total("fastrl/generated"),
            "kept": total("fastrl/kept"),
            "num_generations": [
                line["fastrl/num_generations"] for line in lines if "fastrl/num_generations" in line
            ],
        }

    # -- resume -----------------------------------------------------------------------------

    def last_complete_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written to its end; broken ones are passed over."""
        found = [p for p in self.path.glob(CHECKPOINT_PREFIX + "*") if p.is_dir()]
        for path in sorted(found, key=_checkpoint_number, reverse=True):
            try:
                checkpoint_step(path)
                state = read_state(path)
            except ValueError:
                continue
            if state is not None:
                return path
        return None

    def rewind(self, checkpoint: Path | None) -> None:
        """Cut metrics, rollouts and checkpoints written after a checkpoint (None: all of them)."""
        step, generation = 0, 0
        if checkpoint is not None:
            step = checkpoint_step(checkpoint)
            state = read_state(checkpoint)
            generation = state["generation_step"] if state else 0

        def write(lines: list[dict[str, Any]], path: Path) -> None:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))

        for path, lines in (
            (self.metrics_path, self.read_metrics()),
            (self.scores_path, self.read_scores()),
        ):
            # The score before training is that of step 0: without a checkpoint it goes, too.
            kept = [line for line in lines if checkpoint is not None and line["step"] <= step]
            write_whole(write, kept, path)
        for path in self.rollouts_path.glob("generation_*.parquet"):
            if int(path.stem.removeprefix("generation_")) >= generation:
                path.unlink()
        for path in self.path.glob(CHECKPOINT_PREFIX + "*"):
            if path.is_dir() and (checkpoint is None or _checkpoint_number(path) > step):
                shutil.rmtree(path)


def rollout_table(record: GenerationRecord, with_pictures: bool = False) -> pa.Table:
    """A generation batch as a table, one row a rollout, dropped ones included.

    `duplicate_of` is the row (within the generation) that a dropped rollout repeats, -1 if none;
    `similarity` its token-set similarity to its bucket's seed, null where nothing was compared.
    `picture`, with `with_pictures` and where prompts have any, is the first picture of a group in
    the group's first row, as small PNG or JPEG bytes, and null in the others.
    """
    selection = record.selection
    total = len(record.completions)
    columns: dict[str, Any] = {
        "step": [record.step] * total,
        "generation_step": [record.generation_step] * total,
        "group": [row // record.num_generations for row in range(total)],
        "row": list(range(total)),
        "prompt": record.prompts,
        "completion": record.completions,
        "reward": record.reward_N,
    }
    columns.update({f"reward/{name}": values for name, values in record.rewards.items()})
    columns.update(
        {
            "advantage": record.advantages_N,
            "kept": record.kept_N,
            "reason": [str(reason) for reason in selection.reason],
            "duplicate_of": selection.duplicate_of,
            "similarity": pa.array(selection.similarity, from_pandas=True),
        }
    )
    if with_pictures and any(record.pictures_G):
        pictures: list[bytes | None] = [None] * total
        for group, found in enumerate(record.pictures_G):
            pictures[group * record.num_generations] = small_picture(found[0]) if found else None
        columns["picture"] = pa.array(pictures, pa.binary())
    return pa.table(columns)


def _append_line(line: dict[str, Any], path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def write_whole(write: Any, content: Any, path: Path) -> None:
    """Write beside the target, then rename: a kill leaves the old file or the new one.

    Several processes may write the same target; the last one's stays.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    write(content, temporary)
    os.replace(temporary, path)


def _checkpoint_number(path: Path) -> int:
    number = path.name.removeprefix(CHECKPOINT_PREFIX)
    return int(number) if number.isdigit() else -1
