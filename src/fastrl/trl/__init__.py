"""FastRL for TRL: a config, a trainer, and a wrapper for trainers of your own."""

from fastrl.trl.versions import check_trl_version

check_trl_version()

from fastrl.trl.config import FastGRPOConfig, FastRLArguments  # noqa: E402
from fastrl.trl.factory import FastGRPOTrainer, with_fastrl  # noqa: E402
from fastrl.trl.record import GenerationRecord  # noqa: E402

__all__ = [
    "FastGRPOConfig",
    "FastGRPOTrainer",
    "FastRLArguments",
    "GenerationRecord",
    "with_fastrl",
]
