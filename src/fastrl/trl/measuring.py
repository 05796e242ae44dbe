"""What a run tells: metrics, the completions table, records for observers, seconds of phases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from fastrl.core import Selection
from fastrl.trl.callbacks import PhaseClockCallback
from fastrl.trl.phases import OUTSIDE_PHASES, PhaseClock
from fastrl.trl.ranks import GlobalRows
from fastrl.trl.record import GenerationRecord, as_text, weighted_rewards
from fastrl.trl.resuming import ResumableMixin


class MeasuringMixin(ResumableMixin):
    """The part of `FastRLMixin` that measures and tells; it changes nothing that is trained.

    Attributes:
        rollout_observers: each is called, on the main process, with the `GenerationRecord` of
            every training batch, the rows of all processes in it.
        clock: the seconds of each phase.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollout_observers: list[Callable[[GenerationRecord], None]] = []
        self._rows_in_update = 0
        self._skipped_updates = 0
        super().__init__(*args, **kwargs)
        self.clock = PhaseClock(self._synchronize)
        self.add_callback(PhaseClockCallback(self))

    def _synchronize(self) -> None:
        if self.accelerator.device.type != "cpu":
            torch.accelerator.synchronize()

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return self.clock.phase(name if self.model.training else "evaluate")

    def _record(
        self,
        rows: GlobalRows,
        selection: Selection,
        num_generations: int,
        rewards_per_func: torch.Tensor,
        pictures_G: tuple[tuple[Any, ...], ...],
    ) -> None:
        """Log what was generated and what is kept, on all processes; tell the observers."""
        logged = self._logs  # TRL gathers it over all processes, as it does rewards
        rewards_NF = rewards_per_func.double().cpu().numpy()
        prompts, completions = (
            [as_text(messages) for messages in list(logged[name])[-len(rows) :]]
            for name in ("prompt", "completion")
        )
        record = GenerationRecord(
            step=self.state.global_step,
            generation_step=self._generation_step,
            num_generations=num_generations,
            prompts=prompts,
            completions=completions,
            rewards=dict(zip(self.reward_func_names, rewards_NF.T, strict=True)),
            reward_N=weighted_rewards(rewards_NF, self.reward_weights.double().cpu().numpy()),
            advantages_N=rows.advantages_N,
            selection=selection,
            pictures_G=pictures_G,
        )
        if self._schedule is not None:
            self._schedule.record(selection.kept_per_group)
        for name, value in self._metrics_of(record).items():
            self._metrics["train"][name].append(value)
        self._log_selection_columns(record.kept_N.tolist(), selection.reason.tolist())
        if self.accelerator.is_main_process:
            told = self._told_record(record)
            for observer in self.rollout_observers:
                observer(told)

    def _metrics_of(self, record: GenerationRecord) -> dict[str, float]:
        """The `fastrl/*` metrics of a batch, phase times aside."""
        return record.metrics()

    def _told_record(self, record: GenerationRecord) -> GenerationRecord:
        """What observers are told of a batch."""
        return record

    def _clear_logged_completions(self) -> None:
        """Leave no rows of earlier batches in TRL's table, which would be told as this batch's.

        A full batch pushes them all out; a smaller one, or one after an evaluation, does not.
        """
        logged = self._logs
        columns = [*logged["rewards"].values(), *logged["extra"].values()]
        for column in (*(logged[name] for name in ("images", "prompt", "completion")), *columns):
            column.clear()
        logged["advantages"].clear()

    def _log_selection_columns(self, kept: list[Any], reason: list[Any]) -> None:
        """Two columns for TRL's completions table, for the rows of all processes."""
        self._logs["extra"]["kept"].extend(kept)
        self._logs["extra"]["reason"].extend(reason)

    def end_update(self) -> None:
        """Count an update that no row had a part in; its optimiser had nothing to step on."""
        self._skipped_updates += self._rows_in_update == 0
        self._rows_in_update = 0

    def log_generation_end(self) -> None:
        """Append to TRL's metrics: skipped updates and the seconds of each phase."""
        metrics = self._metrics["train"]
        metrics["fastrl/skipped_updates"].append(float(self._skipped_updates))
        self._skipped_updates = 0
        for name, seconds in self.clock.lap().items():
            if name not in OUTSIDE_PHASES or seconds:
                metrics[f"fastrl/time/{name}"].append(seconds)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, timed apart from training."""
        with self.clock.phase("evaluate"):
            return super().evaluate(*args, **kwargs)
