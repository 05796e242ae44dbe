"""A comparison as one table: accuracy, seconds, ratio to plain GRPO, phases."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from fastrl.report.arms import ratio_interval
from fastrl.report.tables import PHASE_TITLES

PLAIN = "none"
COLUMNS = (
    "arm",
    "seeds",
    "accuracy",
    "greedy",
    "in format",
    "seconds",
    "faster than plain",
    "kept",
    "n",
)

Summaries = Mapping[str, Mapping[int, Mapping[str, Any]]]


def comparison_rows(summaries: Summaries) -> list[list[str]]:
    """The table's cells, header first; arms without a finished run are left out."""
    rows = [[*COLUMNS, *PHASE_TITLES.values()]]
    plain = summaries.get(PLAIN, {})
    for arm, by_seed in summaries.items():
        if not by_seed:
            continue
        runs = list(by_seed.values())
        kept = sum(run["kept"] for run in runs) / sum(run["generated"] for run in runs)
        used = [count for run in runs for count in run["num_generations"]]
        scores = [run["after"] for run in runs if run.get("after")]
        rows.append(
            [
                arm,
                str(len(runs)),
                *(
                    share_with_spread([score[key] for score in scores])
                    for key in ("sampled", "greedy", "in_format")
                ),
                f"{statistics.mean(run['seconds'] for run in runs):.0f}",
                ratio_with_interval(
                    [plain[s]["seconds"] / by_seed[s]["seconds"] for s in by_seed if s in plain]
                ),
                f"{kept:.0%}",
                f"{statistics.mean(used):.1f}",
                *(
                    f"{statistics.mean(r['seconds_per_phase'].get(phase, 0.0) for r in runs):.1f}"
                    for phase in PHASE_TITLES
                ),
            ]
        )
    return rows


def share_with_spread(shares: Sequence[float]) -> str:
    """Mean of shares in percent, with the standard deviation over seeds."""
    if not shares:
        return "-"
    told = f"{statistics.mean(shares):.1%}"
    return told if len(shares) < 2 else f"{told} ± {100 * statistics.stdev(shares):.1f}"


def ratio_with_interval(ratios: Sequence[float]) -> str:
    """Geometric mean of paired ratios, with its 95% confidence interval."""
    interval = ratio_interval(ratios)
    if interval is None:
        return "-"
    told = f"{interval.mean:.2f}x"
    if interval.low is None or interval.high is None:
        return told
    return f"{told} [{interval.low:.2f}, {interval.high:.2f}]"


def comparison_table(summaries: Summaries) -> Table:
    """The table for a terminal."""
    header, *rows = comparison_rows(summaries)
    table = Table(title="Comparison")
    for name in header:
        table.add_column(name, justify="left" if name == "arm" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def comparison_markdown(summaries: Summaries) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in comparison_rows(summaries)]
    return "\n".join([lines[0], "|" + "---|" * len(comparison_rows(summaries)[0]), *lines[1:]])
