"""Recipes and command-line overrides in, checked arguments out."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from transformers import HfArgumentParser

from fastrl.recipes.reading import RecipeError, load_recipe, nearest
from fastrl.runs.arguments import RunArguments
from fastrl.runs.machine import lacks_bf16, missing_here
from fastrl.trl import FastGRPOConfig, FastRLArguments

__all__ = ["RecipeError", "build_arguments", "field_groups", "load_recipe", "parse_overrides"]
DEFAULT_RECIPE = "toy_geometry"


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


def parse_overrides(words: Sequence[str]) -> dict[str, str]:
    """`--field value`, `--field=value`, and a bare `--flag` (true) as a mapping.

    Several values of a field are one word, between commas: `--reward_weights 1,0.5`.

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
    recipe: Mapping[str, Any],
    overrides: Mapping[str, Any],
    output_dir: str,
    elsewhere: list[str] | None = None,
) -> tuple[RunArguments, FastGRPOConfig]:
    """Check every field of a recipe and its overrides, and build the two argument objects.

    Args:
        recipe, overrides: fields and values; those of `overrides` win.
        output_dir: where nothing else is said.
        elsewhere: if given, what this machine lacks is appended instead of raised: the arguments
            are those of a run on another machine, to be looked at only.

    Raises:
        RecipeError: lists every unknown field (with the nearest name) and every value of the wrong
            type, or everything that this machine lacks.
        ValueError: from the config classes, when values do not fit together.
    """
    # In the config.yaml of a run an empty list, as a null, stands for a field that was not set.
    merged = {
        name: None if value == [] else value for name, value in {**recipe, **overrides}.items()
    }
    # The library's own defaults for what a run folder needs.
    merged.setdefault("output_dir", output_dir)
    for name, default in (("report_to", "none"), ("logging_steps", "1")):
        merged[name] = default if merged.get(name) is None else merged[name]
    known = {f.name for group in field_groups().values() for f in group}
    problems = [
        f"--{name}: no such field{nearest(name, known)}" for name in merged if name not in known
    ]
    parser = _Parser([RunArguments, FastGRPOConfig], allow_abbrev=False)
    # Where a word is a choice beside true and false, the parser knows those as Python spells them.
    spelt = {a.dest for a in parser._actions if any(choice is True for choice in a.choices or ())}
    lists = {a.dest for a in parser._actions if a.nargs in ("+", "*")}
    words: list[str] = []
    for name, value in merged.items():
        if name in known and value is not None:
            if name in spelt and str(value).lower() in ("true", "false"):
                value = str(value).capitalize()
            pair = _as_words(name, value, name in lists)
            try:
                _, rest = argparse.ArgumentParser.parse_known_args(parser, pair)
                if rest:
                    problems.append(f"--{name}: {value!r}: expected one value")
            except RecipeError as error:
                problems.append(str(error).removeprefix("argument ").rstrip("."))
            words += pair
    if str(merged["logging_steps"]) not in ("1", "1.0"):
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
    missing = missing_here(run, trainer)
    if elsewhere is None and missing:
        raise RecipeError("This machine: " + "; ".join(missing) + ".")
    if elsewhere is not None:
        elsewhere += missing
        if lacks_bf16(trainer):
            # The host looks for the accelerator unless it is told to do without.
            config = FastGRPOConfig(**{**trainer, "use_cpu": True})
            config.use_cpu = False
            return run, config
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


def _as_words(name: str, value: Any, is_list: bool) -> list[str]:
    if is_list and isinstance(value, str):
        value = value.strip("[] ").replace(",", " ").split()
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    text = json.dumps(value) if isinstance(value, dict | bool) else str(value)
    return [f"--{name}", text]
