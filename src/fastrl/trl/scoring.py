"""An evaluation that asks for rewards alone, without the forward passes of a loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastrl.trl.deferring import DeferringMixin


class ScoringMixin(DeferringMixin):
    """The part of `FastRLMixin` that scores held-out prompts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._rewards_alone = False
        super().__init__(*args, **kwargs)

    @contextmanager
    def rewards_alone(self) -> Iterator[None]:
        """Within it `evaluate` generates and rewards, and computes neither log-probs nor a loss.

        Its metrics are TRL's, without `eval_loss` and what else comes from the loss.
        """
        self._rewards_alone = True
        try:
            yield
        finally:
            self._rewards_alone = False

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's, or no more than the completions and their rewards."""
        if not self._rewards_alone:
            return super().prediction_step(model, inputs, *args, **kwargs)
        self._prepare_inputs(inputs)
        return None, None, None
