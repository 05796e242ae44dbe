"""Checks shared by the core: every problem is collected, then told in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np

MAX_LISTED = 20


def is_int(value: object) -> TypeGuard[int]:
    """True for Python and NumPy integers, False for bool: `True` is a slip, not the number 1."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """True for real numbers of Python and NumPy (NaN included), False for bool."""
    return is_int(value) or isinstance(value, (float, np.floating))


def describe_rows(field: str, rows: Iterable[int], values: Any, complaint: str) -> list[str]:
    """One line a row, `field[row] = value: complaint`; past `MAX_LISTED` the rest is counted."""
    rows = list(rows)
    lines = [f"{field}[{row}] = {values[row]!s}: {complaint}" for row in rows[:MAX_LISTED]]
    if len(rows) > MAX_LISTED:
        lines.append(f"{field}: {len(rows) - MAX_LISTED} more rows with the same problem")
    return lines


def raise_problems(subject: str, problems: Sequence[str]) -> None:
    """Raise one ValueError that lists all `problems`; do nothing when there are none."""
    if problems:
        raise ValueError("\n  - ".join([f"{subject}: {len(problems)} problem(s)", *problems]))
