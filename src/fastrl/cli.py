"""The command line: `fastrl train`, `recipes`, `compare`, `evaluate`, `replay`, `report`, ..."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

import fastrl
from fastrl.geometry.commands import register as register_geometry_commands
from fastrl.report.commands import register as register_report_commands

app = typer.Typer(
    name="fastrl",
    help="Learn from the rollouts that differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def _version(wanted: bool) -> None:
    if wanted:
        Console().print(f"fastrl {fastrl.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    """Learn from the rollouts that differ."""


def _fail(error: Exception) -> typer.Exit:
    text = Text.assemble(("error: ", "bold red"), str(error))
    Console(stderr=True).print(text, soft_wrap=True)
    return typer.Exit(code=2)


def _require_trl() -> None:
    """Stop with the remedy where the TRL host cannot be imported."""
    try:
        import fastrl.trl  # noqa: F401
    except ImportError as error:
        hint = f"{error}. FastRL trains with TRL: pip install 'fastrl-grpo[trl]'"
        raise _fail(ImportError(hint)) from error


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def train(
    context: typer.Context,
    recipe: Annotated[str | None, typer.Argument(help="A shipped recipe or a .yaml path.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry_run", "--dry-run")] = False,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    help_: Annotated[bool, typer.Option("--help", "-h")] = False,
) -> None:
    """Train a policy from a recipe: fastrl train [RECIPE] [--any_config_field value ...]."""
    console = Console()
    _require_trl()
    from fastrl.runs import recipe as reading

    if help_:
        from fastrl.runs.help import train_help

        for part in train_help():
            console.print(part)
        raise typer.Exit
    _quiet_hosts()
    try:
        words = list(context.args)
        # Typer hands the first word over as RECIPE even when it is a field's value.
        name = recipe or reading.DEFAULT_RECIPE
        if name.startswith("-"):
            words, name = [name, *words], reading.DEFAULT_RECIPE
        name, content = reading.load_recipe(name)
        overrides = reading.parse_overrides(words)
        elsewhere: list[str] | None = [] if dry_run else None
        run, config = reading.build_arguments(content, overrides, f"runs/{name}", elsewhere)
        if elsewhere:
            _show_elsewhere(console, name, run, config, elsewhere)
            return
        _train(console, name, run, config, dry_run, resume)
    except (ValueError, TypeError) as error:
        raise _fail(error) from error


def _train(console: Console, name: str, run: Any, config: Any, dry_run: bool, resume: bool) -> None:
    from fastrl.runs.job import Job
    from fastrl.runs.progress import Progress
    from fastrl.runs.table import summary_table

    job = Job(name, run, config, Progress(console))
    # Of several processes one speaks.
    console.quiet = not job.is_main
    if job.folder.is_used() and not resume and not dry_run:
        raise ValueError(
            f"output_dir = {config.output_dir!r} holds a run already: go on with --resume, or "
            "choose another with --output_dir."
        )
    if resume and not job.folder.is_used():
        raise ValueError(f"--resume: output_dir = {config.output_dir!r} holds no run.")
    made = [path for path in (job.folder.path, *job.folder.path.parents) if not path.exists()]
    job.build()
    if dry_run:
        _show(console, job)
        if job.is_main:
            for path in made:
                path.rmdir()  # the trainer makes its output folder as soon as it is built
        return
    if resume and job.folder.is_used():
        problems = job.resume_problems()
        if problems:
            raise ValueError("--resume: " + "; ".join(problems) + ". Give the same settings.")
    console.print(summary_table(job.execute(resume)))
    console.print(f"Everything is in {Path(config.output_dir).resolve()}", soft_wrap=True)


def _show(console: Console, job: Any) -> None:
    text = yaml.safe_dump(job.resolved(), sort_keys=False)
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _show_elsewhere(console: Console, name: str, run: Any, config: Any, missing: list[str]) -> None:
    """A dry run of what this machine cannot run: the settings are checked, and no more."""
    from fastrl.runs.job import Job
    from fastrl.runs.progress import Progress

    job = Job(name, run, config, Progress(console))
    job.check_settings()
    _show(console, job)
    note = Text.assemble(
        ("not checked here: ", "bold yellow"), "model and data. " + "; ".join(missing) + "."
    )
    Console(stderr=True).print(note, soft_wrap=True)


@app.command()
def recipes(
    accelerate: Annotated[
        str | None,
        typer.Option(help="Print the accelerate configuration of this recipe, as a path."),
    ] = None,
    verl: Annotated[
        str | None, typer.Option(help="Print verl's launch script of this recipe, as a path.")
    ] = None,
) -> None:
    """List the shipped recipes, or find what launches one."""
    from rich.table import Table

    from fastrl.recipes import shipped_recipes, verl_recipes
    from fastrl.recipes.reading import RecipeError, read_recipe, verl_script

    console = Console()
    try:
        if verl is not None:
            console.print(str(verl_script(verl)), soft_wrap=True, highlight=False)
            return
        if accelerate is not None:
            path = read_recipe(accelerate).launch
            if path is None:
                raise RecipeError(f"recipe {accelerate!r} needs none: fastrl train {accelerate}")
            console.print(str(path), soft_wrap=True, highlight=False)
            return
        found = [read_recipe(name) for name in shipped_recipes()]
    except RecipeError as error:
        raise _fail(error) from error
    table = Table(box=None, pad_edge=False)
    for title in ("recipe", "GPUs", "what it is"):
        table.add_column(title, justify="right" if title == "GPUs" else "left")
    for recipe in found:
        gpus = str(recipe.processes) if recipe.launch else "none"
        table.add_row(Text(recipe.name, "bold"), gpus, Text(recipe.about))
    console.print(table)
    console.print(
        "One GPU or none: fastrl train RECIPE. Several: accelerate launch --config_file "
        '"$(fastrl recipes --accelerate RECIPE)" -m fastrl train RECIPE\n'
        'verl: bash "$(fastrl recipes --verl RECIPE)" DATA_DIR, for '
        f"{', '.join(verl_recipes())}",
        soft_wrap=True,
        highlight=False,
    )


@app.command(context_settings=PASS_THROUGH)
def compare(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a .yaml path.")],
    rules: Annotated[
        str | None,
        typer.Option(help="Rules, separated by commas; all of them, or none if arms are given."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:FIELD=VALUE,...",
            help="An arm in your own words: any fields of the recipe. Repeat it; the others are "
            "compared with the first.",
        ),
    ] = None,
    num_generations: Annotated[
        int | None,
        typer.Option("--num_generations", help="Rollouts per prompt; the recipe's if not given."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 1 to this; all arms run for each.")] = 3,
    only: Annotated[str, typer.Option(help="Run these arms only, separated by commas.")] = "",
    output_dir: Annotated[
        Path | None, typer.Option("--output_dir", help="Holds a run folder per arm and seed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry_run", help="Print the runs and stop.")] = False,
) -> None:
    """Train a recipe with several rules, or any settings, and seeds, interleaved; compare them.

    "none" also runs plain GRPO with 4 and 2 rollouts a prompt, "differential" also its exact
    weighting and fixed rollouts. Further --field value words go to every run. Start it again to go
    on where it was stopped.
    """
    _require_trl()
    from fastrl.runs.compare import compare_recipe

    _quiet_hosts()
    try:
        compare_recipe(
            Console(),
            recipe,
            rules=None if rules is None else [rule for rule in rules.split(",") if rule],
            own_arms=arm or [],
            num_generations=num_generations,
            seeds=seeds,
            only=[arm for arm in only.split(",") if arm],
            folder=output_dir,
            dry_run=dry_run,
            words=context.args,
        )
    except (ValueError, TypeError) as error:
        raise _fail(error) from error


@app.command()
def evaluate(
    model: Annotated[
        str, typer.Argument(help="'toy', a folder of a model or of a run, or a hub name.")
    ],
    dataset: Annotated[
        str,
        typer.Option(
            help="toy, geometry3k, geoqa (or geoqa8k), mathvista, mathverse, mathvision, dynamath; "
            "or a file, folder or hub name with columns problem, images, answer."
        ),
    ],
    data_path: Annotated[
        str | None, typer.Option("--data_path", help="Where a known data set lies.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of the data set.")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip_broken", help="Leave out questions that cannot be used.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many questions.")] = None,
    samples: Annotated[int, typer.Option(help="Completions of each question.")] = 1,
    sampling: Annotated[
        str | None,
        typer.Option(
            help="greedy (default for one sample), validation (temperature 0.6, top-p 0.95; "
            "default for several), training (temperature 1)."
        ),
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Replaces the preset's.")] = None,
    top_p: Annotated[float | None, typer.Option("--top_p", help="Replaces the preset's.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max_new_tokens", help="Longest completion; 2048, toy 32.")
    ] = None,
    instruction: Annotated[
        str | None, typer.Option(help="Follows each question; '' for none.")
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "",
    examples: Annotated[
        str, typer.Option(help="Worked examples as earlier turns, JSON: question to reply.")
    ] = "{}",
    min_pixels: Annotated[int | None, typer.Option("--min_pixels", help="Of a picture.")] = None,
    max_pixels: Annotated[int | None, typer.Option("--max_pixels", help="Of a picture.")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch_size", help="Completions at once; 64, with vLLM 2048."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling.")] = 0,
    engine: Annotated[str, typer.Option(help="transformers or vllm.")] = "transformers",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = "auto",
    engine_args: Annotated[
        str, typer.Option("--engine_args", help='JSON for the engine: {"tensor_parallel_size": 2}.')
    ] = "{}",
    output_dir: Annotated[
        Path | None, typer.Option("--output_dir", help="By default below evaluations/.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it was stopped.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry_run", "--dry-run", help="Print settings and a prompt, and stop.")
    ] = False,
) -> None:
    """Score a model on held-out questions: accuracy, pass@k, majority@k, with intervals."""
    try:
        from fastrl.evaluation.command import Request, evaluate_model
        from fastrl.runs.progress import Progress
    except ImportError as error:
        hint = f"{error}. An evaluation needs: pip install 'fastrl-grpo[trl,geometry]'"
        raise _fail(ImportError(hint)) from error
    _quiet_hosts()
    request = Request(
        model=model,
        dataset=dataset,
        data_path=data_path,
        split=split,
        skip_broken=skip_broken,
        limit=limit,
        samples=samples,
        sampling=sampling,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        instruction=instruction,
        system=system,
        examples=examples,
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        batch_size=batch_size,
        seed=seed,
        engine=engine,
        dtype=dtype,
        engine_args=engine_args,
        output_dir=output_dir,
    )
    console = Console()
    try:
        evaluate_model(console, request, Progress(console).counting, resume, dry_run)
    except (ValueError, TypeError) as error:
        raise _fail(error) from error


@app.command()
def doctor() -> None:
    """List versions, the hosts' seams, the accelerator, and every problem with its remedy."""
    from rich.table import Table

    from fastrl.doctor import examine

    findings = examine()
    table = Table(box=None, show_header=False)
    for finding in findings:
        mark = Text("problem", "bold red") if finding.remedy else Text("ok", "green")
        table.add_row(mark, Text(finding.what), Text(finding.found))
        if finding.remedy:
            table.add_row("", "", Text.assemble(("remedy: ", "bold"), finding.remedy))
    Console().print(table)
    if any(finding.remedy for finding in findings):
        raise typer.Exit(code=1)


register_geometry_commands(app)
register_report_commands(app)


def _quiet_hosts() -> None:
    """Our progress bar is enough, and the hosts' own deprecations are not the user's to mend."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()
    for module in ("transformers", "trl"):
        warnings.filterwarnings("ignore", category=FutureWarning, module=rf"{module}\..*")


def main() -> None:
    """Entry point of the `fastrl` command."""
    app()


if __name__ == "__main__":
    main()
