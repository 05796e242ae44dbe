"""A file of state inside a checkpoint: written whole or not at all, read with its faults named."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_state_file(path: Path, state: Mapping[str, Any]) -> None:
    """Write JSON whole or not at all; the folder is made if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(state, indent=1))
    os.replace(temporary, path)


def read_state_file(path: Path) -> dict[str, Any] | None:
    """Read what `write_state_file` wrote; None where there is no such file.

    Raises:
        ValueError: the file is not valid JSON, or no JSON object; names file and fault.
    """
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}); resume from an earlier checkpoint."
        ) from error
    if not isinstance(state, dict):
        raise ValueError(f"{path}: expected an object, found {type(state).__name__}.")
    return state
