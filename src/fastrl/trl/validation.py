"""What FastRL refuses before any work starts, all of it at once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

from accelerate.utils import DistributedType  # type: ignore[import-untyped,unused-ignore]
from datasets import IterableDataset
from trl import GRPOTrainer

from fastrl.trl.weighting import KNOWN_LOSSES

NOT_TORCH_DISTRIBUTED = (DistributedType.XLA, DistributedType.MEGATRON_LM)


def bypassed_overrides(trainer_class: type) -> list[str]:
    """Methods before GRPOTrainer in a class's order that pruning would bypass, `Class.method`."""
    mro = trainer_class.__mro__
    return [
        f"{owner.__name__}._prepare_inputs"
        for owner in mro[: mro.index(GRPOTrainer)]
        if "_prepare_inputs" in vars(owner)
    ]


def given_argument(
    classes: Iterable[type], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a construction hands to the parameter `name`, by name or by place; None if nothing.

    Args:
        classes: the classes whose `__init__` run, first to last; those that pass on `*args` do
            not say what comes where, so the first that names the parameter decides.
        name: the parameter.
        args, kwargs: of the construction, without self.
    """
    if name in kwargs:
        return kwargs[name]
    for owner in classes:
        if "__init__" not in vars(owner):
            continue
        signature = inspect.signature(vars(owner)["__init__"])
        parameter = signature.parameters.get(name)
        if parameter is not None and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return signature.bind_partial(None, *args).arguments.get(name)
    return None


def raise_run_problems(problems: list[str]) -> None:
    """Raise one ValueError that lists all problems; do nothing when there are none."""
    if problems:
        raise ValueError("FastRL cannot prune this run: " + "; ".join(problems) + ".")


def model_problems(trainer: GRPOTrainer) -> list[str]:
    """What pruning cannot do with a trainer whose `__init__` has run: its model, its launch."""
    problems, args = _launch_problems(trainer), trainer.args
    if args.dynamic_sampling and args.contrast not in ("sum", *trainer.reward_func_names):
        problems.append(
            f"contrast = {args.contrast!r}: no reward function of that name; use 'sum' or one of "
            f"{', '.join(trainer.reward_func_names)}"
        )
    if trainer.aux_loss_enabled:
        problems.append(
            "a mixture-of-experts auxiliary loss: its mean over unequal micro-batches is not "
            "defined here; set router_aux_loss_coef=0, or prune_rule='none'"
        )
    if trainer._is_vlm and trainer._tokenizer.padding_side != "left":
        # TRL pads prompts on the left, but takes mm_token_type_ids as the processor padded them.
        problems.append(
            f"the processor pads on the {trainer._tokenizer.padding_side}, which puts picture "
            "tokens in the wrong place; set processing_class.tokenizer.padding_side = 'left'"
        )
    return problems


def _launch_problems(trainer: GRPOTrainer) -> list[str]:
    """What pruning cannot do with the way that the processes share the work."""
    problems, args, launch = [], trainer.args, trainer.accelerator
    if launch.num_processes > 1 and launch.distributed_type in NOT_TORCH_DISTRIBUTED:
        problems.append(
            f"{launch.distributed_type.value}: rows move between processes by torch.distributed, "
            "which it does not use; launch with DDP, FSDP or DeepSpeed, or set prune_rule='none'"
        )
    shared = [
        f"{axis} = {size}"
        for axis in ("tp_size", "cp_size", "sp_size")
        if (size := getattr(launch.parallelism_config, axis, 1)) > 1
    ]
    if shared:
        problems.append(
            f"parallelism_config with {', '.join(shared)}: several processes with the same rows; "
            "set these sizes to 1, or prune_rule='none'"
        )
    windows = max(1, args.steps_per_generation // args.gradient_accumulation_steps)
    groups = args.generation_batch_size // args.num_generations
    if trainer.is_deepspeed_enabled and args.dynamic_sampling:
        problems.append(
            "deepspeed with dynamic_sampling: a batch may be left without rows, and its engine "
            "cannot skip an update; set dynamic_sampling=False, or use DDP or FSDP"
        )
    if trainer.is_deepspeed_enabled and (args.drop_uninformative or groups < windows):
        problems.append(
            f"deepspeed with drop_uninformative = {args.drop_uninformative} and {groups} prompts "
            f"for {windows} updates: an update may have no rows, and its engine cannot skip one; "
            "set drop_uninformative=False and have at least as many prompts as updates"
        )
    return problems


def run_problems(args: Any, train_dataset: Any) -> list[str]:
    """Everything about a run that pruning cannot do, in words with the remedy.

    Args:
        args: the config; a `FastRLArguments` and a `GRPOConfig` in one.
        train_dataset: as given to the trainer.
    """
    problems: list[str] = []
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
    may_be_empty = args.weighting == "exact" or args.drop_uninformative or args.dynamic_sampling
    if args.fp16 and may_be_empty:
        problems.append(
            "fp16 = True with weighting = 'exact', drop_uninformative or dynamic_sampling: an "
            "update may have no rows, and its gradient scaler cannot skip a step; set bf16=True"
        )
    if args.use_liger_kernel:
        problems.append(
            "use_liger_kernel: Liger's kernels in the model's layers were not tested with pruned "
            "batches; set use_liger_kernel=False, or prune_rule='none'"
        )
    problems += _checkpoint_problems(args)
    if args.dynamic_sampling:
        problems += _dynamic_sampling_problems(args)
    if args.adaptive_rollouts:
        problems += _adaptive_rollouts_problems(args, train_dataset)
    return problems


def _adaptive_rollouts_problems(args: Any, train_dataset: Any) -> list[str]:
    """Rows are dropped group by group, and epochs counted."""
    problems = []
    local = args.per_device_train_batch_size * args.steps_per_generation
    if local % args.num_generations:
        problems.append(
            f"adaptive_rollouts: per_device_train_batch_size x steps_per_generation = {local} "
            f"must hold whole groups of num_generations = {args.num_generations}"
        )
    if isinstance(train_dataset, IterableDataset) and args.steps_per_epoch is None:
        problems.append(
            "adaptive_rollouts with an iterable data set: give steps_per_epoch (generation "
            "batches in one pass), or set adaptive_rollouts=False"
        )
    return problems


def _dynamic_sampling_problems(args: Any) -> list[str]:
    """A group's advantages must come from that group alone: it may meet groups of other rounds."""
    problems = []
    if args.scale_rewards == "batch":
        problems.append(
            "scale_rewards = 'batch' with dynamic_sampling: the batch comes together in rounds, "
            "each with a standard deviation of its own; set scale_rewards='group' or 'none'"
        )
    if args.multi_objective_aggregation == "normalize_then_sum":
        problems.append(
            "multi_objective_aggregation = 'normalize_then_sum' with dynamic_sampling: it takes "
            "means over the batch, which comes together in rounds; set 'sum_then_normalize'"
        )
    return problems


def _checkpoint_problems(args: Any) -> list[str]:
    """The best model must be saved where it was evaluated: at the end of a generation batch."""
    keeps_best = args.load_best_model_at_end or args.save_strategy == "best"
    if not keeps_best or args.eval_strategy != "steps":
        return []
    micro_steps = args.steps_per_generation * args.num_iterations
    updates = micro_steps // math.gcd(micro_steps, args.gradient_accumulation_steps)
    if args.eval_steps >= 1 and args.eval_steps % updates == 0:
        return []
    return [
        f"eval_steps = {args.eval_steps} with a best checkpoint: checkpoints fall on the ends of "
        f"generation batches; make eval_steps a multiple of {updates} updates"
    ]
