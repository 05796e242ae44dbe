"""From a name or path to checked rows, and to a data set for TRL whose pictures stay encoded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from PIL import Image

from fastrl.geometry.datasets.pictures import PictureError
from fastrl.geometry.datasets.rows import (
    CHOICES_AS,
    FORMAT_INSTRUCTION,
    Adapter,
    GeometryRow,
    RowError,
    read_row,
)
from fastrl.geometry.datasets.sources import DatasetError, RawRows, open_source

PROBLEMS_SHOWN = 20


@dataclass(frozen=True)
class RowProblem:
    """A row that cannot be used: its number in the source, counted from 0, and why."""

    row: int
    why: str

    def __str__(self) -> str:
        return f"row {self.row}: {self.why}"


class GeometryRows(Sequence[GeometryRow]):
    """The rows of a data set as `GeometryRow`, read when asked for.

    Args:
        raw: the source; adapt: brings its rows under the names that `read_row` knows.
        choices_as: "letter" or "text", see `read_row`.
        numbers: the rows to use, by number in the source; all by default.
    """

    def __init__(
        self,
        raw: RawRows,
        adapt: Adapter | None = None,
        choices_as: str = "letter",
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.raw = raw
        self.adapt = adapt
        self.choices_as = choices_as
        self.numbers = range(len(raw)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        """A row, or for a slice the rows in it; raises `RowError` for one that cannot be used."""
        if isinstance(index, slice):
            return GeometryRows(self.raw, self.adapt, self.choices_as, self.numbers[index])
        raw = self.raw[self.numbers[index]]
        adapted = self.adapt(raw) if self.adapt is not None else raw
        return read_row(adapted, self.raw.folder, self.choices_as)

    def __iter__(self) -> Iterator[GeometryRow]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True)
class GeometryData:
    """A data set, ready to train or evaluate on.

    Attributes:
        name: of the source, for messages.
        rows: the usable rows in plain form; pictures: how many they have together.
        skipped: rows that were left out because they are broken.
        too_long: rows that were left out because of `max_prompt_length`.
    """

    name: str
    rows: GeometryRows
    pictures: int
    skipped: tuple[RowProblem, ...] = ()
    too_long: tuple[RowProblem, ...] = ()

    def for_training(
        self,
        format_instruction: str | None = FORMAT_INSTRUCTION,
        system_prompt: str | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        examples: Mapping[str, str] | None = None,
    ) -> Dataset:
        """The rows as TRL's trainers take them; pictures are decoded when a row is read.

        Columns: prompt (chat messages, see `GeometryRow.prompt`), images (a list of RGB pictures,
        `[]` for a row without), answer (the gold answer, text).

        Args:
            format_instruction: added to each question; None for none.
            system_prompt: the first message; None for none.
            min_pixels, max_pixels: resize pictures to lie between them, aspect kept. Leave them out
                where the model's processor resizes (Qwen2-VL and its kin): once is enough.
            examples: worked examples, question to reply, shown as earlier turns of each prompt.
        """
        prompting = (format_instruction, system_prompt, examples)
        rows = _TrainingRows(self.rows, prompting, min_pixels, max_pixels)
        # Row numbers only: the rows themselves stay where they are.
        return Dataset.from_dict({"row": list(range(len(self.rows)))}).with_transform(rows)


def load_geometry(
    name_or_path: str,
    split: str | None = None,
    *,
    adapt: Adapter | None = None,
    choices_as: str = "letter",
    max_rows: int | None = None,
    skip_broken: bool = False,
    max_prompt_length: int | None = None,
    prompt_length: Callable[[GeometryRow], int] | None = None,
    skip_long: bool = False,
    on_row: Callable[[int, int], None] | None = None,
) -> GeometryData:
    """Open a data set and check every row: its text, its gold answer, and each picture to its end.

    Args:
        name_or_path, split: see `open_source`.
        adapt: takes a row of the source and returns a mapping with the columns of `read_row`.
        choices_as: see `read_row`.
        max_rows: use the first so many rows of the source; None for all.
        skip_broken: leave rows out that cannot be used, instead of raising.
        max_prompt_length: the most tokens that a prompt may have, pictures included. TRL cuts no
            prompt, and cutting would tear pictures from their tokens: rows are left out whole.
        prompt_length: tokens of a row's prompt, see `prompt_counter`; needed with a limit.
        skip_long: leave rows out that are too long, instead of raising.
        on_row: told how many rows are checked, and of how many.

    Returns:
        The usable rows, and those left out.

    Raises:
        DatasetError: it cannot be opened, has rows that cannot be used (each is named), or none
            that can.
    """
    if choices_as not in CHOICES_AS:
        raise DatasetError(f"choices_as = {choices_as!r}: expected 'letter' or 'text'.")
    if max_prompt_length is not None and prompt_length is None:
        raise DatasetError("max_prompt_length needs prompt_length: see prompt_counter.")
    raw = open_source(name_or_path, split)
    total = len(raw) if max_rows is None else min(max_rows, len(raw))
    rows = GeometryRows(raw, adapt, choices_as, range(total))
    broken: list[RowProblem] = []
    too_long: list[RowProblem] = []
    usable: list[int] = []
    pictures = 0
    for number in range(total):
        try:
            row = rows[number]
            for picture in row.pictures:
                picture.check()
        except (RowError, PictureError) as error:
            broken.append(RowProblem(number, str(error)))
        else:
            length = prompt_length(row) if prompt_length and max_prompt_length else 0
            if max_prompt_length and length > max_prompt_length:
                too_long.append(RowProblem(number, f"{length} tokens"))
            else:
                usable.append(number)
                pictures += len(row.pictures)
        if on_row is not None:
            on_row(number + 1, total)
    _refuse(raw.name, total, broken, too_long, skip_broken, skip_long, max_prompt_length)
    if not usable:
        raise DatasetError(f"{raw.name}: none of {total} rows is left to use.")
    rows = GeometryRows(raw, adapt, choices_as, usable)
    return GeometryData(raw.name, rows, pictures, tuple(broken), tuple(too_long))


def _refuse(
    name: str,
    total: int,
    broken: list[RowProblem],
    too_long: list[RowProblem],
    skip_broken: bool,
    skip_long: bool,
    limit: int | None,
) -> None:
    messages = []
    if broken and not skip_broken:
        messages.append(
            f"{name}: {len(broken)} of {total} rows cannot be used: {_listed(broken)}. Mend them, "
            "or leave them out with skip_broken."
        )
    if too_long and not skip_long:
        messages.append(
            f"{name}: {len(too_long)} of {total} prompts are longer than max_prompt_length = "
            f"{limit}: {_listed(too_long)}. Raise the limit, lower max_pixels, or leave them out "
            "with skip_long."
        )
    if messages:
        raise DatasetError(" ".join(messages))


def _listed(problems: list[RowProblem]) -> str:
    shown = "; ".join(map(str, problems[:PROBLEMS_SHOWN]))
    more = len(problems) - PROBLEMS_SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown


class _TrainingRows:
    """The transform of a training data set: row numbers in, prompts, pictures and answers out.

    `prompting` is what `GeometryRow.prompt` takes.

    A picture that is still in use is not decoded again: a group's rollouts share one, and so do
    the batches that a trainer asks for again and again until a generation batch is used up.
    """

    def __init__(
        self,
        rows: GeometryRows,
        prompting: tuple[str | None, str | None, Mapping[str, str] | None],
        min_pixels: int | None,
        max_pixels: int | None,
    ) -> None:
        self.rows = rows
        self.prompting = prompting
        self.min_pixels = min_pixels
        self.max_pixels = max_pixels
        self._in_use: weakref.WeakValueDictionary[tuple[int, int], Image.Image]
        self._in_use = weakref.WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        # Weak references cannot be pickled; a data loader's worker starts with none.
        return {name: value for name, value in vars(self).items() if name != "_in_use"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._in_use = weakref.WeakValueDictionary()

    def __call__(self, batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        rows = {number: self.rows[number] for number in dict.fromkeys(batch["row"])}
        pictures = {number: self._pictures(number, row) for number, row in rows.items()}
        return {
            "prompt": [rows[number].prompt(*self.prompting) for number in batch["row"]],
            # A list each: one changed in place does not change its neighbours.
            "images": [list(pictures[number]) for number in batch["row"]],
            "answer": [rows[number].answer for number in batch["row"]],
        }

    def _pictures(self, number: int, row: GeometryRow) -> list[Image.Image]:
        found = []
        for place, picture in enumerate(row.pictures):
            decoded = self._in_use.get((number, place))
            if decoded is None:
                decoded = picture.open(self.min_pixels, self.max_pixels)
                self._in_use[number, place] = decoded
            found.append(decoded)
        return found
