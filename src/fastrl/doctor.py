"""`fastrl doctor`: what is installed, whether the hosts' seams hold, and what to do about it."""

from __future__ import annotations

import importlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

from fastrl.core.seams import HostVersionError

PACKAGES = (
    "numpy",
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "datasets",
    "trl",
    "verl",
    "ray",
    "TransferQueue",
    "tensordict",
)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        what: what was looked at.
        found: what is there.
        remedy: what to do; empty where nothing is wrong.
    """

    what: str
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Look at the whole installation; nothing is changed."""
    return [*_versions(), *_trl(), *_verl(), _accelerator()]


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _versions() -> list[Finding]:
    found = [Finding("python", platform.python_version())]
    found += [Finding(name, _installed(name) or "not installed") for name in PACKAGES]
    if _installed("torch") and not _installed("torchvision"):
        found.append(
            Finding(
                "torchvision",
                "missing beside torch: Qwen2.5-VL's processor needs it",
                "pip install torchvision (the release that matches torch)",
            )
        )
    return found


def _trl() -> list[Finding]:
    if _installed("trl") is None:
        if _installed("verl") is not None:
            return [Finding("TRL host", "not installed (verl has an environment of its own)")]
        return [
            Finding("TRL host", "not installed", 'pip install "fastrl-grpo[trl]" to train with TRL')
        ]
    try:
        versions = importlib.import_module("fastrl.trl.versions")
        versions.check_trl_version()
    except HostVersionError as error:
        return [Finding("TRL host", str(error), error.remedy)]
    trainer = importlib.import_module("trl").GRPOTrainer
    utilities = importlib.import_module("trl.trainer.utils")
    generation = importlib.import_module("transformers").GenerationMixin
    moved = versions.missing_seams(trainer, utilities, generation)
    if moved:
        return [Finding("TRL host", fault, versions.REMEDY) for fault in moved]
    tables = (versions.TRAINER_SEAMS, versions.UTILITY_SEAMS, versions.GENERATION_SEAMS)
    seams = sum(len(table) for table in tables)
    return [Finding("TRL host", f"all {seams} seams in place"), _shared_prefix(), _vllm(versions)]


def _shared_prefix() -> Finding:
    """Which form of attention this machine uses where rollouts share their prompt."""
    torch = importlib.import_module("torch")
    forms = importlib.import_module("fastrl.trl.shared_prefix.forms")
    device = torch.device("cpu")
    if torch.accelerator.is_available():
        device = torch.device(torch.accelerator.current_accelerator().type, 0)
    half, full = (forms.machine_form(device, dtype) for dtype in (torch.bfloat16, torch.float32))
    found = half if half == full else f"{half} in bfloat16, {full} in float32"
    return Finding("shared prefixes", f"{found} attention on {device.type}")


def _vllm(versions: ModuleType) -> Finding:
    installed = _installed("vllm")
    if installed is None:
        return Finding("vllm", "not installed (only needed with use_vllm=True)")
    if versions.is_known_vllm(installed):
        return Finding("vllm", installed)
    wanted = f"vllm>={versions.MINIMUM_VLLM},<={versions.MAXIMUM_VLLM}"
    return Finding("vllm", f"{installed}, which TRL does not support", f'pip install "{wanted}"')


def _verl() -> list[Finding]:
    if _installed("verl") is None:
        return [Finding("verl host", "not installed (only needed for verl)")]
    if _installed("trl") is not None:
        return [
            Finding(
                "verl host",
                "verl and TRL share this environment; verl cannot import beside trl 1.16",
                "give each its own virtual environment",
            )
        ]
    try:
        versions = importlib.import_module("fastrl.verl.versions")
        versions.check_verl_version()
        lacking = versions.missing_needs()
        if lacking:
            found = f"not installed, though verl's trainer imports it: {', '.join(lacking)}"
            return [Finding("verl host", found, f"pip install {' '.join(lacking)}")]
        moved = versions.missing_seams()
    except HostVersionError as error:
        return [Finding("verl host", str(error), error.remedy)]
    except ImportError as error:
        remedy = 'pip install "fastrl-grpo[verl]" in a new virtual environment'
        return [Finding("verl host", f"verl cannot be imported: {error}", remedy)]
    if moved:
        return [Finding("verl host", fault, versions.REMEDY) for fault in moved]
    seams = sum(len(names) for _, _, names in (*versions.SEAMS, *versions.INNER_SEAMS))
    trainer = importlib.import_module("fastrl.verl.trainer").FastRLTrainer
    loaded = importlib.import_module("verl.trainer.ppo.v1").get_trainer_cls("fastrl")
    if loaded is not trainer:
        found = f"verl loads {loaded.__module__}.{loaded.__name__} as 'fastrl'"
        return [Finding("verl host", found, "remove what registers a trainer of that name")]
    return [Finding("verl host", f"all {seams} seams in place; verl loads the trainer")]


def _accelerator() -> Finding:
    if find_spec("torch") is None:
        return Finding("accelerator", "torch is not installed")
    torch = importlib.import_module("torch")
    if not torch.accelerator.is_available():
        threads = torch.get_num_threads()
        return Finding("accelerator", f"none; CPU with {threads} threads")
    device = torch.accelerator.current_accelerator()
    return Finding("accelerator", f"{torch.accelerator.device_count()} x {device}")
