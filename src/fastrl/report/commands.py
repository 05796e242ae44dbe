"""The commands `fastrl replay` and `fastrl report`; everything heavy is imported when called."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add `replay` and `report` to a Typer app."""
    app.command()(replay)
    app.command()(report)


def replay(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Logged rollouts: TRL's completions Parquet, verl's rollout dump, a run of "
            "fastrl train, or a generic .jsonl or .parquet; files or folders."
        ),
    ],
    num_generations: Annotated[
        int | None,
        typer.Option("--num_generations", "-n", help="Rollouts per prompt; found if not given."),
    ] = None,
    phases: Annotated[
        str | None,
        typer.Option(
            help="Seconds per phase of plain training: gen=74,old=3.6,ref=3.4,update=14.3; or a "
            "run folder or metrics .jsonl that tells them."
        ),
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="Similarity thresholds to try: 0.1,0.2,0.4.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="For the token sets, a transformers name or path; else words."),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(help="Names of your columns: completion=response,reward=score,group=uid."),
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(help="Reward columns to add up, with weights if not 1: accuracy,format=0.5."),
    ] = None,
    drop_nan: Annotated[
        bool, typer.Option("--drop_nan", help="Leave groups with a NaN reward out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random rule.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    output: Annotated[Path | None, typer.Option(help="Also write a .md (or .json) file.")] = None,
) -> None:
    """What would FastRL have kept in your last run, and what would it have saved?"""
    from fastrl.report.formats import ReadOptions
    from fastrl.report.phases import parse_phases, read_phases
    from fastrl.report.reading import read_logs
    from fastrl.report.replay import THRESHOLDS
    from fastrl.report.replay import replay as replayed
    from fastrl.report.replay_output import replay_json, replay_markdown, replay_terminal
    from fastrl.report.tokens import tokenise

    try:
        weights = _pairs("--rewards", rewards, default="1")
        options = ReadOptions(
            num_generations=num_generations,
            fields=_pairs("--fields", fields),
            rewards={name: _number("--rewards", value) for name, value in weights.items()},
            drop_nan=drop_nan,
        )
        split = parse_phases(phases) if phases else None
        tried = [_number("--thresholds", value) for value in (thresholds or "").split(",") if value]
        logged = read_logs(files, options)
        if split is None and len(files) == 1 and (files[0] / "metrics.jsonl").exists():
            split = read_phases(files[0])
        result = replayed(logged, tokenise(logged, tokenizer), split, tried or THRESHOLDS, seed)
        if output is not None:
            is_json = output.suffix == ".json"
            text = json.dumps(replay_json(result), indent=1) if is_json else replay_markdown(result)
            _write(output, text)
    except ValueError as error:
        raise _fail(error) from error
    console = Console()
    if as_json:
        typer.echo(json.dumps(replay_json(result), indent=1))
        return
    for part in replay_terminal(result):
        console.print(part)
    if output is not None:
        console.print(f"Written to {output.resolve()}", soft_wrap=True, highlight=False)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or folders of runs named <arm>-seed<k>."),
    ],
    output: Annotated[
        Path, typer.Option(help="The HTML file; the tables go beside it as Markdown.")
    ] = Path("report.html"),
    groups: Annotated[
        int, typer.Option(min=0, help="Groups in the rollout browser, evenly over the runs.")
    ] = 200,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Held-out accuracy to reach, such as 0.9; else plain GRPO's final one."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The arm to compare the others with; else plain GRPO."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every chart as an SVG file, to this folder.")
    ] = None,
) -> None:
    """One HTML file (no network needed) and Markdown tables that show what runs did."""
    from fastrl.report.page import build_report

    beside = output.with_suffix(".md")
    try:
        if output.suffix != ".html":
            raise ValueError(f"--output {output}: expected a name that ends in .html.")
        built = build_report(runs, groups, title, target, against)
        text = built.markdown
        if figures is not None:
            for figure in built.figures:
                path = figures / f"{figure.name}.svg"
                _write(path, figure.standalone())
                place = Path(os.path.relpath(path, beside.parent)).as_posix()
                text += f"\n![{figure.title}]({place})\n\n{figure.note}\n"
        _write(output, built.html)
        _write(beside, text)
    except ValueError as error:
        raise _fail(error) from error
    console = Console()
    console.print(f"{output.resolve()} ({len(built.html) / 1e6:.1f} MB)", soft_wrap=True)
    console.print(str(beside.resolve()), soft_wrap=True, highlight=False)


def _pairs(option: str, text: str | None, default: str | None = None) -> dict[str, str]:
    """`a=b,c=d` as a dictionary; a word without `=` gets the default."""
    pairs: dict[str, str] = {}
    for word in (text or "").split(","):
        if not word.strip():
            continue
        name, equals, value = word.strip().partition("=")
        if not equals and default is None:
            raise ValueError(f"{option}: {word.strip()!r}: expected NAME=VALUE pairs.")
        pairs[name] = value if equals else str(default)
    return pairs


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{option}: {text!r}: expected a number.")
    return number


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--output {path}: cannot be written: {error}") from error


def _fail(error: ValueError) -> typer.Exit:
    console = Console(stderr=True)
    console.print("[bold red]error:[/]", end=" ")
    # A message may quote a completion: nothing in it is markup.
    console.print(str(error), markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(code=2)
