"""The TRL host: GRPO that prunes its rollouts before any log-prob is computed."""

from __future__ import annotations

from typing import Any

import trl.trainer.utils
from transformers import GenerationMixin
from trl import GRPOTrainer

from fastrl.trl.callbacks import GenerationBoundaryCallback
from fastrl.trl.config import FastGRPOConfig, FastRLArguments, build_rule
from fastrl.trl.resuming import ResumableMixin
from fastrl.trl.updating import UpdatingMixin
from fastrl.trl.validation import given_argument, model_problems, raise_run_problems, run_problems
from fastrl.trl.versions import check_seams


class FastRLMixin(UpdatingMixin):
    """What FastRL adds to a GRPO trainer; put before the trainer class by `with_fastrl`.

    The only changes: rows are dropped before generation when the schedule says so; log-probs asked
    for during generation and scoring wait until pruning has been done; the kept rows are dealt to
    the same number of updates; and a micro-batch's loss is scaled so that unequal ones add up to
    the right mean. With prune_rule="none" only clocks and metrics are added, and a resumed run
    goes on with the order of prompts of its epoch. The loss in the log is that of the kept rows;
    under weighting="exact" the weights act on its gradient, not on this number.

    Attributes:
        rollout_observers: each is called, on the main process, with the `GenerationRecord` of
            every training batch, the rows of all processes in it.

    Raises:
        TypeError: the config lacks FastRL's fields.
        ValueError: lists everything about the run that pruning cannot do.
        HostVersionError: TRL has moved a seam.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_seams(GRPOTrainer, trl.trainer.utils, GenerationMixin)
        behind = type(self).__mro__[type(self).__mro__.index(ResumableMixin) + 1 :]
        config = given_argument(behind, "args", args, kwargs)
        if config is None:
            config = kwargs["args"] = FastGRPOConfig(output_dir="fastrl-output")
        if not isinstance(config, FastRLArguments):
            raise TypeError(
                f"args is a {type(config).__name__}; FastRL's fields are missing. Use "
                "FastGRPOConfig, or mix FastRLArguments into your config class."
            )
        self._rule = build_rule(config)
        splits = self._prunes or config.dynamic_sampling or config.shared_prefix is True
        if splits:
            dataset = given_argument(behind, "train_dataset", args, kwargs)
            raise_run_problems(run_problems(config, dataset))
        super().__init__(*args, **kwargs)
        if splits:
            raise_run_problems(model_problems(self))
        self.add_callback(GenerationBoundaryCallback(self, self._updates_per_generation))
