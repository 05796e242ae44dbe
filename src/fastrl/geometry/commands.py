"""The command `fastrl verl-data`; everything heavy is imported when called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

if TYPE_CHECKING:
    from fastrl.geometry.datasets.verl_files import VerlFile


def register(app: typer.Typer) -> None:
    """Add `verl-data` to a Typer app."""
    app.command("verl-data")(verl_data)


def verl_data(
    dataset: Annotated[
        str,
        typer.Argument(
            help="geometry3k, geoqa8k, or a file, folder or hub name with columns problem, "
            "images, answer."
        ),
    ],
    output_dir: Annotated[
        Path, typer.Option("--output_dir", help="Gets train.parquet and test.parquet.")
    ],
    train_split: Annotated[str, typer.Option("--train_split", help="'' for none.")] = "train",
    test_split: Annotated[str, typer.Option("--test_split", help="'' for none.")] = "test",
    skip_broken: Annotated[
        bool, typer.Option("--skip_broken", help="Leave out rows that cannot be used.")
    ] = False,
    max_rows: Annotated[
        int | None, typer.Option("--max_rows", min=1, help="The first so many of each split.")
    ] = None,
    choices_as: Annotated[
        str, typer.Option("--choices_as", help="letter or text, of multiple-choice problems.")
    ] = "letter",
    instruction: Annotated[
        str | None, typer.Option(help="Follows each question; '' for none.")
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "",
    min_pixels: Annotated[
        int | None, typer.Option("--min_pixels", help="Of a picture; 262144, as published.")
    ] = None,
    max_pixels: Annotated[
        int | None, typer.Option("--max_pixels", help="Of a picture; 4194304, as published.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
) -> None:
    """Write geometry problems as the parquet files that verl trains on and validates with.

    Every row is checked first. Start it again after an interruption: finished files are kept.
    """
    try:
        from fastrl.geometry.datasets import FORMAT_INSTRUCTION
        from fastrl.geometry.datasets import verl_files as files
    except ImportError as error:
        raise _fail(f"{error}. It needs: pip install 'fastrl-grpo[verl]'") from error
    console = Console()
    splits = {"train": train_split, "test": test_split}
    try:
        requests = {
            name: files.VerlFileRequest(
                dataset,
                split,
                choices_as=choices_as,
                max_rows=max_rows,
                skip_broken=skip_broken,
                format_instruction=FORMAT_INSTRUCTION if instruction is None else instruction,
                system_prompt=system,
                min_pixels=files.MIN_PIXELS if min_pixels is None else min_pixels,
                max_pixels=files.MAX_PIXELS if max_pixels is None else max_pixels,
            )
            for name, split in splits.items()
            if split
        }
        for name, request in requests.items():
            path = output_dir / f"{name}.parquet"
            with _checking(console, f"Checking {dataset}, {request.split}") as on_row:
                file = files.write_verl_file(request, path, overwrite=overwrite, on_row=on_row)
            _show(console, file)
    except ValueError as error:
        raise _fail(str(error)) from error


@contextmanager
def _checking(console: Console, title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, gone when it is full; elsewhere nothing."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _show(console: Console, file: VerlFile) -> None:
    made = "written" if file.written else "kept as it was"
    console.print(f"{file.path}: {file.rows} rows, {made}", highlight=False, soft_wrap=True)
    for problem in file.skipped:
        console.print(f"  left out: {problem}", highlight=False, markup=False, soft_wrap=True)


def _fail(message: str) -> typer.Exit:
    text = Text.assemble(("error: ", "bold red"), message)
    Console(stderr=True).print(text, soft_wrap=True)
    return typer.Exit(code=2)
