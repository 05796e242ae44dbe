"""Log-probs that TRL asks for while it scores a batch, put off until rows have been dropped."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from fastrl.trl.measuring import MeasuringMixin
from fastrl.trl.weighting import weigh_gradient


class DeferringMixin(MeasuringMixin):
    """The part of `FastRLMixin` that stands before TRL's log-probs.

    While a generation batch is scored they are only noted down; afterwards they are computed for
    the rows that were kept. During an update their gradient bears the rows' weights.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._deferring = False
        self._deferred_models: list[Any] = []
        self._row_weights: torch.Tensor | None = None
        super().__init__(*args, **kwargs)

    @contextmanager
    def _deferred_logps(self, defers: bool) -> Iterator[None]:
        """Within it log-probs are noted down, not computed; does nothing unless `defers`."""
        self._deferring, self._deferred_models = defers, []
        try:
            yield
        finally:
            self._deferring = False

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

    @torch.no_grad()
    def _add_deferred_logps(self, micro: dict[str, Any]) -> None:
        """Compute the log-probs that TRL asked for while scoring, on the rows of a micro-batch."""
        ids = torch.cat([micro["prompt_ids"], micro["completion_ids"]], dim=1)
        mask = torch.cat([micro["prompt_mask"], micro["completion_mask"]], dim=1)
        known = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        forward = {key: micro[key] for key in known if key in micro}
        # TRL asks for the old log-probs first and for the reference's last, each only if needed.
        for index, model in enumerate(self._deferred_models):
            is_reference = self.beta != 0.0 and index == len(self._deferred_models) - 1
            name = "ref_per_token_logps" if is_reference else "old_per_token_logps"
            context = self._reference_adapter() if is_reference else nullcontext()
            before = self.clock.total("old_logps")
            with context:
                micro[name], _, _ = self._get_per_token_logps_and_entropies(
                    model, ids, mask, micro["completion_ids"].size(1), **forward
                )
            if is_reference and model is not self.ref_model:
                seconds = self.clock.total("old_logps") - before
                self.clock.move("old_logps", "ref_logps", seconds)

    def _reference_adapter(self) -> Any:
        """With PEFT the reference is the model without its adapter, or with the one named "ref"."""
        if self.ref_model is not None:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        return use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None)
