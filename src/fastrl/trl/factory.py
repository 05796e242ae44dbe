"""with_fastrl: any GRPO trainer class, pruning its rollouts; and the ready-made one."""

from __future__ import annotations

import trl.trainer.utils
from transformers import GenerationMixin
from trl import GRPOTrainer

from fastrl.trl.trainer import FastRLMixin
from fastrl.trl.validation import bypassed_overrides
from fastrl.trl.versions import check_seams


def with_fastrl(trainer_class: type) -> type:
    """Wrap a GRPO trainer class: the same trainer, pruning its rollouts.

    Args:
        trainer_class: TRL's GRPOTrainer or a subclass. Its config must carry FastRL's fields:
            use `FastGRPOConfig`, or mix `FastRLArguments` into your own config class.

    Log-probs are computed after pruning: an override of `_generate_and_score_completions` finds
    neither the old nor the reference ones in the batch that `super()` returns.

    Returns:
        A subclass of both; checkpoints it writes load without FastRL. A class that prunes already
        is returned as it is.

    Raises:
        TypeError: it is no GRPOTrainer, or overrides a method that pruning would bypass.
        HostVersionError: TRL has moved a seam.
    """
    if not (isinstance(trainer_class, type) and issubclass(trainer_class, GRPOTrainer)):
        raise TypeError(f"with_fastrl wraps subclasses of trl.GRPOTrainer, not {trainer_class!r}.")
    if issubclass(trainer_class, FastRLMixin):
        return trainer_class
    check_seams(trainer_class, trl.trainer.utils, GenerationMixin)
    bypassed = bypassed_overrides(trainer_class)
    if bypassed:
        raise TypeError(
            f"{', '.join(bypassed)} would be bypassed: FastRL splits the generation batch itself. "
            "Move what it does into _generate_and_score_completions or _compute_loss."
        )
    return type(f"Fast{trainer_class.__name__}", (FastRLMixin, trainer_class), {})


class FastGRPOTrainer(FastRLMixin, GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer with FastRL; takes the same arguments, and a `FastGRPOConfig`."""
