"""What must go on where it was when a run is resumed: rollout schedule, counters, prompt order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging
from trl.trainer.utils import RepeatSampler

from fastrl.core import AdaptiveRollouts, KeepAll, PruningRule
from fastrl.core.schedule import prolonged
from fastrl.trl.checkpoints import STATE_NAME, checkpoint_step, read_state, write_state
from fastrl.trl.phases import PhaseClock
from fastrl.trl.prompt_stream import PromptStream
from fastrl.trl.reloading import has_renamed_weights, load_renamed_weights

logger = logging.get_logger(__name__)

if TYPE_CHECKING:
    # For the type checker alone: at run time the trainer class stands behind the mixin.
    from trl import GRPOTrainer as Host
else:
    Host = object


class ResumableMixin(Host):  # type: ignore[misc]
    """The part of `FastRLMixin` that lives in checkpoints.

    The only changes to TRL: a checkpoint also holds `fastrl_state.json`; a resumed run draws the
    prompts of its epoch in the order that the uninterrupted run would have (TRL starts again with
    the first epoch's), and finds weights that its checkpoint names otherwise.
    """

    _rule: PruningRule
    clock: PhaseClock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._generation_step = 0
        self._schedule: AdaptiveRollouts | None = None
        self._schedule_state: dict[str, Any] | None = None
        self._prompt_stream: PromptStream | None = None
        self._prompt_stream_state: dict[str, Any] | None = None
        self._state_file: Path | None = None
        self._train_sampler: Any = None
        super().__init__(*args, **kwargs)

    @property
    def _prunes(self) -> bool:
        return not isinstance(self._rule, KeepAll)

    @property
    def _prunes_now(self) -> bool:
        return self._prunes and self._generation_step >= self.args.start_step

    @property
    def _selects_rows(self) -> bool:
        """Whether other rows are trained on than TRL generated."""
        return bool(self._prunes or self.args.dynamic_sampling)

    @property
    def _splits(self) -> bool:
        """Whether the batch is split here: row counts are others, or groups stay together."""
        return bool(self._selects_rows or self.args.shared_prefix is True)

    @property
    def _splits_now(self) -> bool:
        selects_now = self._prunes_now or self.args.dynamic_sampling
        return bool(selects_now or self.args.shared_prefix is True)

    @property
    def _micro_steps_per_generation(self) -> int:
        return int(self.args.steps_per_generation * self.num_iterations)

    @property
    def _updates_per_generation(self) -> int:
        """Updates after which generation batches and updates end together."""
        micro_steps = self._micro_steps_per_generation
        return micro_steps // math.gcd(micro_steps, self.args.gradient_accumulation_steps)

    def _rollouts_per_prompt(self) -> int:
        """Rollouts per prompt of the generation batch about to run.

        Raises:
            ValueError: the schedule in the checkpoint is malformed or of another run.
        """
        if not (self._prunes_now and self.args.adaptive_rollouts):
            return int(self.args.num_generations)
        if self._schedule is None:
            # Not before training has begun: only then is the number of steps known.
            schedule = self._build_schedule()
            if self._schedule_state is not None:
                try:
                    schedule.load_state_dict(_prolonged(self._schedule_state, schedule))
                except ValueError as error:
                    raise ValueError(f"{self._state_file}: {error}") from error
            self._schedule = schedule
        return self._schedule.num_generations

    def _build_schedule(self) -> AdaptiveRollouts:
        args = self.args
        steps_per_epoch = args.steps_per_epoch
        if steps_per_epoch is None:
            prompts = args.generation_batch_size // args.num_generations
            steps_per_epoch = math.ceil(len(self.train_dataset) / prompts)
        micro_steps = self.state.max_steps * args.gradient_accumulation_steps
        return AdaptiveRollouts(
            num_generations=args.num_generations,
            min_generations=args.min_generations,
            steps_per_epoch=steps_per_epoch,
            total_steps=math.ceil(micro_steps / self._micro_steps_per_generation),
        )

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, remembered: on resume it must have drawn the epochs before."""
        self._train_sampler = super()._get_train_sampler(*args, **kwargs)
        return self._train_sampler

    def draw_finished_epochs(self) -> None:
        """Bring the sampler of a resumed run to where the uninterrupted run's would be.

        The sampler shuffles with a generator of its own, seeded when it is made: nothing in a
        checkpoint brings it forward.
        """
        sampler = self._train_sampler
        # A sampler of the user's own is the user's to bring forward.
        if type(sampler) is not RepeatSampler or not sampler.shuffle or self.args.ignore_data_skip:
            return
        for _ in range(int(self.state.epoch or 0)):
            torch.randperm(sampler.num_samples, generator=sampler.generator)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's, with FastRL's state in the same folder, timed apart from training."""
        with self.clock.phase("checkpoint"):
            if self.args.should_save:
                name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
                schedule = self._schedule.state_dict() if self._schedule else self._schedule_state
                # First, so that a checkpoint with a trainer state (written last) is complete.
                folder = Path(self._get_output_dir(trial=trial)) / name
                stream = self._prompt_stream
                prompts = stream.state_dict() if stream else self._prompt_stream_state
                write_state(folder, self._generation_step, schedule, prompts)
            super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        """TRL's, which comes first on resume; refuses what cannot be resumed before it is loaded.

        A model whose checkpoints bear other names than it has in memory is loaded by those.

        Raises:
            ValueError: the checkpoint is incomplete, its state malformed, or it was written in
                the middle of a generation batch.
        """
        self._read_checkpoint(Path(resume_from_checkpoint))
        # Neither an adapter nor shards, which FSDP writes and reads under the names in memory.
        is_whole = isinstance(self.model, PreTrainedModel) and not self.is_fsdp_enabled
        if is_whole and has_renamed_weights(self.model, Path(resume_from_checkpoint)):
            load_renamed_weights(self.model, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)

    def _read_checkpoint(self, folder: Path) -> tuple[int, dict[str, Any] | None]:
        """The updates made and FastRL's state; refuses what cannot be resumed."""
        step = checkpoint_step(folder)
        if self._splits and step % self._updates_per_generation:
            raise ValueError(
                f"{folder}: step {step} lies inside a generation batch "
                f"({self._updates_per_generation} updates), whose rollouts are gone; resume from "
                "an earlier checkpoint."
            )
        return step, read_state(folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """TRL's, with FastRL's state: the rollout schedule goes on where it was."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        # Again: DeepSpeed loads its weights another way.
        step, state = self._read_checkpoint(Path(checkpoint))
        if state is None:
            # A checkpoint of plain TRL has no state of ours: its generations can be counted.
            micro_steps = step * self.args.gradient_accumulation_steps
            self._generation_step = micro_steps // self._micro_steps_per_generation
        else:
            self._generation_step = state["generation_step"]
            self._schedule_state = state["schedule"]
            self._prompt_stream_state = state.get("prompt_stream")
            self._state_file = Path(checkpoint) / STATE_NAME
        self._schedule = None
        self._prompt_stream = None


def _prolonged(state: dict[str, Any], schedule: AdaptiveRollouts) -> Mapping[str, Any]:
    """The state for a run of another length, and that is said."""
    changed = prolonged(state, schedule)
    if changed is not state:
        logger.warning(
            f"The checkpoint's rollout schedule was made for {state['settings']['total_steps']} "
            f"generation batches; it goes on with {changed['settings']['total_steps']}."
        )
    return changed
