"""A replay as terminal tables, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fastrl.report.phases import PhaseSplit
from fastrl.report.regime import regime_warnings
from fastrl.report.replay import DataFacts, Replay, RuleResult

HEADER = (
    "rule",
    "setting",
    "kept",
    "per prompt",
    "most",
    "tokens saved",
    "values lost",
    "dropped overlap",
)
SPEEDUP = "speedup"
LEGEND = (
    "The number at a rule is its similarity threshold or keep_fraction; the rules below are given "
    "about the share that differential keeps at 0.2, as near as whole rollouts allow. per prompt: "
    "kept, mean over groups, beside the most in one group. tokens saved: completion tokens in "
    "dropped rollouts. values lost: distinct advantages of a group that no kept rollout has. "
    "dropped overlap: mean token-set similarity of the dropped to the first of their advantage."
)


def replay_json(replay: Replay) -> dict[str, Any]:
    """Everything as plain values; an infinite bound is null."""
    content: dict[str, Any] = {
        "formats": list(replay.formats),
        "facts": dataclasses.asdict(replay.facts),
        "rules": [dataclasses.asdict(rule) for rule in replay.rules],
        "phases": None,
        "warnings": regime_warnings(replay),
        "notes": list(replay.notes),
    }
    if replay.phases:
        content["phases"] = {
            "seconds": dict(replay.phases.seconds),
            "source": replay.phases.source,
            "bound": replay.phases.bound if math.isfinite(replay.phases.bound) else None,
        }
    return content


def replay_terminal(replay: Replay) -> Iterator[RenderableType]:
    """The parts to print, in order; the table fits 80 columns."""
    for line in _fact_lines(replay.facts, replay.formats):
        yield Text(line)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("rule", no_wrap=True)
    for name in _header(replay)[2:]:
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    names = [rule.name for rule in replay.rules]
    for rule, following in zip(replay.rules, [*names[1:], None], strict=True):
        _, _, *cells = _cells(rule, replay.phases is not None)
        is_last = rule.name == "differential" and following != rule.name
        table.add_row(f"{rule.name} {rule.value:.3g}", *cells, end_section=is_last)
    yield table
    yield Text(LEGEND, style="dim")
    if replay.phases:
        yield Text(_phase_line(replay.phases))
    for warning in regime_warnings(replay):
        yield Text.assemble(("warning: ", "bold yellow"), warning)
    for note in replay.notes:
        yield Text.assemble(("note: ", "bold"), note)


def replay_markdown(replay: Replay) -> str:
    """The same as Markdown."""
    header = _header(replay)
    lines = [f"- {line}" for line in _fact_lines(replay.facts, replay.formats)]
    lines += ["", "| " + " | ".join(header) + " |"]
    lines.append("|" + "|".join("---" if n in ("rule", "setting") else "--:" for n in header) + "|")
    for rule in replay.rules:
        lines.append("| " + " | ".join(_cells(rule, replay.phases is not None)) + " |")
    lines += ["", LEGEND]
    if replay.phases:
        lines += ["", _phase_line(replay.phases)]
    told = [f"- **Warning.** {warning}" for warning in regime_warnings(replay)]
    told += [f"- Note: {note}" for note in replay.notes]
    return "\n".join([*lines, "", *told]).rstrip() + "\n"


def _header(replay: Replay) -> tuple[str, ...]:
    return (*HEADER, SPEEDUP) if replay.phases else HEADER


def _fact_lines(facts: DataFacts, formats: tuple[str, ...]) -> Iterator[str]:
    low, high = facts.group_sizes
    size = f"{low}" if low == high else f"{low}-{high}"
    yield (
        f"{' and '.join(formats)}: {facts.rollouts:,} rollouts in {facts.groups:,} groups of "
        f"{size}, {facts.steps:,} step(s), {facts.tokens:,} completion tokens "
        f"({facts.token_source})."
    )
    yield (
        f"Mean reward {facts.reward_mean:.3f}; successes {facts.success:.1%} of rollouts "
        "(rewards in the upper half of their range); groups "
        f"without contrast {facts.without_contrast:.1%}, without a success "
        f"{facts.never_right:.1%}; {facts.values_per_group:.2f} distinct advantages per group "
        f"(advantages: {facts.advantage_source})."
    )
    if facts.similarity_quartiles is not None:
        first, median, third = facts.similarity_quartiles
        yield (
            f"Similarity at equal advantage: mean {facts.similarity_mean:.3f}, quartiles "
            f"{first:.2f} / {median:.2f} / {third:.2f}; {facts.pairs_below:.1%} of {facts.pairs:,} "
            "pairs below 0.2."
        )


def _cells(rule: RuleResult, has_speedup: bool) -> tuple[str, ...]:
    similarity = rule.dropped_similarity
    cells = (
        rule.name,
        f"{rule.setting} {rule.value:.3g}",
        f"{rule.kept_share:.1%}",
        f"{rule.kept_per_prompt:.2f}",
        str(rule.max_kept_per_prompt),
        f"{rule.tokens_saved:.1%}",
        f"{rule.values_lost:.1%}",
        "-" if similarity is None else f"{similarity:.3f}",
    )
    return (*cells, f"{rule.speedup:.2f}x") if has_speedup else cells


def _phase_line(phases: PhaseSplit) -> str:
    told = ", ".join(
        f"{name} {seconds / phases.total:.0%}"
        for name, seconds in phases.seconds.items()
        if seconds >= 0.005 * phases.total
    )
    bound = "none" if math.isinf(phases.bound) else f"{phases.bound:.2f}x"
    return (
        f"Speed-up end to end, without adaptive rollouts, for the phase split {told} "
        f"({phases.source}): log-probs and updates shrink to the kept share, the rest stays. "
        f"Amdahl bound (nothing kept): {bound}."
    )
