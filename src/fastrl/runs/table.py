"""The one table at the end of a run."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from fastrl.report.tables import PHASE_TITLES


def summary_table(summary: dict[str, Any]) -> Table:
    """Accuracy before and after, seconds per phase, kept share, rollouts per prompt."""
    table = Table(title=f"{summary['recipe']}: {summary['steps']} updates", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    before, after = summary.get("before"), summary.get("after")
    if before and after:
        for key, name in (
            ("sampled", f"held-out accuracy (mean of {after['samples']} samples)"),
            ("greedy", "held-out accuracy (greedy)"),
            ("in_format", "in format"),
        ):
            if before.get(key) is not None and after.get(key) is not None:
                table.add_row(name, f"{before[key]:.1%} -> {after[key]:.1%}")
        table.add_row("held-out questions", str(after["pictures"]))
        table.add_section()
    data = summary.get("data", {})
    if "rows" in data:
        # As text: the split stands in brackets, which rich would take for a style.
        table.add_row("prompts", Text(f"{data['rows']} of {data['name']}"))
        for key, name in (("skipped_broken", "broken"), ("skipped_long", "too long")):
            if data[key]:
                table.add_row(f"  left out: {name}", str(data[key]))
        table.add_section()
    seconds = summary["seconds"]
    table.add_row("training", f"{seconds:.1f} s")
    for phase, name in PHASE_TITLES.items():
        spent = summary["seconds_per_phase"].get(phase, 0.0)
        table.add_row(f"  {name}", f"{spent:.1f} s  {spent / max(seconds, 1e-9):5.1%}")
    table.add_section()
    table.add_row("kept rollouts", f"{summary['kept'] / max(summary['generated'], 1):.1%}")
    used = summary["num_generations"]
    table.add_row(
        "rollouts per prompt",
        f"{used[0]:.0f} -> {used[-1]:.0f} (mean {sum(used) / len(used):.1f})",
    )
    return table
