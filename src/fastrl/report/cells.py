"""Cells and tables of the report, before they are HTML or Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from fastrl.report.arms import Interval

NONE = "-"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: heading.
        header: column names; the first `num_text` columns hold text, the others numbers.
        rows: cells.
        note: what the columns mean; may be empty.
        num_text: columns that are aligned left.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    num_text: int = 1


def with_spread(shares: Sequence[float]) -> str:
    """Mean of shares in percent, and the standard deviation over seeds in points."""
    if not shares:
        return NONE
    told = f"{statistics.mean(shares):.1%}"
    return told + (f" ± {100 * statistics.stdev(shares):.1f}" if len(shares) > 1 else "")


def ratio(value: Interval | None) -> str:
    """A ratio with its 95% interval; how many seeds where there is no interval."""
    if value is None:
        return NONE
    if value.low is None or value.high is None:
        return f"{value.mean:.2f}x (one seed)"
    return f"{value.mean:.2f}x [{value.low:.2f}, {value.high:.2f}]"


def terminal(table: Table, width: int) -> RichTable:
    """A table for a terminal, without its note; on its side where the terminal is too narrow.

    Args:
        table: the cells.
        width: of the terminal, in characters.
    """
    lines = [table.header, *table.rows]
    # A blank on both sides of each column and between columns, and one at either edge.
    needed = 1 + sum(3 + max(map(len, column)) for column in zip(*lines, strict=True))
    is_narrow = needed > width
    if is_narrow:
        lines = list(zip(*lines, strict=True))
    num_text = 1 if is_narrow else table.num_text
    drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(lines[0]):
        justify: Literal["left", "right"] = "left" if number < num_text else "right"
        # Folded, not cut, where even that is too wide: an ellipsis would hide digits.
        drawn.add_column(Text(name), justify=justify, overflow="fold")
    for row in lines[1:]:
        drawn.add_row(*(Text(cell) for cell in row))  # as text: [1, 2] is no style
    return drawn


def markdown(table: Table) -> str:
    """A table as Markdown."""
    marks = ["---" if i < table.num_text else "--:" for i in range(len(table.header))]
    lines = [f"## {table.title}", "", _markdown_row(table.header), _markdown_row(marks)]
    lines += [_markdown_row(row) for row in table.rows]
    return "\n".join([*lines, "", table.note]).rstrip() + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(escaped) + " |"


def number(value: float, digits: int) -> str:
    """A number with so many decimals; NaN is a dash."""
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def plain_text(value: Any) -> str:
    """A setting's value; None is a dash."""
    return NONE if value is None else str(value)
