"""Tiny models on disk, and one way to train them, for every test of the TRL host."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import save_text_model, save_vision_model


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a two-layer Qwen2 with the toy's tokenizer."""
    return save_text_model(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a one-layer Qwen2.5-VL with the toy's processor."""
    return save_vision_model(tmp_path_factory.mktemp("vision"))


@pytest.fixture
def out(tmp_path: Path) -> str:
    """A fresh output folder."""
    return str(tmp_path / "out")
