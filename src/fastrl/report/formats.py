"""The formats of rollout logs: how each says prompt, completion, reward and group."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastrl.report.grouping import group_by_prompt
from fastrl.report.logged import Rollout, as_field, as_key, as_number, as_step, as_text
from fastrl.report.rows import Row

Notes = list[str]


@dataclass(frozen=True)
class ReadOptions:
    """How to read logs.

    Attributes:
        num_generations: rollouts per prompt; None finds it.
        fields: our field name -> the file's; not empty makes the format generic.
        rewards: reward field -> weight; empty for all, with weight 1.
        drop_nan: leave groups with a NaN reward out.
        is_cut: the file's end is missing; set by the reader.
    """

    num_generations: int | None = None
    fields: Mapping[str, str] | None = None
    rewards: Mapping[str, float] | None = None
    drop_nan: bool = False
    is_cut: bool = False


def detect(row: Row, options: ReadOptions) -> str:
    """Name of the format of a file, from its first row."""
    if options.fields:
        return "generic"
    names = set(row.values)
    if {"generation_step", "group", "completion", "advantage"} <= names:
        return "fastrl"
    if {"step", "prompt", "completion", "advantage"} <= names and "group" not in names:
        return "trl"
    if {"input", "output", "score"} <= names:
        return "verl"
    return "generic"


def read_fastrl(rows: list[Row], options: ReadOptions) -> tuple[list[Rollout], Notes]:
    """Our own `rollouts/generation_*.parquet`."""
    return [
        Rollout(
            where=row.where,
            step=as_step(row),
            group=(row.file, as_key(row, "generation_step"), as_key(row, "group")),
            prompt=as_text(row.values.get("prompt")),
            completion=as_text(as_field(row, "completion")),
            token_ids=None,
            reward=_reward(row, options, ["reward"]),
            advantage=as_number(row, "advantage"),
        )
        for row in rows
    ], []


def read_trl(rows: list[Row], options: ReadOptions) -> tuple[list[Rollout], Notes]:
    """TRL's `completions/completions_*.parquet` (`log_completions=True`)."""
    names = _trl_reward_names(rows)
    if not names and not options.rewards:
        raise ValueError(
            f"{rows[0].file}: no numeric column beside step and advantage, so no reward; name "
            "it with --rewards."
        )
    rollouts = [
        Rollout(
            where=row.where,
            step=as_step(row),
            group=None,
            prompt=as_text(as_field(row, "prompt")),
            completion=as_text(as_field(row, "completion")),
            token_ids=None,
            reward=_reward(row, options, names),
            advantage=as_number(row, "advantage"),
        )
        for row in rows
    ]
    rollouts, notes = group_by_prompt(
        rollouts, options.num_generations, is_consecutive=True, is_cut=options.is_cut
    )
    if not options.rewards:
        notes.append(f"Rewards read from: {', '.join(names)}.")
    return _with_file(rollouts, rows), notes


def read_verl(rows: list[Row], options: ReadOptions) -> tuple[list[Rollout], Notes]:
    """verl's `trainer.rollout_data_dir` dump, one `<step>.jsonl` a step."""
    rollouts = [
        Rollout(
            where=row.where,
            step=as_step(row),
            group=None if row.values.get("uid") is None else as_key(row, "uid"),
            prompt=as_text(as_field(row, "input")),
            completion=as_text(as_field(row, "output")),
            token_ids=None,
            reward=_reward(row, options, ["score"]),
        )
        for row in rows
    ]
    if all(rollout.group is not None for rollout in rollouts):
        for rollout in rollouts:
            rollout.group = (rollout.step, rollout.group)
        return _with_file(rollouts, rows), []
    # verl balances the batch over ranks before it dumps: rows of a prompt are scattered.
    rollouts, notes = group_by_prompt(
        rollouts, options.num_generations, is_consecutive=False, is_cut=options.is_cut
    )
    return _with_file(rollouts, rows), notes


def read_generic(rows: list[Row], options: ReadOptions) -> tuple[list[Rollout], Notes]:
    """One rollout a row, or one group a row with lists; field names may be mapped."""
    rollouts: list[Rollout] = []
    for row in rows:
        row = _renamed(row, options.fields or {})
        is_group = any(
            isinstance(row.values.get(name), list) for name in ("reward", "rewards", "completions")
        )
        rollouts += _group_row(row, options) if is_group else [_single_row(row, options)]
    if all(rollout.group is not None for rollout in rollouts):
        return rollouts, []
    lacking = next(rollout for rollout in rollouts if rollout.group is None)
    if any(rollout.group is not None for rollout in rollouts) or not lacking.prompt:
        raise ValueError(
            f"{lacking.where}: no field 'group', and no 'prompt' to find groups by: add it, or "
            "name the field that tells groups apart: --fields group=THEIR_NAME."
        )
    file = rows[0].file
    rollouts, notes = group_by_prompt(
        rollouts, options.num_generations, is_consecutive=True, is_cut=options.is_cut
    )
    for rollout in rollouts:
        rollout.group = (file, rollout.group)
    return rollouts, notes


READERS: dict[str, tuple[str, Callable[[list[Row], ReadOptions], tuple[list[Rollout], Notes]]]] = {
    "fastrl": ("FastRL rollouts", read_fastrl),
    "trl": ("TRL completions", read_trl),
    "verl": ("verl rollout dump", read_verl),
    "generic": ("generic rows", read_generic),
}


def _with_file(rollouts: list[Rollout], rows: list[Row]) -> list[Rollout]:
    for rollout in rollouts:
        rollout.group = (rows[0].file, rollout.group)
    return rollouts


def _reward(row: Row, options: ReadOptions, names: list[str]) -> float:
    """The weighted sum; NaN only where no part applies."""
    weights = options.rewards or dict.fromkeys(names, 1.0)
    parts = [(as_number(row, name), weight) for name, weight in weights.items()]
    applied = [value * weight for value, weight in parts if not math.isnan(value)]
    return sum(applied) if applied else math.nan


def _trl_reward_names(rows: list[Row]) -> list[str]:
    def is_numeric(name: str) -> bool:
        found = (row.values.get(name) for row in rows)
        values = [value for value in found if value is not None]
        return bool(values) and all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in values
        )

    names = [name for name in rows[0].values if name not in ("step", "advantage")]
    return [name for name in names if is_numeric(name)]


def _renamed(row: Row, fields: Mapping[str, str]) -> Row:
    if not fields:
        return row
    values = dict(row.values)
    for ours, theirs in fields.items():
        if theirs not in row.values:
            raise ValueError(
                f"{row.where}: --fields {ours}={theirs}: there is no field {theirs!r}; it has "
                f"{', '.join(sorted(row.values))}."
            )
        values[ours] = row.values[theirs]
    return Row(row.file, row.number, values)


def _single_row(row: Row, options: ReadOptions) -> Rollout:
    values = row.values
    if isinstance(values.get("rewards"), dict):
        row = Row(row.file, row.number, {**values, **values["rewards"]})
        reward = _reward(row, options, list(values["rewards"]))
    else:
        reward = _reward(row, options, ["reward"])
    group = values.get("group")
    return Rollout(
        where=row.where,
        step=as_step(row),
        group=None if group is None else (row.file, as_step(row), str(group)),
        prompt=as_text(values.get("prompt")),
        completion=None if values.get("completion") is None else as_text(values["completion"]),
        token_ids=_token_ids(row, values.get("token_ids")),
        reward=reward,
        advantage=as_number(row, "advantage") if "advantage" in values else None,
    )


def _group_row(row: Row, options: ReadOptions) -> list[Rollout]:
    """A row with a list a field: every list has a value for each rollout of the group."""
    texts = _list(row, "completions", "completion")
    token_rows = _list(row, "token_ids")
    rewards = _list(row, "rewards", "reward")
    advantages = _list(row, "advantages", "advantage")
    lists = {"completions": texts, "token_ids": token_rows}
    lists |= {"rewards": rewards, "advantages": advantages}
    lengths = {name: len(values) for name, values in lists.items() if values is not None}
    if "rewards" not in lengths or len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(
            f"{row.where}: a group in one row needs lists of one length, rewards among them; "
            f"found {told or 'none'}."
        )
    group = (row.file, as_step(row), str(row.values.get("group", f"row {row.number}")))
    rollouts = []
    for place in range(lengths["rewards"]):
        single: dict[str, Any] = {"step": as_step(row), "prompt": row.values.get("prompt")}
        for name, values in zip(
            ("completion", "token_ids", "reward", "advantage"), lists.values(), strict=True
        ):
            if values is not None:
                single[name] = values[place]
        rollout = _single_row(Row(row.file, row.number, single), ReadOptions())
        rollout.group = group
        rollouts.append(rollout)
    return rollouts


def _list(row: Row, *names: str) -> list[Any] | None:
    for name in names:
        value = row.values.get(name)
        if isinstance(value, list):
            return value
    return None


def _token_ids(row: Row, value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ValueError(f"{row.where}: token_ids: expected a list of integers.")
    return value
