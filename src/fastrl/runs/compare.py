"""What `fastrl compare` does between its words and its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fastrl.report.cells import terminal
from fastrl.report.page import build_report
from fastrl.runs.arguments import RunArguments
from fastrl.runs.comparison import SET_BY_ARMS, Comparison, arms_of
from fastrl.runs.folder import write_whole
from fastrl.runs.recipe import RecipeError, build_arguments, load_recipe, parse_overrides

# Tables that are too wide or too long for a terminal; the page has them.
LEFT_TO_THE_PAGE = ("Seeds", "Settings", "Versions")


def compare_recipe(
    console: Console,
    recipe: str,
    rules: Sequence[str],
    num_generations: int,
    seeds: int,
    only: Sequence[str],
    folder: Path | None,
    dry_run: bool,
    words: Sequence[str],
) -> None:
    """Run a comparison to its end and show it.

    Args:
        only: names of arms; empty for all that the rules stand for.
        folder: of the comparison; by default below `runs/`.
        words: further `--field value` words for every run.

    Raises:
        RecipeError: a rule, an arm, or a field that cannot be used.
    """
    name, content = load_recipe(recipe)
    given = parse_overrides(words)
    taken = [f"--{field}" for field in SET_BY_ARMS if field in given]
    if taken:
        raise RecipeError(f"{', '.join(taken)}: set by the arms and seeds of a comparison.")
    overrides = {**given, "num_generations": str(num_generations)}
    folder = folder or Path("runs") / f"compare-{name}"
    elsewhere: list[str] | None = [] if dry_run else None
    given_run, config = build_arguments(content, overrides, str(folder), elsewhere)
    arms = arms_of(rules, num_generations, config.per_device_train_batch_size)
    unknown = set(only) - {arm.name for arm in arms}
    if unknown:
        raise RecipeError(
            f"--only: {', '.join(sorted(unknown))}: expected some of "
            f"{', '.join(arm.name for arm in arms)}."
        )
    if seeds < 1:
        raise RecipeError(f"--seeds = {seeds}: expected at least 1.")
    comparison = Comparison(
        recipe=recipe,
        arms=tuple(arm for arm in arms if not only or arm.name in only),
        seeds=tuple(range(1, seeds + 1)),
        folder=folder,
        extra=("--num_generations", str(num_generations), *words),
        fields=said_fields(given_run, config, {*content, *overrides} - set(SET_BY_ARMS)),
    )
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
        names: of the fields; where the runs lie is none of the work.
    """
    known = {**json.loads(config.to_json_string()), **vars(run)}
    return {name: known[name] for name in sorted(names) if name != "output_dir"}
