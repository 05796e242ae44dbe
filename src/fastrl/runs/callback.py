"""Metrics to the run folder and progress to the terminal, from inside the trainer's loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from fastrl.runs.folder import RunFolder


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """A line of `metrics.jsonl` per optimiser step.

    `seconds` is training time so far: evaluation, scoring and checkpoints are told apart
    (`evaluate_seconds`, `score_seconds`, `checkpoint_seconds`), and a resumed run goes on where the
    last line was.

    Args:
        folder: where the lines go.
        on_step: told each line, for progress.
        score: told step and `seconds` after each line; the time it takes is not training.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        folder: RunFolder,
        on_step: Callable[[dict[str, Any]], None],
        score: Callable[[int, float], None] = lambda step, seconds: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.folder = folder
        self.on_step = on_step
        self.score = score
        self.now = now
        self.spent = dict.fromkeys(
            ("seconds", "evaluate_seconds", "score_seconds", "checkpoint_seconds"), 0.0
        )
        self.mark = 0.0

    def _charge(self, to: str) -> None:
        moment = self.now()
        self.spent[to] += moment - self.mark
        self.mark = moment

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Take up the time of the last line of a run that is resumed."""
        lines = self.folder.read_metrics()
        if lines:
            self.spent = {name: lines[-1].get(name, 0.0) for name in self.spent}
        self.mark = self.now()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write a step's metrics; evaluation logs and the loop's own summary are not steps."""
        logs = logs or {}
        if "loss" not in logs:
            return
        self._charge("seconds")
        line = {
            "step": state.global_step,
            **{name: round(value, 4) for name, value in self.spent.items()},
            **{name: value for name, value in logs.items() if name != "step"},
        }
        self.folder.append_metrics(line)
        self.on_step(line)
        self.score(state.global_step, line["seconds"])
        self._charge("score_seconds")

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """What lies between a step's log and here was evaluation."""
        self._charge("evaluate_seconds")

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """What lies between a step's log (or evaluation) and here was the checkpoint."""
        self._charge("checkpoint_seconds")


class ScoringCallback(TrainerCallback):  # type: ignore[misc]
    """For the processes that write nothing: their part in scoring on the way.

    Args:
        score: told step and 0 after each update.
    """

    def __init__(self, score: Callable[[int, float], None]) -> None:
        self.score = score

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The logs of an evaluation, and the loop's own summary, are no updates."""
        if "loss" in (logs or {}):
            self.score(state.global_step, 0.0)
