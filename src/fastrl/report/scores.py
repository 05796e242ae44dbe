"""Held-out scores over a run: `scores.jsonl`, and what its straight lines tell."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Scoring:
    """One scoring of the held-out pictures.

    Attributes:
        step: optimiser updates made before it; 0 is before training.
        seconds: training seconds before it; scoring itself is not in them.
        sampled: accuracy, mean over samples of every picture, in [0, 1].
        greedy: accuracy of the greedy answers, None where they were not scored.
        in_format: share of samples in the format asked for, None where it earned nothing.
        pictures, samples: pictures, and samples of each.
    """

    step: int
    seconds: float
    sampled: float
    greedy: float | None
    in_format: float | None
    pictures: int
    samples: int


def read_scores(path: Path) -> list[Scoring]:
    """The scorings of a run, in ascending step; of two at one step the later one.

    Args:
        path: a `scores.jsonl`; absent where a run was not scored on its way.

    Raises:
        ValueError: a field is missing or no number; names file, line and field.
    """
    if not path.exists():
        return []
    found: dict[int, Scoring] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # cut short by a kill, or being written just now
            raise ValueError(f"{path}, line {number}: not JSON ({error}).") from error
        scoring = _scoring(line, f"{path}, line {number}")
        found[scoring.step] = scoring
    return [found[step] for step in sorted(found)]


def _scoring(line: Any, where: str) -> Scoring:
    problems = []
    values: dict[str, float] = {}
    for name in ("step", "seconds", "sampled", "pictures", "samples"):
        value = line.get(name) if isinstance(line, dict) else None
        if not isinstance(value, int | float) or not math.isfinite(value):
            problems.append(f"{name} = {value!r}: expected a number")
        else:
            values[name] = value
    if problems:
        raise ValueError(f"{where}: {'; '.join(problems)}; score the run again.")
    greedy, in_format = line.get("greedy"), line.get("in_format")
    return Scoring(
        step=int(values["step"]),
        seconds=float(values["seconds"]),
        sampled=float(values["sampled"]),
        greedy=None if greedy is None else float(greedy),
        in_format=None if in_format is None else float(in_format),
        pictures=int(values["pictures"]),
        samples=int(values["samples"]),
    )


def curve(scorings: Sequence[Scoring], by: str = "seconds") -> npt.NDArray[np.float64]:
    """(M, 2) x and accuracy of M scorings.

    Args:
        by: what x is, "seconds" or "step".
    """
    return np.array([(getattr(one, by), one.sampled) for one in scorings], np.float64).reshape(
        -1, 2
    )


def first_reach(curve_M2: npt.NDArray[np.float64], target: float) -> float | None:
    """The first x at which the straight lines between points reach a height.

    Args:
        curve_M2: (M, 2) x and y, x ascending.
        target: the height.

    Returns:
        The first point's x where that is high enough already; None where no point is.
    """
    high = np.flatnonzero(curve_M2[:, 1] >= target)
    if not len(high):
        return None
    end = int(high[0])
    if end == 0:
        return float(curve_M2[0, 0])
    (x0, y0), (x1, y1) = curve_M2[end - 1], curve_M2[end]
    return float(x0 + (target - y0) / (y1 - y0) * (x1 - x0))
