"""What `fastrl compare` does between its words and its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fastrl.core.named import PRUNE_RULES
from fastrl.report.cells import terminal
from fastrl.report.page import build_report
from fastrl.runs.arguments import RunArguments
from fastrl.runs.comparison import SET_BY_ARMS, Comparison, arms_of
from fastrl.runs.folder import write_whole
from fastrl.runs.given_arms import parse_arms, resolve_arms
from fastrl.runs.recipe import RecipeError, build_arguments, load_recipe, parse_overrides

# Tables that are too wide or too long for a terminal; the page has them.
LEFT_TO_THE_PAGE = ("Seeds", "Settings", "Versions")
OF_A_RUN = ("output_dir", "seed")


def compare_recipe(
    console: Console,
    recipe: str,
    rules: Sequence[str] | None,
    own_arms: Sequence[str],
    num_generations: int | None,
    seeds: int,
    only: Sequence[str],
    folder: Path | None,
    dry_run: bool,
    words: Sequence[str],
) -> None:
    """Run a comparison to its end and show it.

    Args:
        rules: each brings its arms; None for all of them, or for none if there are own arms.
        own_arms: `name:field=value,field=value`; without rules, the others are compared with the
            first of them.
        num_generations: rollouts a prompt where an arm says nothing else; None for the recipe's.
        only: names of arms; empty for all.
        folder: of the comparison; by default below `runs/`.
        words: further `--field value` words for every run.

    Raises:
        RecipeError: a rule, an arm, or a field that cannot be used.
    """
    if rules is None:
        rules = () if own_arms else PRUNE_RULES
    name, content = load_recipe(recipe)
    given = parse_overrides(words)
    taken = [f"--{field}" for field in (SET_BY_ARMS if rules else ("seed",)) if field in given]
    if taken:
        raise RecipeError(f"{', '.join(taken)}: set by the arms and seeds of a comparison.")
    overrides = dict(given)
    if num_generations is not None:
        overrides["num_generations"] = str(num_generations)
    folder = folder or Path("runs") / f"compare-{name}"
    elsewhere: list[str] | None = [] if dry_run else None
    given_run, config = build_arguments(content, overrides, str(folder), elsewhere)
    arms = arms_of(rules, config.num_generations, config.per_device_train_batch_size)
    # Whatever the rules of this call: in one folder a name is one arm's.
    every = arms_of(PRUNE_RULES, config.num_generations, config.per_device_train_batch_size)
    own = parse_arms(own_arms, {arm.name for arm in every})
    resolved = resolve_arms(own, content, overrides, elsewhere)
    arms += own
    unknown = set(only) - {arm.name for arm in arms}
    if unknown:
        raise RecipeError(
            f"--only: {', '.join(sorted(unknown))}: expected some of "
            f"{', '.join(arm.name for arm in arms)}."
        )
    if seeds < 1:
        raise RecipeError(f"--seeds = {seeds}: expected at least 1.")
    said = {*content, *overrides}
    comparison = Comparison(
        recipe=recipe,
        arms=tuple(arm for arm in arms if not only or arm.name in only),
        seeds=tuple(range(1, seeds + 1)),
        folder=folder,
        extra=("--num_generations", str(config.num_generations), *words),
        fields=said_fields(given_run, config, {*said, "num_generations"} - set(SET_BY_ARMS)),
        arm_fields={
            arm.name: said_fields(*resolved[arm.name], {*arm.overrides, *(said & set(SET_BY_ARMS))})
            for arm in own
        },
        against=own[0].name if own and not rules else None,
    )
    comparison.check_shares()
    if dry_run:
        for _, _, run in comparison.runs():
            state = "finished" if run.read_summary().get("finished") else "to do"
            console.print(f"{run.path}  {state}")
        return

    def tell(number: int, total: int, run: str, finished: bool) -> None:
        console.rule(f"{number}/{total}  {run}{'  (finished before)' if finished else ''}")

    comparison.execute(tell)
    show_report(console, folder)


def show_report(console: Console, folder: Path) -> None:
    """Write `report.html` and `report.md` into a comparison's folder, and show the main tables."""
    report = build_report([folder])
    for table in report.tables:
        if not table.title.startswith(LEFT_TO_THE_PAGE):
            console.print(terminal(table, console.width))
    for name, text in (("report.html", report.html), ("report.md", report.markdown)):
        write_whole(_write_text, text, folder / name)
    console.print(f"Everything is in {(folder / 'report.html').resolve()}", soft_wrap=True)


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def said_fields(run: RunArguments, config: Any, names: Iterable[str]) -> dict[str, Any]:
    """Values of the fields that a recipe and its overrides name, as they were understood.

    Args:
        run, config: built from them.
        names: of the fields; where the runs lie and their seeds are none of the work.
    """
    known = {**json.loads(config.to_json_string()), **vars(run)}
    return {name: known[name] for name in sorted(names) if name not in OF_A_RUN}
