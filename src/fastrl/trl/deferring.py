"""Log-probs that TRL asks for while it scores a batch, put off until rows have been dropped."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from fastrl.trl.batch import loss_mask
from fastrl.trl.correcting import SamplingCorrection, SamplingGap, gap_metrics
from fastrl.trl.sharing import SharedPrefixMixin
from fastrl.trl.weighting import SHARE_KEY, weigh_gradient


class DeferringMixin(SharedPrefixMixin):
    """The part of `FastRLMixin` that stands before TRL's log-probs.

    While a generation batch is scored they are only noted down; afterwards they are computed for
    the rows that were kept, and from them vLLM's importance-sampling ratio. During an update their
    gradient bears the rows' weights.
    """

    vllm_importance_sampling_correction: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._deferring = False
        self._deferred_models: list[Any] = []
        self._row_weights: torch.Tensor | None = None
        super().__init__(*args, **kwargs)

    @contextmanager
    def _deferred_logps(self, defers: bool) -> Iterator[None]:
        """Within it log-probs are noted down, not computed; does nothing unless `defers`.

        TRL forms vLLM's ratio from them: that too waits.
        """
        corrects = self.vllm_importance_sampling_correction
        self._deferring, self._deferred_models = defers, []
        self.vllm_importance_sampling_correction = corrects and not defers
        try:
            yield
        finally:
            self._deferring = False
            self.vllm_importance_sampling_correction = corrects

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's; deferred while a generation batch is scored, weighted during an update."""
        if self._deferring:
            self._deferred_models.append(model)
            return None, None, None
        if torch.is_grad_enabled():
            logps, *others = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
            return weigh_gradient(logps, self._row_weights), *others
        phase = "ref_logps" if model is self.ref_model else "old_logps"
        with self._phase(phase):
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    def _add_deferred_logps(self, micro_batches: list[dict[str, Any]]) -> None:
        """Compute the log-probs that TRL asked for while scoring, micro-batch by micro-batch."""
        corrects = self.use_vllm and self.vllm_importance_sampling_correction
        gap = SamplingGap()
        for micro in micro_batches:
            if not micro[SHARE_KEY].rows:
                continue
            self._add_logps(micro, corrects)
            if corrects:
                self._add_ratio(micro, gap)
        if corrects:
            self._log_gap(gap)

    def _logps_of(self, model: Any, rows: dict[str, Any]) -> torch.Tensor:
        """(R, T) log-probs of the completions of R rows, pictures and all."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        known = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        forward = {key: rows[key] for key in known if key in rows}
        logps_RT: torch.Tensor
        logps_RT, _, _ = self._get_per_token_logps_and_entropies(
            model, ids, mask, rows["completion_ids"].size(1), **forward
        )
        return logps_RT

    @torch.no_grad()
    def _add_logps(self, micro: dict[str, Any], needs_old: bool) -> None:
        # TRL asks for the old log-probs first and for the reference's last, each only if needed;
        # those that only vLLM's ratio needs it was kept from asking for.
        models = self._deferred_models
        has_reference = self.beta != 0.0
        if needs_old and len(models) == has_reference:
            models = [self.model, *models]
        for index, model in enumerate(models):
            is_reference = has_reference and index == len(models) - 1
            name = "ref_per_token_logps" if is_reference else "old_per_token_logps"
            context = self._reference_adapter() if is_reference else nullcontext()
            before = self.clock.total("old_logps")
            with context:
                micro[name] = self._logps_of(model, micro)
            if is_reference and model is not self.ref_model:
                seconds = self.clock.total("old_logps") - before
                self.clock.move("old_logps", "ref_logps", seconds)

    def _add_ratio(self, micro: dict[str, Any], gap: SamplingGap) -> None:
        """vLLM's importance-sampling ratio of a micro-batch; its blank rows are not in the gap."""
        correction = SamplingCorrection(
            mode=self.vllm_importance_sampling_mode,
            clip_min=self.vllm_importance_sampling_clip_min,
            clip_max=self.vllm_importance_sampling_clip_max,
        )
        old, sampling = micro["old_per_token_logps"], micro["sampling_per_token_logps"]
        mask = loss_mask(micro)
        ratio = correction.ratio(old, sampling, mask)
        micro["importance_sampling_ratio"] = ratio
        real = micro[SHARE_KEY].rows - micro[SHARE_KEY].blanks
        gap.add(old[:real], sampling[:real], mask[:real], ratio[:real])

    def _log_gap(self, gap: SamplingGap) -> None:
        device = self.accelerator.device
        sums = self.accelerator.reduce(torch.tensor(gap.sums(), device=device), reduction="sum")
        extremes = self.accelerator.gather(torch.tensor(gap.extremes(), device=device))
        metrics = gap_metrics(sums.tolist(), extremes.view(-1, 3).amax(dim=0).tolist())
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _reference_adapter(self) -> Any:
        """With PEFT the reference is the model without its adapter, or with the one named "ref"."""
        if self.ref_model is not None:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        return use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None)
