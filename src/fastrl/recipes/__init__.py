"""The recipes that ship with FastRL: one YAML file a run, and bases (`_*.yaml`) that they share."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

RECIPES_FOLDER = Path(str(files("fastrl.recipes")))


def shipped_recipes() -> dict[str, Path]:
    """Every shipped recipe by its name; bases are none."""
    found = sorted(RECIPES_FOLDER.glob("*.yaml"))
    return {path.stem: path for path in found if not path.name.startswith("_")}
