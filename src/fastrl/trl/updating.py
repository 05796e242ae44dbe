"""The kept rows of a generation batch on their way through the updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from trl.models.utils import disable_gradient_checkpointing

from fastrl.trl.batch import num_rows
from fastrl.trl.dynamic_sampling import DynamicSamplingMixin
from fastrl.trl.splitting import split_kept_rows
from fastrl.trl.weighting import SHARE_KEY


class UpdatingMixin(DynamicSamplingMixin):
    """The part of `FastRLMixin` that splits a batch into micro-batches and scales their losses."""

    _buffered_inputs: Any

    @property
    def at_generation_boundary(self) -> bool:
        """Whether every rollout of the last generation batch has been used."""
        return bool(self._step % self._micro_steps_per_generation == 0)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, with its split of the generation batch replaced by one of the kept rows."""
        with self._phase("other"):
            return self._next_micro_batch(generation_batch)

    def _next_micro_batch(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        starts = self.at_generation_boundary or self._buffered_inputs is None
        if starts:
            self._splits_batch = self._splits_now
        if starts and not self._splits_now:
            return super()._prepare_inputs(generation_batch)
        if starts:
            self._buffered_inputs = self._new_micro_batches(generation_batch)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _new_micro_batches(self, generation_batch: Any) -> list[dict[str, Any]]:
        """Generate, prune and split; then the deferred log-probs, on kept rows alone."""
        args, step = self.args, self._generation_step
        output = self._generate_and_score_completions(generation_batch)
        if self._selection is None or self._rows is None:
            raise RuntimeError(f"{type(self).__name__}: the generation batch was not selected.")
        rng = np.random.default_rng((args.seed, step))
        micro_batches = split_kept_rows(output, self._rows, self._selection, self._split_plan, rng)
        with disable_gradient_checkpointing(self.model, args.gradient_checkpointing_kwargs):
            self._add_deferred_logps(micro_batches)
        return micro_batches

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's, times the micro-batch's factor; a micro-batch without rows costs nothing."""
        share = inputs.get(SHARE_KEY)
        if share is None:
            self._rows_in_update += num_rows(inputs)
            whole: torch.Tensor = super()._compute_loss(model, inputs)
            return whole
        if share.filler is not None and self._rows_in_update and self.accelerator.sync_gradients:
            # Earlier batches of this update left gradients on each process: without a pass through
            # the model they would stay there. It is so on every process, or on none.
            return self._nothing_through_the_model(model, share.filler)
        self._rows_in_update += share.rows
        if not share.rows:
            # No graph reaches a parameter: gradients stay None, and optimisers skip those. It is
            # so on every process, or on none.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        self._row_weights = share.weights_R
        try:
            loss: torch.Tensor = super()._compute_loss(model, inputs) * share.loss_factor
        finally:
            self._row_weights = None
        return loss

    def _nothing_through_the_model(self, model: Any, filler: dict[str, Any]) -> torch.Tensor:
        """A loss of zero whose graph reaches the parameters, so that gradients are synchronised."""
        nothing: torch.Tensor = (self._logps_of(model, filler) * 0.0).sum()
        return nothing

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's, timed; generation and scoring inside it keep their own clocks."""
        with self.clock.phase("update"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        return loss
