"""The few numbers of a report to see first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fastrl.report.accuracy_tables import points
from fastrl.report.arms import Arm, baseline, mean_interval, pairs, ratio_interval, split_for
from fastrl.report.cells import with_spread
from fastrl.report.targets import Target, equal_time, time_to_target


@dataclass(frozen=True)
class Tile:
    """A number, what it is, and of what."""

    name: str
    value: str
    detail: str


def subtitle(arms: Sequence[Arm]) -> str:
    """How many runs of what length there are, on one line."""
    runs = [run for arm in arms for run in arm.runs]
    lengths = sorted({run.steps for run in runs})
    told = f"{lengths[0]:,}" if len(lengths) == 1 else f"{lengths[0]:,} to {lengths[-1]:,}"
    versions = dict.fromkeys(
        f"fastrl {version}"
        for run in runs
        if (version := (run.summary.get("versions") or {}).get("fastrl"))
    )
    names = [f"{len(arms)} arms, {len(runs)} runs"] if len(runs) > 1 else []
    return " \u00b7 ".join([*names, f"{told} updates", *versions])


def summary_tiles(arms: Sequence[Arm], target: Target | None) -> list[Tile]:
    """Of the first pruned arm against plain, or of the first that is there."""
    plain = baseline(arms)
    compared = [arm for arm in arms if arm is not plain]
    shown = next((arm for arm in compared if not arm.is_plain), (compared or arms)[0])
    others = plain if plain is not shown else None
    tiles = [*_against(others, arms, shown, target)] if others is not None else []
    after = _scores(shown, "after")
    if after:
        value, _, spread = with_spread(after).partition(" ")
        details = [f"{shown.name} {spread}".strip()]
        if others is not None and (plain_after := _scores(others, "after")):
            details.append(f"{others.name} {with_spread(plain_after)}")
        if before := _scores(shown, "before"):
            details.append(f"{with_spread(before).partition(' ')[0]} before")
        tiles.append(Tile("held-out accuracy", value, "; ".join(details)))
    tiles.append(Tile("rollouts kept", f"{shown.kept_share:.0%}", f"{shown.name}, of generated"))
    detail = f"{shown.name}" + (f"; {others.name} {_seconds(others):.0f} s" if others else "")
    tiles.append(Tile("training time", f"{_seconds(shown):.0f} s", detail))
    return tiles


def _against(plain: Arm, arms: Sequence[Arm], shown: Arm, target: Target | None) -> list[Tile]:
    tiles = []
    ratios = ratio_interval([p.seconds / run.seconds for p, run in pairs(plain, shown)])
    if ratios is not None:
        split = split_for(arms, shown)
        bound = f"; Amdahl bound {split.bound:.2f}x" if split else ""
        detail = f"{shown.name} against {plain.name}, same updates{bound}"
        tiles.append(Tile("faster end to end", f"{ratios.mean:.2f}x", detail))
    way = time_to_target(plain, shown, target.accuracy) if target else None
    sooner = ratio_interval(list(way.ratios.values())) if way else None
    if way and target and sooner is not None:
        # Of how many seeds: one that never gets there is not in the ratio.
        detail = f"{shown.name}, {len(way.ratios)} of {way.num_runs} seeds have a ratio"
        tiles.append(Tile(f"sooner at {target.accuracy:.1%}", f"{sooner.mean:.2f}x", detail))
    difference = mean_interval(equal_time(plain, shown).differences)
    if difference is not None:
        value, _, interval = points(difference).partition(" ")
        detail = f"points of accuracy {interval}, {shown.name} less {plain.name}"
        tiles.append(Tile("at equal training time", value, detail))
    return tiles


def _scores(arm: Arm, when: str) -> list[float]:
    found = [run.held_out(when, "sampled") for run in arm.runs]
    return [value for value in found if value is not None]


def _seconds(arm: Arm) -> float:
    return statistics.mean(run.seconds for run in arm.runs)
