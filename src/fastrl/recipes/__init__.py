"""The recipes that ship with FastRL: one YAML file a run, and bases (`_*.yaml`) that they share.

`accelerate/` beside them holds the configurations that launch them, `verl/` the same runs as
scripts for verl.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

RECIPES_FOLDER = Path(str(files("fastrl.recipes")))
LAUNCH_FOLDER = RECIPES_FOLDER / "accelerate"
VERL_FOLDER = RECIPES_FOLDER / "verl"


def shipped_recipes() -> dict[str, Path]:
    """Every shipped recipe by its name; bases are none."""
    found = sorted(RECIPES_FOLDER.glob("*.yaml"))
    return {path.stem: path for path in found if not path.name.startswith("_")}


def launch_configs() -> dict[str, Path]:
    """Every shipped accelerate configuration by its name."""
    return {path.stem: path for path in sorted(LAUNCH_FOLDER.glob("*.yaml"))}


def verl_recipes() -> dict[str, Path]:
    """Every shipped launch script for verl by its name; what they share is none."""
    found = sorted(VERL_FOLDER.glob("*.sh"))
    return {path.stem: path for path in found if not path.name.startswith("_")}
