"""`fastrl train --help`: every field that a recipe or the command line can set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fastrl.recipes import shipped_recipes
from fastrl.runs.recipe import DEFAULT_RECIPE, field_groups

OWN_GROUPS = ("The run", "FastRL")  # told in full; the host's fields by their first sentence
USAGE = """Usage: fastrl train [RECIPE] [--field value ...] [--dry_run] [--resume]

Train a policy from a recipe. RECIPE is a shipped name or a .yaml path (default: {default});
shipped: {shipped}. Any field below overrides the recipe.
A recipe may start from another one: `base: geometry3k`, then the fields that differ.

  --dry_run   build everything, print the resolved configuration, and stop
  --resume    go on from the last complete checkpoint in --output_dir
  --help      this text

Defaults are the fields' own; a recipe's values take their place (--dry_run shows which).
"""


def train_help() -> Iterator[RenderableType]:
    """The parts of the help text, in order."""
    yield Text(USAGE.format(default=DEFAULT_RECIPE, shipped=", ".join(shipped_recipes())))
    for title, fields in field_groups().items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("field", no_wrap=True, style="bold")
        table.add_column("default", overflow="fold", max_width=24)
        table.add_column("what it does", overflow="fold")
        for field in fields:
            text = _help(field) if title in OWN_GROUPS else _help(field).split(". ")[0]
            table.add_row(f"--{field.name}", _default(field), Text(text))
        yield table


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return str(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return str(field.default_factory())
    return "required"


def _help(field: dataclasses.Field[Any]) -> str:
    return " ".join(str(field.metadata.get("help", "")).split())
