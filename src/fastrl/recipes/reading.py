"""Reading recipes: a file, the bases that it starts from, and what it says of itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fastrl.recipes import RECIPES_FOLDER, launch_configs, shipped_recipes, verl_recipes


class RecipeError(ValueError):
    """A recipe or an override that cannot be used; the message lists every problem."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, its bases merged in.

    Attributes:
        name: the file's, without `.yaml`.
        about: what it says of itself, in one line.
        launch: the accelerate configuration that it is made for; None where it needs none.
        fields: what it sets.
    """

    name: str
    about: str
    launch: Path | None
    fields: dict[str, Any]

    @property
    def processes(self) -> int:
        """How many processes its accelerate configuration starts."""
        if self.launch is None:
            return 1
        return int(yaml.safe_load(self.launch.read_text())["num_processes"])


def read_recipe(name: str) -> Recipe:
    """A recipe from a YAML path or a shipped name.

    A recipe may name others under `base`, one or a list: .yaml paths, relative to its own folder,
    or shipped names. It starts from their fields (each may have bases in turn), a later base's in
    place of an earlier one's, and its own in place of all; `field: null` takes a base's away.
    Shipped files whose name starts with `_` are bases and no recipes. `about` tells in a line what
    the recipe is, and `accelerate` names the shipped configuration that launches it.

    Raises:
        RecipeError: there is no such recipe or base, a file is no mapping, or bases run in a
            circle.
    """
    path = _recipe_path(name)
    fields = _with_bases(path, ())
    about, launch = fields.pop("about", None), fields.pop("accelerate", None)
    known = launch_configs()
    if launch is not None and launch not in known:
        raise RecipeError(
            f"recipe {path}: accelerate = {launch!r}: expected one of {', '.join(known)}"
            f"{nearest(str(launch), known)}."
        )
    return Recipe(path.stem, str(about or ""), launch and known[launch], fields)


def load_recipe(name: str) -> tuple[str, dict[str, Any]]:
    """A recipe's name and fields; see `read_recipe`."""
    recipe = read_recipe(name)
    return recipe.name, recipe.fields


def verl_script(name: str) -> Path:
    """The shipped launch script for verl of that name.

    Raises:
        RecipeError: there is none.
    """
    known = verl_recipes()
    if name not in known:
        raise RecipeError(
            f"--verl {name}: no shipped script for verl ({', '.join(known)}){nearest(name, known)}."
        )
    return known[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """A question after the known name that is spelt most alike; empty if none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _recipe_path(name: str) -> Path:
    shipped = shipped_recipes()
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise RecipeError(f"recipe {name}: no such file.")
        return path
    if name in shipped:
        return shipped[name]
    raise RecipeError(
        f"recipe {name!r}: not a shipped one ({', '.join(shipped)}) and not a .yaml path"
        f"{nearest(name, shipped)}."
    )


def _with_bases(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """The fields of a recipe over those of its bases.

    Args:
        above: the recipes, resolved, that have this one as their base.
    """
    if path.resolve() in above:
        circle = " -> ".join(part.name for part in (*above, path))
        raise RecipeError(f"recipe {path}: its bases run in a circle ({circle}).")
    content = _read_file(path)
    # The config.yaml of a run is a recipe, too: it says where it came from.
    content.pop("recipe", None)
    bases = content.pop("base", None) or []
    if isinstance(bases, str):
        bases = [bases]
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise RecipeError(
            f"recipe {path}: base = {bases!r}: expected a name or path, or a list of them."
        )
    fields: dict[str, Any] = {}
    for base in bases:
        try:
            found = _base_path(base, path.parent)
            fields |= _with_bases(found, (*above, path.resolve()))
        except RecipeError as error:
            raise RecipeError(f"recipe {path}: base: {error}") from error
    fields.pop("about", None)
    return {**fields, **content}


def _base_path(base: str, folder: Path) -> Path:
    for path in (folder / base, RECIPES_FOLDER / base):
        if path.suffix in (".yaml", ".yml") and path.exists():
            return path
    return _recipe_path(base)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise RecipeError(f"recipe {path}: not valid YAML ({error}).") from error
    if not isinstance(content, dict):
        raise RecipeError(f"recipe {path}: expected fields and values, found {content!r}.")
    odd = [key for key in content if not isinstance(key, str)]
    if odd:
        raise RecipeError(f"recipe {path}: {odd[0]!r} is not the name of a field.")
    return content
