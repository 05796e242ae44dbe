"""The pruning trainer: verl's synchronous v1 trainer, whose log-probs see kept rows only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import verl  # noqa: F401  first: verl loads its own parts in its own order
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils
from verl.utils.debug import marked_timer

from fastrl.core import AdaptiveRollouts
from fastrl.verl.batching import BatchShape, spread_padding
from fastrl.verl.checkpoints import checkpoint_folder, read_schedule, write_schedule
from fastrl.verl.phases import phase_seconds
from fastrl.verl.pruning import choose_rows
from fastrl.verl.refusals import TRAINER_MODE, check_run
from fastrl.verl.transfer import ScoredBatch, check_advantages, drop_rows, write_update_fields
from fastrl.verl.updating import PrunedStep, SizedUpdates
from fastrl.verl.versions import check_seams
from fastrl.verl.weighting import weighted_loss


@register_trainer(TRAINER_MODE)
class FastRLTrainer(PPOTrainerSync):  # type: ignore[misc]
    """verl's `PPOTrainerSync`, which prunes between reward and old log-probs.

    What is overridden: prompts are submitted with the schedule's number of rollouts; the batch is
    pruned before it is balanced; the advantages of the full groups are written over those that verl
    computes of the pruned ones; the update is told its sizes; a checkpoint also holds the schedule;
    metrics are added.

    Raises:
        HostVersionError: verl has moved a seam.
        ValueError: on construction, before any worker starts: lists everything that cannot work.
    """

    actor_rollout_wg: Any  # verl's worker group

    def __init__(self, config: DictConfig) -> None:
        check_seams()
        self._settings = check_run(config)
        # verl compares with its own names of trainers in many places.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        self._shape = batch_shape(config)
        self._schedule: AdaptiveRollouts | None = None
        self._step: PrunedStep | None = None
        super().__init__(config)

    # -- rollouts per prompt -----------------------------------------------------------------

    @property
    def _num_generations(self) -> int:
        if self._schedule is None:
            return int(self.config.actor_rollout_ref.rollout.n)
        return self._schedule.num_generations

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        """verl's; the agent loop takes the number of rollouts from the prompt."""
        if self._schedule is not None:
            tensordict_utils.assign_non_tensor_data(batch, "__rollout_n__", self._num_generations)
        return int(super()._submit_batch_to_rollout(batch))

    # -- pruning -----------------------------------------------------------------------------

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """verl's, of the rows that are kept."""
        with marked_timer("prune", self.timing_raw):
            batch = self._prune(batch, metrics)
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        if self._step is not None:
            self._step.check_balanced(len(batch))
            is_padding_N = [bool(tag.get("is_padding")) for tag in batch.tags]
            if any(is_padding_N):
                batch.reorder(spread_padding(is_padding_N, self._step.ranks, self._step.updates))
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """What the pruned batch needs; verl would pad it up to the full one."""
        if self._step is None:
            return int(super()._get_required_batch_multiple(dp_size))
        return self._step.take_multiple(dp_size)

    def _prune(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Choose the rows that go on, clear the others from the TransferQueue, log the choice."""
        self._step = None
        asked = self._num_generations
        scored = ScoredBatch(batch, self.config.algorithm, asked)
        ranks = self._data_parallel_size()
        updates = self._shape.updates(len(batch), asked)
        choose = partial(
            choose_rows,
            scored.rows,
            multiple_of=self._shape.row_multiple(ranks, updates),
            seed=(self._settings.seed, int(self.global_steps)),
        )
        if not self._settings.prunes or self.global_steps <= self._settings.start_step:
            whole = replace(self._settings, prune_rule="none", drop_uninformative=False)
            metrics.update(choose(whole).metrics())
            return batch
        kept = choose(self._settings)
        metrics.update(kept.metrics())
        if kept.num_generations > asked:
            raise RuntimeError(
                f"{kept.num_generations} rollouts came back for a prompt, {asked} were asked for: "
                "verl's agent loop no longer reads __rollout_n__"
            )
        if self._schedule is not None:
            self._schedule.record(kept.selection.kept_per_group)
        nothing_left = not len(kept.keep)
        if nothing_left:  # verl's passes need rows to run on; the update is left out
            kept = choose(replace(self._settings, drop_uninformative=False))
        kept_keys = [batch.keys[row] for row in kept.keep.tolist()]
        self._step = PrunedStep(
            scored=scored,
            weights=dict(zip(kept_keys, kept.weights.tolist(), strict=True)),
            exact=self._settings.weighting == "exact",
            ranks=ranks,
            baseline_updates=updates,
            shape=self._shape,
            nothing_left=nothing_left,
        )
        return drop_rows(batch, kept_keys)

    def _data_parallel_size(self) -> int:
        """Ranks that share the rows of an update, as verl's own balancing counts them."""
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return int(max(group._dispatch_info["actor"])) + 1

    # -- update ------------------------------------------------------------------------------

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's, for what else it does; then the advantages of the full groups."""
        batch = super()._compute_advantage(batch, metrics)
        step = self._step
        if step is None:
            return batch
        return write_update_fields(batch, step.scored, step.weights if step.exact else None)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's, with the sizes of the pruned batch: as many updates as without pruning."""
        step = self._step
        if step is None:
            return super()._update_actor(batch, metrics)
        check_advantages(batch, step.scored)
        metrics["fastrl/skipped_updates"] = float(step.skipped_updates)
        if step.nothing_left:
            return batch
        workers = self.actor_rollout_wg
        sized = SizedUpdates(workers, step, len(batch))
        self.actor_rollout_wg = sized
        try:
            batch = super()._update_actor(batch, metrics)
        finally:
            self.actor_rollout_wg = workers
        sized.check_updates(int(self.config.actor_rollout_ref.actor.ppo_epochs))
        return batch

    # -- checkpoints and metrics -------------------------------------------------------------

    def _load_checkpoint(self) -> None:
        """verl's, with the schedule; workers exist by now and are given the loss."""
        config = self.config
        if self._settings.adaptive_rollouts:
            self._schedule = AdaptiveRollouts(
                num_generations=int(config.actor_rollout_ref.rollout.n),
                min_generations=self._settings.min_generations,
                steps_per_epoch=int(self.steps_per_epoch),
                total_steps=int(self.total_training_steps),
            )
        super()._load_checkpoint()
        if self._schedule is not None and self.global_steps:
            read_schedule(checkpoint_folder(config, self.global_steps), self._schedule)
        if self._settings.prunes and self._settings.weighting == "exact":
            self.actor_rollout_wg.set_loss_fn(weighted_loss(config.actor_rollout_ref.actor))

    def _save_checkpoint(self) -> None:
        """verl's, with the schedule, which is there before verl calls the checkpoint complete."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        write_schedule(folder, int(self.global_steps), self._schedule)
        super()._save_checkpoint()

    def _compute_metrics(
        self,
        batch: Any,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        *args: Any,
        **kw: Any,
    ) -> None:
        """verl's, and the seconds of each phase under the names of every host."""
        super()._compute_metrics(batch, metrics, timing_raw, *args, **kw)
        metrics.update(phase_seconds(timing_raw))


def batch_shape(config: DictConfig) -> BatchShape:
    """How this run deals rows to updates and micro-batches."""
    parts = config.actor_rollout_ref
    scores = [parts.rollout] + ([parts.ref] if parts.actor.use_kl_loss else [])
    return BatchShape(
        mini_batch_prompts=int(parts.actor.ppo_mini_batch_size),
        update_micro_batch=None
        if parts.actor.use_dynamic_bsz
        else int(parts.actor.ppo_micro_batch_size_per_gpu),
        score_micro_batches=tuple(
            int(part.log_prob_micro_batch_size_per_gpu)
            for part in scores
            if not part.log_prob_use_dynamic_bsz
        ),
    )
