"""Progress of a run, for a terminal or for a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

SECONDS_IN_A_LOG = 60  # between lines of something counted where there is no terminal
LINES_IN_A_LOG = 20  # progress lines of a run where there is no terminal to draw a bar on


class Progress:
    """Draws bars on a terminal; elsewhere prints a line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def _bars(self) -> RichProgress:
        return RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    @contextmanager
    def counting(self, title: str, announce: bool = True) -> Iterator[Callable[[int, int], None]]:
        """Progress of something counted: the yielded function takes done and total.

        Args:
            title: what is done.
            announce: print the title where no bar can be drawn.
        """
        with self._bars() as bars:
            task = bars.add_task(title, total=None, note="")
            told = time.monotonic()

            def update(done: int, total: int) -> None:
                nonlocal told
                bars.update(task, completed=done, total=total)
                if not self.console.is_terminal and time.monotonic() - told > SECONDS_IN_A_LOG:
                    told = time.monotonic()
                    self.console.print(f"{title}: {done} of {total}")

            if announce and not self.console.is_terminal:
                self.console.print(title)
            yield update

    @contextmanager
    def training(self, config: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Progress of training: the yielded function takes each step's metrics."""
        latest: dict[str, float] = {}
        # Without max_steps (epochs decide) the bar only counts.
        total = config.max_steps if config.max_steps > 0 else None
        every = max(1, (total or 200) // LINES_IN_A_LOG)
        with self._bars() as bars:
            task = bars.add_task("Training", total=total, note="")

            def update(line: dict[str, Any]) -> None:
                latest.update({k: v for k, v in line.items() if isinstance(v, int | float)})
                note = _note(latest)
                step = int(line["step"])
                bars.update(task, completed=step, note=note)
                if not self.console.is_terminal and step % every == 0:
                    self.console.print(
                        f"step {step}/{total or '?'}  {line['seconds']:.0f} s  {note}"
                    )

            yield update


def _note(latest: dict[str, float]) -> str:
    """The three numbers worth watching."""
    parts = []
    if "fastrl/reward" in latest:
        parts.append(f"reward {latest['fastrl/reward']:.2f}")
    if latest.get("fastrl/generated"):
        parts.append(f"kept {latest['fastrl/kept'] / latest['fastrl/generated']:.0%}")
    if "fastrl/num_generations" in latest:
        parts.append(f"rollouts per prompt {latest['fastrl/num_generations']:.0f}")
    return "  ".join(parts)
