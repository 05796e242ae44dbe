"""Predictions in, numbers out: accuracy in its kinds, with intervals, and broken down by tag."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from fastrl.evaluation.folder import TAG
from fastrl.evaluation.metrics import (
    FloatArray,
    Interval,
    all_right,
    majority_at_k,
    mean_at_k,
    mean_with_interval,
    pass_at_k,
)

MOST_TAG_VALUES = 30  # a tag with more values than that is no breakdown


def summarise(predictions: Any, samples: int) -> dict[str, Any]:
    """The numbers of an evaluation.

    Args:
        predictions: the table that `EvaluationFolder.read_predictions` returns, the S samples of
            each question next to each other.
        samples: S.

    Returns:
        `questions`, `samples`, `metrics` (name to value, low, high, method), `shares` (in format,
        cut at the token limit, without an answer, undecided), `mean_tokens`, and `by_tag` (tag to
        value to questions and accuracy).
    """
    columns = {name: predictions.column(name).to_pylist() for name in predictions.column_names}
    correct_QS = np.array(columns["correct"], dtype=bool).reshape(-1, samples)
    votes = _rows(columns["vote"], samples)
    groups = columns["group"][::samples]
    means_Q = mean_at_k(correct_QS)
    metrics = {f"mean@{samples}": mean_with_interval(means_Q, groups)}
    if samples > 1:
        sizes = [2**power for power in range(1, samples.bit_length()) if 2**power < samples]
        for k in [*sizes, samples]:
            metrics[f"pass@{k}"] = mean_with_interval(pass_at_k(correct_QS, k), groups)
        voted_Q = majority_at_k(votes, correct_QS)
        metrics[f"majority@{samples}"] = mean_with_interval(voted_Q, groups)
    if len(set(groups)) < len(groups):
        values_G, names = all_right(correct_QS, groups)
        metrics["all versions right"] = mean_with_interval(values_G, names)
    outcomes = columns["outcome"]
    undecided = sum(outcome in ("timeout", "error") for outcome in outcomes)
    return {
        "questions": len(correct_QS),
        "samples": samples,
        "metrics": {name: _interval(interval) for name, interval in metrics.items()},
        "shares": {
            "in_format": float(np.mean(columns["in_format"])),
            "cut": 1.0 - float(np.mean(columns["finished"])),
            "without_answer": outcomes.count("no_answer") / len(outcomes),
            "undecided": undecided / len(outcomes),
        },
        "mean_tokens": float(np.mean(columns["tokens"])),
        "by_tag": {
            name.removeprefix(TAG): by_tag
            for name, values in columns.items()
            if name.startswith(TAG)
            and (by_tag := _by_tag(values[::samples], means_Q, groups)) is not None
        },
    }


def _rows(values: list[Any], samples: int) -> list[list[Any]]:
    return [values[start : start + samples] for start in range(0, len(values), samples)]


def _by_tag(
    tags: Sequence[list[str] | None], means_Q: FloatArray, groups: Sequence[str]
) -> dict[str, dict[str, Any]] | None:
    """Accuracy of the questions with each value of a tag; None where it does not divide them."""
    rows: dict[str, list[int]] = {}
    for row, values in enumerate(tags):
        for value in values or []:
            rows.setdefault(value, []).append(row)
    if not 1 < len(rows) <= MOST_TAG_VALUES:
        return None
    return {
        value: {
            "questions": len(found),
            **_interval(mean_with_interval(means_Q[found], [groups[row] for row in found])),
        }
        for value, found in sorted(rows.items(), key=lambda item: _natural(item[0]))
    }


def _natural(value: str) -> tuple[float, str]:
    """Numbers by size, before words by letter."""
    return (float(value) if value.isdecimal() else math.inf, value)


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "method": interval.method,
    }


def summary_table(summary: dict[str, Any]) -> Table:
    """The numbers for a terminal."""
    title = f"{summary['model']} on {summary['dataset']}: {summary['questions']} questions"
    if summary["samples"] > 1:
        title += f" x {summary['samples']} samples"
    table = Table(title=title)
    table.add_column("", style="bold")
    table.add_column("share", justify="right")
    table.add_column("95% interval", justify="right")
    for name, metric in summary["metrics"].items():
        told = "accuracy" if name == "mean@1" else name
        table.add_row(told, f"{metric['value']:.1%}", _told(metric))
    table.add_section()
    for name, share in summary["shares"].items():
        if share or name == "in_format":
            table.add_row(name.replace("_", " "), f"{share:.1%}", "")
    for tag, values in summary["by_tag"].items():
        table.add_section()
        for value, metric in values.items():
            name = f"{tag}: {value} ({metric['questions']})"
            table.add_row(name, f"{metric['value']:.1%}", _told(metric))
    return table


def _told(metric: dict[str, Any]) -> str:
    return f"{metric['low']:.1%} to {metric['high']:.1%}"
