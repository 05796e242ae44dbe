"""What every test needs: one thread, no network, and none of a host's environment switches."""

from __future__ import annotations

import gc
import importlib.util
import os

import pytest

# Before any test imports a host: Hugging Face reads these when it is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if importlib.util.find_spec("torch") is not None:
    import torch

    # Two busy processes with two threads each stall one another; one thread is also repeatable.
    torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """A deprecation that our own code triggers is an error; a host's of its own making is not."""
    for line in (
        "error::FutureWarning:fastrl",
        "error::DeprecationWarning:fastrl",
        "ignore:.*gradient_checkpointing.*:FutureWarning",
    ):
        config.addinivalue_line("filterwarnings", line)


def pytest_collection_finish() -> None:
    """Keep what the imports made out of the collector's way: every `train()` sets it to work.

    It would take longer than most of the tests' own runs.
    """
    gc.collect()
    gc.freeze()
