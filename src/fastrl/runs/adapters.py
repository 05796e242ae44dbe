"""LoRA: from a recipe's fields to what PEFT takes."""

from __future__ import annotations

from typing import Any

from fastrl.runs.arguments import RunArguments


def lora_config(run: RunArguments) -> Any:
    """PEFT's configuration for a run; None where all weights are trained.

    One target is a pattern that the whole name of a module must match, or `all-linear`; several
    are ends of names. That is PEFT's own distinction between a word and a list.
    """
    if run.lora_r is None:
        return None
    from peft import LoraConfig

    targets = run.lora_target_modules
    return LoraConfig(
        r=run.lora_r,
        lora_alpha=run.lora_alpha,
        lora_dropout=run.lora_dropout,
        target_modules=targets[0] if len(targets) == 1 else targets,
        task_type="CAUSAL_LM",
    )
