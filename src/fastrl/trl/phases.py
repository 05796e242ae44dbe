"""Where the seconds of a run go: a stopwatch per phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REPORTED_PHASES = ("generate", "reward", "prune", "old_logps", "ref_logps", "update")
# Not training: told apart, and never part of "other".
OUTSIDE_PHASES = ("evaluate", "checkpoint")


class PhaseClock:
    """Seconds per phase; phases nest, and a second belongs to the innermost one.

    Args:
        synchronize: waits for the accelerator's queued work, so that a phase is charged for what
            it started; nothing to do on a CPU.
        now: the clock, in seconds.
    """

    def __init__(
        self, synchronize: Callable[[], None], now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._synchronize = synchronize
        self._now = now
        self._seconds: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._mark = now()
        self._lap_start = self._mark

    def _charge(self) -> None:
        self._synchronize()
        moment = self._now()
        if self._stack:
            self._seconds[self._stack[-1]] += moment - self._mark
        self._mark = moment

    def start(self, phase: str) -> None:
        """From now on time belongs to `phase`, until its `stop`."""
        self._charge()
        self._stack.append(phase)

    def stop(self) -> None:
        """End the innermost phase."""
        self._charge()
        self._stack.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase."""
        self.start(name)
        try:
            yield
        finally:
            self.stop()

    def move(self, source: str, target: str, seconds: float) -> None:
        """Charge seconds of one phase to another, when only later it shows what they were."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def total(self, phase: str) -> float:
        """Seconds charged to a phase since the last lap."""
        return self._seconds[phase]

    def lap(self) -> dict[str, float]:
        """Seconds per phase since the last lap, and start the next one.

        "other" is what remains of the wall-clock time once every phase, evaluation and checkpoints
        are taken off; those two are returned under their own names.
        """
        self._charge()
        wall = self._mark - self._lap_start
        phases = {name: self._seconds[name] for name in REPORTED_PHASES + OUTSIDE_PHASES}
        phases["other"] = wall - sum(phases.values())
        self._seconds.clear()
        self._lap_start = self._mark
        return phases
