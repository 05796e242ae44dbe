"""Recipes and command-line overrides in, checked arguments out."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

from fastrl.recipes import RECIPES_FOLDER, shipped_recipes
from fastrl.runs.arguments import RunArguments
from fastrl.trl import FastGRPOConfig, FastRLArguments

DEFAULT_RECIPE = "toy_geometry"


class RecipeError(ValueError):
    """A recipe or an override that cannot be used; the message lists every problem."""


class _Parser(HfArgumentParser):  # type: ignore[misc]
    """Raises instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise RecipeError(message)


def field_groups() -> dict[str, list[dataclasses.Field[Any]]]:
    """Every field a recipe can hold, under the heading that `--help` shows it with."""
    own = {f.name for f in dataclasses.fields(FastRLArguments)}
    config = [f for f in dataclasses.fields(FastGRPOConfig) if f.init]
    return {
        "The run": list(dataclasses.fields(RunArguments)),
        "FastRL": [f for f in config if f.name in own],
        "TRL and transformers": [f for f in config if f.name not in own],
    }


def load_recipe(name: str) -> tuple[str, dict[str, Any]]:
    """A recipe's name and fields, from a YAML path or a shipped name.

    A recipe may name another under `base`: a .yaml path, relative to its own folder, or a shipped
    name. It starts from that one's fields (which may have a base in turn), and its own take their
    place; `field: null` takes the base's away. Shipped files whose name starts with `_` are bases
    and no recipes.

    Raises:
        RecipeError: there is no such recipe or base, a file is no mapping, or bases run in a
            circle.
    """
    path = _recipe_path(name)
    return path.stem, _with_bases(path, ())


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
        f"{_nearest(name, shipped)}."
    )


def _with_bases(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """The fields of a recipe over those of its bases.

    Args:
        above: the recipes, resolved, that have this one as their base.
    """
    if path.resolve() in above:
        circle = " -> ".join(part.name for part in (*above, path))
        raise RecipeError(f"recipe {path}: its bases run in a circle ({circle}).")
    content = _read_recipe(path)
    # The config.yaml of a run is a recipe, too: it says where it came from.
    content.pop("recipe", None)
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise RecipeError(f"recipe {path}: base = {base!r}: expected one name or path.")
    try:
        found = _base_path(base, path.parent)
        fields = _with_bases(found, (*above, path.resolve()))
    except RecipeError as error:
        raise RecipeError(f"recipe {path}: base: {error}") from error
    return {**fields, **content}


def _base_path(base: str, folder: Path) -> Path:
    for path in (folder / base, RECIPES_FOLDER / base):
        if path.suffix in (".yaml", ".yml") and path.exists():
            return path
    return _recipe_path(base)


def _read_recipe(path: Path) -> dict[str, Any]:
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


def parse_overrides(words: Sequence[str]) -> dict[str, str]:
    """`--field value`, `--field=value`, and a bare `--flag` (true) as a mapping.

    Raises:
        RecipeError: a word that belongs to no field.
    """
    overrides: dict[str, str] = {}
    waiting: str | None = None
    for word in words:
        is_name = word.startswith("--")
        if is_name:
            name, has_value, value = word[2:].partition("=")
            name = name.replace("-", "_")
            overrides[name] = value if has_value else "true"
            waiting = None if has_value else name
        elif waiting is not None:
            overrides[waiting] = word
            waiting = None
        else:
            raise RecipeError(
                f"{word!r} belongs to no field: write --field value, and the recipe first."
            )
    return overrides


def build_arguments(
    recipe: Mapping[str, Any], overrides: Mapping[str, Any], output_dir: str
) -> tuple[RunArguments, FastGRPOConfig]:
    """Check every field of a recipe and its overrides, and build the two argument objects.

    Raises:
        RecipeError: lists every unknown field (with the nearest name) and every value of the wrong
            type.
        ValueError: from the config classes, when values do not fit together.
    """
    merged: dict[str, Any] = {**recipe, **overrides}
    # The library's own defaults for what a run folder needs.
    merged.setdefault("output_dir", output_dir)
    merged.setdefault("report_to", "none")
    merged.setdefault("logging_steps", 1)
    known = {f.name for group in field_groups().values() for f in group}
    problems = [
        f"--{name}: no such field{_nearest(name, known)}" for name in merged if name not in known
    ]
    parser = _Parser([RunArguments, FastGRPOConfig], allow_abbrev=False)
    words: list[str] = []
    for name, value in merged.items():
        if name in known and value is not None:
            pair = _as_words(name, value)
            try:
                _, rest = argparse.ArgumentParser.parse_known_args(parser, pair)
                if rest:
                    problems.append(f"--{name}: {value!r}: expected one value")
            except RecipeError as error:
                problems.append(str(error).removeprefix("argument ").rstrip("."))
            words += pair
    if str(merged["logging_steps"]) != "1":
        problems.append("--logging_steps: a run folder logs every step; leave it out")
    if problems:
        raise RecipeError("; ".join(problems) + ".")
    parsed = vars(argparse.ArgumentParser.parse_args(parser, words))
    # Only what was said: a default handed over as if it had been said draws the host's warnings.
    own = {f.name for f in dataclasses.fields(RunArguments)}
    said = {name: parsed[name] for name in merged if merged[name] is not None}
    run = RunArguments(**{name: value for name, value in said.items() if name in own})
    trainer = {name: value for name, value in said.items() if name not in own}
    _check_values(run, trainer)
    return run, FastGRPOConfig(**trainer)


def _check_values(run: RunArguments, trainer: Mapping[str, Any]) -> None:
    """Raise for every value that the run or FastRL refuses, before the host sees any of them."""
    messages = []
    if problems := run.problems():
        messages.append("The recipe: " + "; ".join(problems) + ".")
    fastrl = {f.name for f in dataclasses.fields(FastRLArguments)}
    try:
        FastRLArguments(**{name: value for name, value in trainer.items() if name in fastrl})
    except ValueError as error:
        messages.append(str(error))
    if trainer.get("remove_unused_columns"):
        messages.append(
            "remove_unused_columns = True: would take the answers from the rewards; leave it out."
        )
    if messages:
        raise RecipeError(" ".join(messages))


def _as_words(name: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    text = json.dumps(value) if isinstance(value, dict | bool) else str(value)
    return [f"--{name}", text]


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
