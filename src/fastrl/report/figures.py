"""The report's charts, made from arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from fastrl.report.arms import Arm, band, baseline, pairs, plain_split, ratio_interval
from fastrl.report.charts import Axes, Dot, Series, dot_chart, line_chart, stacked_bars
from fastrl.report.phases import PHASES
from fastrl.report.run_folders import Batch
from fastrl.report.tables import PHASE_TITLES

UPDATES, SECONDS = "updates", "training time (s)"


@dataclass(frozen=True)
class Figure:
    """A chart.

    Attributes:
        name: of a file, without ending.
        title: heading.
        svg: the picture; coloured by the page's style sheet.
        note: what it shows.
    """

    name: str
    title: str
    svg: str
    note: str = ""

    def standalone(self) -> str:
        """The picture with its own style sheet, for a file."""
        style = (files("fastrl.report") / "assets" / "chart.css").read_text(encoding="utf-8")
        head, bracket, rest = self.svg.partition(">")
        return f"{head}{bracket}<style>{style}</style>{rest}\n"


def report_figures(arms: Sequence[Arm]) -> list[Figure]:
    """Every chart that the arms have data for."""
    several = any(len(arm.runs) > 1 for arm in arms)
    bands = "Line: mean over seeds; band: least to greatest." if several else ""
    full = f"Mean over full groups, kept or not. {bands}".strip()

    def curves(name: str, title: str, y: Callable[[Batch], float], axes: Axes, note: str) -> Figure:
        by_time = axes.x == SECONDS
        return Figure(name, title, line_chart(title, _series(arms, y, by_time), axes), note)

    figures = [
        curves(
            "reward_time", "Reward against time", lambda b: b.reward, Axes(SECONDS, "reward"), full
        ),
        curves(
            "reward_updates",
            "Reward against updates",
            lambda b: b.reward,
            Axes(UPDATES, "reward"),
            full,
        ),
        _speedups(arms),
        _phases(arms),
        _accuracy(arms),
        curves(
            "kept",
            "Kept per prompt",
            lambda b: b.kept_per_prompt,
            Axes(UPDATES, "kept rollouts per prompt", from_zero=True),
            bands,
        ),
        curves(
            "num_generations",
            "Rollouts per prompt",
            lambda b: b.num_generations,
            Axes(UPDATES, "rollouts generated per prompt", from_zero=True),
            bands,
        ),
        curves(
            "without_contrast",
            "Groups without contrast",
            lambda b: b.without_contrast,
            Axes(UPDATES, "share of groups", is_share=True, from_zero=True),
            f"Groups in which every advantage is zero. {bands}".strip(),
        ),
    ]
    return [figure for figure in figures if figure.svg]


def _series(arms: Sequence[Arm], y: Callable[[Batch], float], by_time: bool) -> list[Series]:
    series = []
    for colour, arm in enumerate(arms):
        found = band(arm, (lambda b: b.seconds) if by_time else (lambda b: b.step), y)
        if found is not None:
            series.append(
                Series(arm.name, found.x_M, found.mean_M, found.low_M, found.high_M, colour)
            )
    return series


def _accuracy(arms: Sequence[Arm]) -> Figure:
    series = []
    for colour, arm in enumerate(arms):
        points = [
            (run.seconds, after)
            for run in arm.runs
            if (after := run.held_out("after", "sampled")) is not None
        ]
        if points:
            x_M, y_M = np.array(points).T
            series.append(Series(arm.name, x_M, y_M, colour=colour, is_scatter=True))
    title = "Held-out accuracy and training time"
    svg = line_chart(title, series, Axes(SECONDS, "held-out accuracy", is_share=True))
    return Figure("accuracy", title, svg, "One point a seed, at the end of its run.")


def _speedups(arms: Sequence[Arm]) -> Figure:
    plain, split = baseline(arms), plain_split(arms)
    limit = split.bound if split and math.isfinite(split.bound) else None
    dots = []
    for colour, arm in enumerate(arms):
        if plain is not None and arm is not plain:
            found = ratio_interval([p.seconds / run.seconds for p, run in pairs(plain, arm)])
            if found is not None:
                dots.append(
                    Dot(
                        arm.name,
                        found.mean,
                        found.low,
                        found.high,
                        limit if not arm.is_plain else None,
                        colour,
                    )
                )
    title = "Speed-up end to end"
    axis = f"times faster than {plain.name if plain else 'plain'}"
    svg = dot_chart(title, dots, axis, "Amdahl bound: plain without log-probs and updates")
    note = "Training time at equal updates; mean of the ratios of each seed and 95% interval."
    return Figure("speedup", title, svg, note)


def _phases(arms: Sequence[Arm]) -> Figure:
    bars = [(arm.name, [arm.phase_means()[phase] for phase in PHASES]) for arm in arms]
    bars = [(name, values) for name, values in bars if sum(values)]
    names = [PHASE_TITLES[phase] for phase in PHASES]
    title = "Time per phase"
    svg = stacked_bars(title, bars, names, "s")
    return Figure("phases", title, svg, "Training seconds, mean over seeds.")
