"""A comparison as one table: accuracy, seconds, ratio to plain GRPO, phases."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from fastrl.runs.table import PHASE_NAMES

PLAIN = "none"
# Two-sided 95% quantiles of Student's t by degrees of freedom: few seeds are few.
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
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
    rows = [[*COLUMNS, *PHASE_NAMES.values()]]
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
                    for phase in PHASE_NAMES
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
    """Geometric mean of paired ratios, with its 95% confidence interval (Student's t on logs)."""
    if not ratios:
        return "-"
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    told = f"{math.exp(mean):.2f}x"
    if len(logs) < 2:
        return told
    quantile = T_95[min(len(logs) - 1, len(T_95)) - 1]
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{told} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"


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
