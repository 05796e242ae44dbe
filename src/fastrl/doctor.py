"""`fastrl doctor`: what is installed, whether the hosts' seams hold, and what to do about it."""

from __future__ import annotations

import importlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

PACKAGES = (
    "numpy",
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "datasets",
    "trl",
    "verl",
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
        return [
            Finding("TRL host", "not installed", 'pip install "fastrl-grpo[trl]" to train with TRL')
        ]
    versions = importlib.import_module("fastrl.trl.versions")
    try:
        versions.check_trl_version()
    except versions.HostVersionError as error:
        return [Finding("TRL host", str(error), versions.REMEDY)]
    trainer = importlib.import_module("trl").GRPOTrainer
    utilities = importlib.import_module("trl.trainer.utils")
    moved = versions.missing_seams(trainer, utilities)
    if moved:
        return [Finding("TRL host", fault, versions.REMEDY) for fault in moved]
    seams = len(versions.TRAINER_SEAMS) + len(versions.UTILITY_SEAMS)
    return [Finding("TRL host", f"all {seams} seams in place"), _vllm(versions)]


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
    return [Finding("verl host", "this version of FastRL does not drive verl yet")]


def _accelerator() -> Finding:
    if find_spec("torch") is None:
        return Finding("accelerator", "torch is not installed")
    torch = importlib.import_module("torch")
    if not torch.accelerator.is_available():
        threads = torch.get_num_threads()
        return Finding("accelerator", f"none; CPU with {threads} threads")
    device = torch.accelerator.current_accelerator()
    return Finding("accelerator", f"{torch.accelerator.device_count()} x {device}")
