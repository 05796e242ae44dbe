"""Arms of a comparison in the user's own words: a name, and the fields that it sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console

from fastrl.runs.arguments import RunArguments
from fastrl.runs.comparison import Arm
from fastrl.runs.job import Job
from fastrl.runs.progress import Progress
from fastrl.runs.recipe import RecipeError, build_arguments
from fastrl.trl import FastGRPOConfig

# Of a folder `<name>-seed<k>`.
ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A comma before `name=`: a value may hold others.
BETWEEN_FIELDS = re.compile(r",(?=\w+=)")
NOT_AN_ARMS = {
    "seed": "every arm runs with every seed; use --seeds",
    "output_dir": "a run lies in the comparison's folder; use --output_dir",
}


def parse_arms(texts: Sequence[str], taken: Collection[str] = ()) -> tuple[Arm, ...]:
    """Arms from `name:field=value,field=value`; a name alone is the recipe as it stands.

    Args:
        texts: as the user gave them.
        taken: names of the arms that rules bring.

    Raises:
        RecipeError: lists everything that is wrong with any of them.
    """
    arms: list[Arm] = []
    problems = []
    for text in texts:
        name, _, rest = text.partition(":")
        if not ARM_NAME.fullmatch(name) or "-seed" in name:
            problems.append(
                f"{text!r}: expected NAME:field=value,field=value, the name of letters, digits, "
                "'.', '_' and '-', without '-seed'"
            )
        if name in taken:
            problems.append(f"{name!r} is an arm of --rules; choose another name")
        if any(arm.name == name for arm in arms):
            problems.append(f"{name!r} stands twice")
        overrides: dict[str, str] = {}
        for pair in BETWEEN_FIELDS.split(rest) if rest else ():
            field, equals, value = pair.partition("=")
            if not equals or not field:
                problems.append(f"{name}: {pair!r}: expected field=value")
            elif field in NOT_AN_ARMS:
                problems.append(f"{name}: {field}: {NOT_AN_ARMS[field]}")
            elif field in overrides:
                problems.append(f"{name}: {field} stands twice")
            overrides[field] = value
        arms.append(Arm(name, overrides))
    if problems:
        raise RecipeError("--arm: " + "; ".join(problems) + ".")
    return tuple(arms)


def resolve_arms(
    arms: Sequence[Arm],
    recipe: Mapping[str, Any],
    overrides: Mapping[str, Any],
    elsewhere: list[str] | None = None,
) -> dict[str, tuple[RunArguments, FastGRPOConfig]]:
    """What each arm trains with; all are checked before any runs.

    Args:
        arms: the user's.
        recipe, overrides: fields that hold for all of them; an arm's own win.
        elsewhere: see `build_arguments`.

    Raises:
        RecipeError: lists what is wrong with any arm.
    """
    found, problems = {}, []
    for arm in arms:
        fields = {**overrides, **arm.overrides}
        try:
            run, config = build_arguments(recipe, fields, f"runs/{arm.name}", elsewhere)
            Job(arm.name, run, config, Progress(Console(quiet=True))).check_settings()
        except ValueError as error:
            problems.append(f"{arm.name}: {str(error).rstrip('.')}")
        else:
            found[arm.name] = (run, config)
    if problems:
        raise RecipeError("--arm: " + "; ".join(problems) + ".")
    return found
