"""What `fastrl compare` does between its words and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fastrl.runs.comparison import SET_BY_ARMS, Comparison, arms_of
from fastrl.runs.comparison_table import comparison_markdown, comparison_table
from fastrl.runs.folder import write_whole
from fastrl.runs.recipe import RecipeError, build_arguments, load_recipe, parse_overrides


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
    _, config = build_arguments(content, overrides, str(folder))
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
    )
    if dry_run:
        for _, _, run in comparison.runs():
            state = "finished" if run.read_summary().get("finished") else "to do"
            console.print(f"{run.path}  {state}")
        return

    def tell(number: int, total: int, run: str, finished: bool) -> None:
        console.rule(f"{number}/{total}  {run}{'  (finished before)' if finished else ''}")

    comparison.execute(tell)
    summaries = comparison.summaries()
    console.print(comparison_table(summaries))
    write_whole(
        lambda text, path: path.write_text(text + "\n"),
        comparison_markdown(summaries),
        folder / "comparison.md",
    )
