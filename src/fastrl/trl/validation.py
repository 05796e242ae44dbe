"""What FastRL refuses before any work starts, all of it at once."""

from __future__ import annotations

from typing import Any

from datasets import IterableDataset
from trl import GRPOTrainer

from fastrl.trl.config import FastRLArguments
from fastrl.trl.weighting import KNOWN_LOSSES


def overridden_seams(trainer_class: type) -> list[str]:
    """Methods of a GRPOTrainer subclass that pruning would bypass, as `Class.method`."""
    return [
        f"{owner.__name__}._prepare_inputs"
        for owner in trainer_class.__mro__
        if issubclass(owner, GRPOTrainer)
        and owner is not GRPOTrainer
        and "_prepare_inputs" in vars(owner)
        and "__fastrl__" not in vars(owner)
    ]


def run_problems(args: Any, trainer: GRPOTrainer) -> list[str]:
    """Everything about a run that pruning cannot do, in words with the remedy.

    Args:
        args: the config; a `FastRLArguments` and a `GRPOConfig` in one.
        trainer: a TRL trainer whose `__init__` has run.
    """
    problems: list[str] = []
    assert isinstance(args, FastRLArguments)
    if trainer.accelerator.num_processes > 1:
        problems.append(
            f"{trainer.accelerator.num_processes} processes: this version prunes on one process; "
            "launch one, or set prune_rule='none'"
        )
    if args.use_vllm:
        problems.append(
            "use_vllm = True: this version prunes with transformers generation; set "
            "use_vllm=False, or prune_rule='none'"
        )
    if args.loss_type not in KNOWN_LOSSES:
        problems.append(
            f"loss_type = {args.loss_type!r}: its normaliser is not known; use one of "
            f"{', '.join(KNOWN_LOSSES)}, or prune_rule='none'"
        )
    accumulation, per_generation = args.gradient_accumulation_steps, args.steps_per_generation
    if per_generation % accumulation and accumulation % per_generation:
        problems.append(
            f"steps_per_generation = {per_generation} and gradient_accumulation_steps = "
            f"{accumulation}: one must be a multiple of the other"
        )
    if args.entropy_coef != 0.0 or args.use_adaptive_entropy:
        problems.append(
            "an entropy bonus (entropy_coef, use_adaptive_entropy): its mean over unequal "
            "micro-batches is not defined here; switch it off, or set prune_rule='none'"
        )
    if args.weighting == "exact" and args.top_entropy_quantile < 1.0:
        problems.append(
            f"top_entropy_quantile = {args.top_entropy_quantile} with weighting = 'exact': the "
            "quantile would be that of the kept tokens; set it to 1.0, or weighting='kept'"
        )
    if args.adaptive_rollouts:
        local = args.per_device_train_batch_size * per_generation
        if local % args.num_generations:
            problems.append(
                f"adaptive_rollouts: per_device_train_batch_size x steps_per_generation = {local} "
                f"must hold whole groups of num_generations = {args.num_generations}"
            )
        if isinstance(trainer.train_dataset, IterableDataset) and args.steps_per_epoch is None:
            problems.append(
                "adaptive_rollouts with an iterable data set: give steps_per_epoch (generation "
                "batches in one pass), or set adaptive_rollouts=False"
            )
    return problems
