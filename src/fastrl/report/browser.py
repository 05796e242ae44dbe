"""A sample of a run's rollouts for the page's browser."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastrl.report.arms import Arm
from fastrl.report.run_folders import Run

MOST_CHARACTERS = 4000
MOST_PICTURE_BYTES = 200_000
MOST_PICTURE_CHARACTERS = 8_000_000  # of all pictures of a page, encoded
# Only what a browser draws and cannot run: an SVG could carry a script.
PICTURE_TYPES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))


@dataclass(frozen=True)
class Sample:
    """Groups to show.

    Attributes:
        groups: plain values for the page's script, see `_group`.
        pictures: data URIs that groups name by their place; one picture of several groups is there
            once.
        total: groups in the runs they were drawn from.
        runs: names of those runs.
        first: name of the run to show first, one that prunes if there is one.
        notes: what was left out.
    """

    groups: list[dict[str, Any]]
    total: int
    runs: list[str] = field(default_factory=list)
    first: str = ""
    notes: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)


def sample_groups(arms: Sequence[Arm], num_groups: int) -> Sample:
    """Groups evenly over the first seed of every arm, and evenly over each run.

    Args:
        arms: whose runs hold `rollouts/generation_*.parquet`.
        num_groups: at most so many in all; 0 for none.

    Raises:
        ValueError: a rollout file cannot be read; names it.
    """
    runs = [
        run
        for arm in arms
        for run in [next((r for r in arm.runs if _files(r)), None)]
        if run is not None
    ]
    if not num_groups or not runs:
        return Sample([], 0)
    budgets = [num_groups // len(runs) + (i < num_groups % len(runs)) for i in range(len(runs))]
    groups: list[dict[str, Any]] = []
    total, is_cut = 0, False
    for run, budget in zip(runs, budgets, strict=True):
        places = [(file, group) for file in _files(run) for group in _group_ids(file)]
        total += len(places)
        chosen = np.linspace(0, len(places) - 1, min(budget, len(places))).round().astype(int)
        wanted: dict[Path, set[int]] = {}
        for file, group in (places[i] for i in chosen.tolist()):
            wanted.setdefault(file, set()).add(group)
        for file, ids in wanted.items():
            for found in _read(file, ids):
                groups.append(_group(run, found))
                is_cut |= any("full_length" in rollout for rollout in groups[-1]["rollouts"])
    notes = [f"Completions are cut at {MOST_CHARACTERS:,} characters."] if is_cut else []
    pictures, without = share_pictures(groups)
    if without:
        notes.append(f"To keep the page small, {without} group(s) are shown without their picture.")
    names = [run.path.resolve().name for run in runs]
    pruned = [name for name, run in zip(names, runs, strict=True) if not run.is_plain]
    return Sample(groups, total, names, (pruned or names)[0], notes, pictures)


def share_pictures(
    groups: Sequence[dict[str, Any]], most: int = MOST_PICTURE_CHARACTERS
) -> tuple[list[str], int]:
    """Take the pictures out of the groups, each once, and leave their places in the list.

    Args:
        groups: with a data URI as `picture` where they have one; changed in place.
        most: characters of all pictures; beyond it some groups, evenly, lose theirs.

    Returns:
        The pictures, and how many groups lost theirs.
    """
    sizes = {uri: len(uri) for group in groups if (uri := group.get("picture"))}
    share = min(1.0, most / max(sum(sizes.values()), 1))
    pictures: dict[str, int] = {}
    seen = kept = 0
    for uri, size in sizes.items():
        seen += size
        if kept + size <= share * seen:
            kept += size
            pictures[uri] = len(pictures)
    without = 0
    for group in groups:
        uri = group.pop("picture", None)
        if uri in pictures:
            group["picture"] = pictures[uri]
        without += uri is not None and uri not in pictures
    return list(pictures), without


def _files(run: Run) -> list[Path]:
    return sorted((run.path / "rollouts").glob("generation_*.parquet"))


def _table(file: Path, columns: list[str] | None = None) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError(
            f"{file}: reading rollouts needs pyarrow; pip install 'fastrl-grpo[report]', or "
            "leave the browser out with --groups 0."
        ) from error
    try:
        return pq.read_table(file, columns=columns, partitioning=None)
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise ValueError(
            f"{file}: cannot be read as rollouts ({error}); remove the file, or leave the browser "
            "out with --groups 0."
        ) from error


def _group_ids(file: Path) -> list[int]:
    return sorted(set(_table(file, ["group"]).column("group").to_pylist()))


def _read(file: Path, ids: set[int]) -> list[list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _table(file).to_pylist():
        if row["group"] in ids:
            found.setdefault(row["group"], []).append(row)
    return [found[group] for group in sorted(found)]


def _group(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One group: `why` names other rollouts by their place in the group, from 1."""
    place = {row["row"]: number for number, row in enumerate(rows, start=1)}
    group: dict[str, Any] = {
        "run": run.path.resolve().name,
        "step": int(rows[0]["step"]),
        "group": int(rows[0]["group"]),
        "prompt": str(rows[0].get("prompt") or "")[:MOST_CHARACTERS],
        "rollouts": [_rollout(row, place, run.is_plain) for row in rows],
    }
    # The run writes it once, on the group's first row; other logs may hold it on every row.
    picture = picture_uri(rows[0].get("picture"))
    return group | ({"picture": picture} if picture else {})


def _rollout(row: dict[str, Any], place: dict[int, int], is_plain: bool) -> dict[str, Any]:
    text = str(row.get("completion") or "")
    parts = {k.removeprefix("reward/"): row[k] for k in row if k.startswith("reward/")}
    rollout = {
        "completion": text[:MOST_CHARACTERS],
        "reward": _finite(row.get("reward")),
        "parts": {name: _finite(value) for name, value in parts.items()},
        "advantage": _finite(row.get("advantage")),
        "kept": bool(row.get("kept")),
        "reason": "" if is_plain else str(row.get("reason")),
        "why": "nothing is pruned" if is_plain else why(row, place),
        "other": place.get(row.get("duplicate_of", -1)),
        "similarity": _finite(row.get("similarity")),
    }
    return rollout | ({"full_length": len(text)} if len(text) > MOST_CHARACTERS else {})


def why(row: dict[str, Any], place: dict[int, int]) -> str:
    """Why a rollout was kept or dropped, in a sentence without its verdict.

    Args:
        row: of a rollout file.
        place: row number -> place in the group, from 1.
    """
    similarity = row.get("similarity")
    has_similarity = similarity is not None and not math.isnan(similarity)
    told = f", similarity {similarity:.2f}" if has_similarity else ""
    other = place.get(row.get("duplicate_of", -1))
    repeats = f"repeats #{other}{told}" if other else f"repeats another{told}"
    return {
        "seed": "stands for its advantage value",
        "different": f"same advantage, another path{told}",
        "duplicate": repeats,
        "refill": f"fills the batch up; {repeats}" if other else "fills the batch up",
        "no_contrast": "its group has no contrast",
        "resampled": "its group had no contrast and gave way to another",
        "rule": "by the rule's choice",
    }.get(str(row.get("reason")), str(row.get("reason")))


def picture_uri(value: Any) -> str | None:
    """A PNG or JPEG as a data URI; None for anything else, and for pictures that are too large.

    Args:
        value: bytes, or a dictionary with `bytes` as Hugging Face datasets store pictures.
    """
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes) or len(content) > MOST_PICTURE_BYTES:
        return None
    for magic, kind in PICTURE_TYPES:
        if content.startswith(magic):
            return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return None


def _finite(value: Any) -> float | None:
    """JSON has no NaN."""
    is_number = isinstance(value, (int, float)) and math.isfinite(value)
    return round(float(value), 6) if is_number else None
