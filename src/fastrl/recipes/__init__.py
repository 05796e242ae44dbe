"""The recipes that ship with FastRL: one YAML file a run."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def shipped_recipes() -> dict[str, Path]:
    """Every shipped recipe by its name."""
    folder = Path(str(files("fastrl.recipes")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
