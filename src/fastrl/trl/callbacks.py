"""What FastRL does between the steps of the trainer's loop."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from fastrl.trl.phases import PhaseClock

logger = logging.get_logger(__name__)


def rounded_up(steps: int, multiple: int) -> int:
    """The next multiple from `steps` on."""
    return -(-steps // multiple) * multiple


class PrunedTrainer(Protocol):
    """What the callbacks need of a trainer."""

    clock: PhaseClock

    @property
    def at_generation_boundary(self) -> bool:
        """Whether every rollout of the last generation batch has been used."""

    def draw_finished_epochs(self) -> None:
        """Bring the order of prompts to the epoch that training resumes in."""

    def end_update(self) -> None:
        """Note that the optimiser has stepped."""

    def log_generation_end(self) -> None:
        """Hand what a used-up generation batch took to the trainer's metrics."""


class PhaseClockCallback(TrainerCallback):  # type: ignore[misc]
    """Times the optimiser's own work, and hands over the seconds of a finished generation batch."""

    def __init__(self, trainer: PrunedTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.trainer.clock.lap()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The optimiser begins."""
        self.trainer.clock.start("update")

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The optimiser is done."""
        self.trainer.clock.stop()
        self.trainer.end_update()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Log the phases before this step's metrics are."""
        if self.trainer.at_generation_boundary or state.global_step >= state.max_steps:
            self.trainer.log_generation_end()


class GenerationBoundaryCallback(TrainerCallback):  # type: ignore[misc]
    """Lets checkpoints fall only where a generation batch has been used up.

    In the middle of one, the remaining rollouts would be lost on resume, and a resumed run would
    end elsewhere than an uninterrupted one.

    Args:
        trainer: knows when its generation batch is used up.
        updates_per_generation: optimiser updates between two such moments.
    """

    def __init__(self, trainer: PrunedTrainer, updates_per_generation: int) -> None:
        self.trainer = trainer
        self.updates_per_generation = updates_per_generation
        self._save_is_due = False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Round `save_steps` up to whole generation batches; go on with the epoch's prompts."""
        self.trainer.draw_finished_epochs()
        if args.save_strategy != "steps" or not state.save_steps:
            return
        rounded = rounded_up(int(state.save_steps), self.updates_per_generation)
        if rounded != state.save_steps:
            logger.warning(
                f"save_steps = {state.save_steps} falls inside a generation batch "
                f"({self.updates_per_generation} updates); checkpoints are written every "
                f"{rounded} steps."
            )
        state.save_steps = args.save_steps = rounded

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Put off a save asked for inside a generation batch until the batch is used up."""
        if not self.trainer.at_generation_boundary and state.global_step < state.max_steps:
            self._save_is_due |= control.should_save
            control.should_save = False
        elif self._save_is_due:
            control.should_save = True
            self._save_is_due = False
