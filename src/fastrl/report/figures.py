"""The report's charts, made from arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from fastrl.report.arms import (
    Arm,
    band,
    baseline,
    pairs,
    ratio_interval,
    score_band,
    split_for,
)
from fastrl.report.charts import Axes, Dot, Level, Series, dot_chart, line_chart, stacked_bars
from fastrl.report.phases import PHASES
from fastrl.report.run_folders import Batch
from fastrl.report.tables import PHASE_TITLES
from fastrl.report.targets import Target, has_scores, time_to_target

UPDATES, SECONDS = "updates", "training time (s)"


@dataclass(frozen=True)
class Figure:
    """A chart.

    Attributes:
        name: of a file, without ending.
        title: heading.
        svg: the picture; coloured by the page's style sheet.
        note: what it shows.
        is_course: whether it is about the course of training and not about what came out.
    """

    name: str
    title: str
    svg: str
    note: str = ""
    is_course: bool = False

    def standalone(self) -> str:
        """The picture with its own style sheet, for a file."""
        style = (files("fastrl.report") / "assets" / "chart.css").read_text(encoding="utf-8")
        head, bracket, rest = self.svg.partition(">")
        return f"{head}{bracket}<style>{style}</style>{rest}\n"


def report_figures(arms: Sequence[Arm], target: Target | None = None) -> list[Figure]:
    """Every chart that the arms have data for; held-out accuracy first where it was scored.

    Args:
        arms: in the order of their colours.
        target: drawn as a level where accuracy is, and the time to it as a chart.
    """
    bands = ""
    if any(len(arm.runs) > 1 for arm in arms):
        bands = "Line: mean over seeds; band: least to greatest."
    full = f"Mean over full groups, kept or not. {bands}".strip()
    is_scored = has_scores(arms)
    if not is_scored:
        full = f"Training reward (no held-out scores over time in these runs). {full}"

    def curves(
        name: str, title: str, y: Callable[[Batch], float], axes: Axes, note: str = bands
    ) -> Figure:
        svg = line_chart(title, _series(arms, y, axes.x == SECONDS), axes)
        return Figure(name, title, svg, note, is_course=is_scored or "reward" not in name)

    def reward(batch: Batch) -> float:
        return batch.reward

    rewards = [
        curves("reward_time", "Reward against time", reward, Axes(SECONDS, "reward"), full),
        curves("reward_updates", "Reward against updates", reward, Axes(UPDATES, "reward"), full),
    ]
    first = rewards
    if is_scored:
        first = [_scores(arms, x, target, bands) for x in (SECONDS, UPDATES)]
    figures = [
        *first,
        _sooner(arms, target),
        _speedups(arms),
        _phases(arms),
        _accuracy(arms),
        *(rewards if is_scored else []),
        curves(
            "kept",
            "Kept per prompt",
            lambda b: b.kept_per_prompt,
            Axes(UPDATES, "kept rollouts per prompt", from_zero=True),
        ),
        curves(
            "without_contrast",
            "Groups without contrast",
            lambda b: b.without_contrast,
            Axes(UPDATES, "share of groups", is_share=True, from_zero=True),
            f"Groups in which every advantage is zero. {bands}".strip(),
        ),
    ]
    batches = [batch for arm in arms for run in arm.runs for batch in run.batches]
    if len({batch.num_generations for batch in batches}) > 1:
        figures.append(
            curves(
                "num_generations",
                "Rollouts per prompt",
                lambda b: b.num_generations,
                Axes(UPDATES, "rollouts generated per prompt", from_zero=True),
            )
        )
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


def _scores(arms: Sequence[Arm], x: str, target: Target | None, bands: str) -> Figure:
    series, unscored = [], []
    for colour, arm in enumerate(arms):
        found = score_band(arm, "seconds" if x == SECONDS else "step")
        if found is None:
            unscored.append(arm.name)
        else:
            series.append(
                Series(arm.name, found.x_M, found.mean_M, found.low_M, found.high_M, colour)
            )
    scores = [one for arm in arms for run in arm.runs for one in run.scores]
    pictures, samples = ({getattr(one, name) for one in scores} for name in ("pictures", "samples"))
    note = f"{_range(pictures)} held-out questions, {_range(samples)} samples of each. {bands}"
    note = note.strip()
    some = sum(not run.scores for arm in arms for run in arm.runs if arm.name not in unscored)
    if some:
        note += f" {some} run(s) without scores on the way are not in it."
    if unscored:
        note += f" Not scored on the way: {', '.join(unscored)}."
    by_time = x == SECONDS
    title = f"Held-out accuracy against {'time' if by_time else 'updates'}"
    level = Level(target.accuracy, f"target {target.accuracy:.1%}") if target else None
    axes = Axes(x, "held-out accuracy", is_share=True, level=level)
    name = "accuracy_time" if by_time else "accuracy_updates"
    return Figure(name, title, line_chart(title, series, axes), note)


def _range(values: set[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _sooner(arms: Sequence[Arm], target: Target | None) -> Figure:
    plain, dots, missing = baseline(arms), [], []
    title = f"Sooner at {target.accuracy:.1%} held-out accuracy" if target else ""
    for colour, arm in enumerate(arms):
        if plain is not None and target is not None and arm is not plain:
            way = time_to_target(plain, arm, target.accuracy)
            found = ratio_interval(list(way.ratios.values()))
            if found is not None:
                dots.append(Dot(arm.name, found.mean, found.low, found.high, None, colour))
            if way.missing:
                missing.append(f"{arm.name}: {way.missing}")
    axis = f"times sooner than {plain.name if plain else 'plain'}"
    note = "Training time to the target; geometric mean of each seed's ratio and 95% interval."
    if missing:
        note += f" Seeds without a ratio: {'; '.join(missing)}."
    return Figure("sooner", title, dot_chart(title, dots, axis), note)


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
    plain, dots = baseline(arms), []
    for colour, arm in enumerate(arms):
        if plain is not None and arm is not plain:
            found = ratio_interval([p.seconds / run.seconds for p, run in pairs(plain, arm)])
            if found is not None:
                split = split_for(arms, arm)
                limit = split.bound if split and math.isfinite(split.bound) else None
                dots.append(Dot(arm.name, found.mean, found.low, found.high, limit, colour))
    title = "Speed-up end to end"
    axis = f"times faster than {plain.name if plain else 'plain'}"
    has_limit = any(dot.limit is not None for dot in dots)
    limit_name = "Amdahl bound: plain without log-probs and updates" if has_limit else ""
    svg = dot_chart(title, dots, axis, limit_name)
    note = "Training time at equal updates; mean of the ratios of each seed and 95% interval."
    if has_limit:
        note += " Adaptive rollouts and shared prefixes may pass the bound."
    return Figure("speedup", title, svg, note)


def _phases(arms: Sequence[Arm]) -> Figure:
    bars = [(arm.name, [arm.phase_means()[phase] for phase in PHASES]) for arm in arms]
    bars = [(name, values) for name, values in bars if sum(values)]
    names = [PHASE_TITLES[phase] for phase in PHASES]
    title = "Time per phase"
    svg = stacked_bars(title, bars, names, "s")
    return Figure("phases", title, svg, "Training seconds, mean over seeds.")
