"""What a configuration asks for that this machine lacks, and what the machine is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from transformers.utils import is_torch_bf16_gpu_available

import fastrl
from fastrl.runs.arguments import RunArguments

CPU_INFO = Path("/proc/cpuinfo")


def missing_here(run: RunArguments, trainer: Mapping[str, Any]) -> list[str]:
    """Everything that has to be had elsewhere or installed first: field, value, remedy.

    Args:
        run: the run's own fields.
        trainer: those of the trainer's config that were said.
    """
    missing = []
    if lacks_bf16(trainer):
        missing.append(
            "bf16 = True: no accelerator with bf16 here; run it on one, or set use_cpu=True and "
            "bf16=False"
        )
    if trainer.get("use_vllm") and find_spec("vllm") is None:
        missing.append(
            "use_vllm = True: vLLM is not installed; pip install 'trl[vllm]', or set use_vllm=False"
        )
    if run.lora_r is not None and find_spec("peft") is None:
        missing.append(
            f"lora_r = {run.lora_r}: PEFT is not installed; pip install 'fastrl-grpo[lora]'"
        )
    return missing


def lacks_bf16(trainer: Mapping[str, Any]) -> bool:
    """Whether bf16 is asked for on an accelerator, and there is none that has it."""
    asked_for = trainer.get("bf16")
    if asked_for is None:
        asked_for = not trainer.get("fp16")  # TRL's default
    return bool(asked_for and not trainer.get("use_cpu") and not is_torch_bf16_gpu_available())


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {
        "fastrl": fastrl.__version__,
        "trl": trl.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def cpu_model(info: Path) -> str | None:
    """The processor's name.

    Args:
        info: Linux's list of processors; elsewhere absent.

    Returns:
        As the system calls it; None where it does not say.
    """
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or None


def usable_cores() -> str:
    """Logical processors that this process may use, of those that there are."""
    total = os.cpu_count() or 1
    # Not on every system; a scheduler or taskset may leave fewer.
    if not hasattr(os, "sched_getaffinity"):
        return str(total)
    return f"{len(os.sched_getaffinity(0))} of {total}"


def memory() -> str | None:
    """The machine's memory in GiB, a container may have less; None where it is not told."""
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    if not set(names) <= set(getattr(os, "sysconf_names", {})):
        return None
    page, pages = (os.sysconf(name) for name in names)
    return f"{page * pages / 2**30:.1f} GiB"


def machine(processes: int) -> dict[str, Any]:
    """What the run ran on."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(CPU_INFO),
        "cores": usable_cores(),
        "memory": memory(),
        "threads": torch.get_num_threads(),
        "accelerator": str(accelerator or "cpu"),
        "processes": processes,
    }
