"""Phase splits of a training step, and the speed-up that a kept share can give."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PHASES = ("generate", "reward", "prune", "old_logps", "ref_logps", "update", "other")
PRUNED = ("old_logps", "ref_logps", "update")  # these see kept rollouts only
NAMES = {
    "gen": "generate",
    "generation": "generate",
    "rewards": "reward",
    "adv": "other",
    "old": "old_logps",
    "old_log_prob": "old_logps",
    "ref": "ref_logps",
    "update_actor": "update",
    **{phase: phase for phase in PHASES},
}


@dataclass(frozen=True)
class PhaseSplit:
    """Seconds per phase of plain training, in any unit as long as it is one.

    Attributes:
        seconds: phase -> seconds.
        source: where they come from, in words.
    """

    seconds: Mapping[str, float]
    source: str

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    @property
    def shrinking(self) -> float:
        """Seconds of the phases that pruning shortens."""
        return sum(self.seconds.get(phase, 0.0) for phase in PRUNED)

    @property
    def bound(self) -> float:
        """Amdahl bound: the speed-up if nothing were kept; infinite if all phases shrink."""
        fixed = self.total - self.shrinking
        return self.total / fixed if fixed > 0 else math.inf

    def speedup(self, kept_share: float) -> float:
        """Speed-up end to end when log-probs and update take `kept_share` of their time.

        Args:
            kept_share: kept rollouts / rollouts that plain training generates, in (0, 1].
        """
        return self.total / (self.total - (1 - kept_share) * self.shrinking)


def parse_phases(text: str) -> PhaseSplit:
    """A split such as "gen=74,old=3.6,ref=3.4,update=14.3", or a log file's.

    Args:
        text: name=seconds pairs (`total` may be one: what is missing to it is `other`), or the
            path of a run folder or of a .jsonl of metrics.

    Raises:
        ValueError: an unknown name, a bad number, or a file without phase times.
    """
    path = Path(text)
    if path.exists():
        return read_phases(path)
    seconds: dict[str, float] = {}
    total = None
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= 0) or name not in (*NAMES, "total"):
            raise ValueError(
                f"--phases: {word.strip()!r}: expected NAME=SECONDS with NAME one of "
                f"{', '.join([*NAMES, 'total'])}; or the path of a run folder or metrics .jsonl."
            )
        if name == "total":
            total = number
        else:
            seconds[NAMES[name]] = seconds.get(NAMES[name], 0.0) + number
    spent = sum(seconds.values())
    if total is not None and total < spent:
        raise ValueError(f"--phases: total={total:g} is less than its parts, {spent:g}.")
    if total is not None:
        seconds["other"] = seconds.get("other", 0.0) + total - spent
    if not sum(seconds.values()):
        raise ValueError(f"--phases {text}: no time in any phase.")
    return PhaseSplit(seconds, "given")


def read_phases(path: Path) -> PhaseSplit:
    """The split that a log tells, scaled to plain training where it was a pruned run.

    Args:
        path: a run folder with `metrics.jsonl`, or such a file; keys `fastrl/time/<phase>`
            (ours) or `timing_s/<phase>` (verl's, also inside `data`).

    Raises:
        ValueError: no phase times in it.
    """
    path = path / "metrics.jsonl" if path.is_dir() else path
    if not path.exists():
        raise ValueError(f"--phases: {path}: no such file.")
    lines = list(metric_lines(path))
    seconds = sum_phases(lines)
    if not sum(seconds.values()):
        raise ValueError(
            f"--phases: {path}: no fastrl/time/* or timing_s/* values; give NAME=SECONDS pairs."
        )
    kept, generated = (
        sum(line.get(name, 0.0) for line in lines) for name in ("fastrl/kept", "fastrl/generated")
    )
    source = str(path)
    if 0 < kept < generated:
        seconds = {
            phase: value * generated / kept if phase in PRUNED else value
            for phase, value in seconds.items()
        }
        source += f" (a run that kept {kept / generated:.0%}: log-probs and updates scaled up)"
    return PhaseSplit(seconds, source)


def metric_lines(path: Path) -> Iterable[dict[str, Any]]:
    """The whole lines of a metrics file; it ends where one was cut short."""
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            return
        if isinstance(line, dict):
            yield line["data"] if isinstance(line.get("data"), dict) else line


def sum_phases(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds per phase over all metric lines."""
    seconds: dict[str, float] = {}
    whole = 0.0
    for line in lines:
        for key, value in line.items():
            prefix, _, name = key.rpartition("/")
            if prefix not in ("fastrl/time", "timing_s") or not isinstance(value, (int, float)):
                continue
            if name in NAMES:
                seconds[NAMES[name]] = seconds.get(NAMES[name], 0.0) + value
            elif name == "step":
                whole += value
    if whole > sum(seconds.values()):
        seconds["other"] = seconds.get("other", 0.0) + whole - sum(seconds.values())
    return seconds
