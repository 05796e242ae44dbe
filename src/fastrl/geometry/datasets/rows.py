"""A row of a geometry data set in plain form, and its prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastrl.geometry.datasets.pictures import Picture, PictureError
from fastrl.geometry.grading import GoldError
from fastrl.geometry.grading.answers import read_gold, read_letter
from fastrl.geometry.grading.boxes import last_box

IMAGE_PLACEHOLDER = "<image>"
FORMAT_INSTRUCTION = (
    "Reason step by step inside <thinking></thinking>. "
    "After it, give nothing but the final answer inside \\boxed{}."
)
PROBLEM_COLUMNS = ("problem", "question")
PICTURE_COLUMNS = ("images", "image")
ANSWER_COLUMNS = ("answer", "solution")
CHOICE_COLUMNS = ("choices", "options")
CHOICES_AS = ("letter", "text")
# How messages tell what worked examples look like.
EXAMPLES_EXAMPLE = '{"What is 2 + 2?": "<thinking>2 + 2 = 4</thinking>\\boxed{4}"}'
_ANSWER_TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

# A row of any data set in, the same facts under the names of `read_row` out.
Adapter = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class RowError(ValueError):
    """A row cannot be used; the message says why, not which row it is."""


@dataclass(frozen=True)
class GeometryRow:
    """A problem with its pictures, which are opened only when asked for.

    Attributes:
        problem: the question; each <image> in it stands for a picture, in order.
        answer: the gold answer, readable by the grader.
        pictures: none, one or several.
        choices: the options of a multiple-choice problem; empty if there are none to show.
    """

    problem: str
    answer: str
    pictures: tuple[Picture, ...] = ()
    choices: tuple[str, ...] = ()

    def question(self, format_instruction: str | None = FORMAT_INSTRUCTION) -> str:
        """The problem, its choices by letter, and how to answer; placeholders still in it."""
        lines = [f"{letter}. {text}" for letter, text in zip(_LETTERS, self.choices, strict=False)]
        asked = "\n\n".join(part for part in (self.problem.strip(), "\n".join(lines)) if part)
        return f"{asked}\n{format_instruction}" if format_instruction else asked

    def prompt(
        self,
        format_instruction: str | None = FORMAT_INSTRUCTION,
        system_prompt: str | None = None,
        examples: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """The prompt as chat messages.

        With pictures the user's content is a list of parts, `{"type": "image"}` where a picture
        belongs (first, if the problem has no placeholder); without, it is text.

        Args:
            format_instruction: follows the question; None for none.
            system_prompt: the first message; None for none.
            examples: worked examples, question to reply, as earlier turns; the instruction follows
                their questions, too.
        """
        question = self.question(format_instruction)
        content: Any = question
        if self.pictures:
            pieces = question.split(IMAGE_PLACEHOLDER)
            if len(pieces) == 1:
                pieces = [""] * len(self.pictures) + pieces
            content = []
            for number, piece in enumerate(pieces):
                if number:
                    content.append({"type": "image"})
                if piece:
                    content.append({"type": "text", "text": piece})
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        turns = [
            {"role": role, "content": text}
            for asked, reply in (examples or {}).items()
            for role, text in (
                ("user", GeometryRow(asked, "").question(format_instruction)),
                ("assistant", reply),
            )
        ]
        return [*system, *turns, {"role": "user", "content": content}]


def read_row(
    raw: Mapping[str, Any], folder: Path | None = None, choices_as: str = "letter"
) -> GeometryRow:
    """A row under the usual names of columns.

    Args:
        raw: `problem` (or `question`): text. `images` (or `image`): a picture, several, or none,
            each as `Picture` takes it. `answer` (or `solution`): text or a number, perhaps inside
            <answer> tags or a box. `choices` (or `options`), if any: a list of texts.
        folder: what relative paths of pictures are relative to.
        choices_as: of a row with choices, "letter" shows the choices and asks for the letter,
            "text" shows none and asks for the text of the right one. The gold answer may be
            either in the data.

    Raises:
        RowError: something is missing or cannot be used; all of it is told.
    """
    problems = []
    problem = _first(raw, PROBLEM_COLUMNS)
    if not isinstance(problem, str) or not problem.strip():
        problems.append(f"no problem text ({' or '.join(PROBLEM_COLUMNS)})")
        problem = ""
    pictures: tuple[Picture, ...] = ()
    try:
        pictures = tuple(Picture(item, folder) for item in _listed(_first(raw, PICTURE_COLUMNS)))
    except PictureError as error:
        problems.append(str(error))
    else:
        placeholders = problem.count(IMAGE_PLACEHOLDER)
        if placeholders not in (0, len(pictures)):
            problems.append(f"{placeholders} {IMAGE_PLACEHOLDER} for {len(pictures)} pictures")
    choices = tuple(str(choice).strip() for choice in _listed(_first(raw, CHOICE_COLUMNS)))
    answer = ""
    try:
        answer = gold_answer(_first(raw, ANSWER_COLUMNS), choices, choices_as)
    except GoldError as error:
        problems.append(str(error))
    if problems:
        raise RowError("; ".join(problems))
    return GeometryRow(problem, answer, pictures, choices if choices_as == "letter" else ())


def are_examples(value: Any) -> bool:
    """Whether it is a mapping of questions to replies, none of them empty."""
    return isinstance(value, Mapping) and all(
        isinstance(text, str) and text.strip() for pair in value.items() for text in pair
    )


def gold_answer(value: Any, choices: Sequence[str] = (), choices_as: str = "letter") -> str:
    """The gold answer of a row as the grader reads it.

    Args:
        value: text or a number; of text with <answer> tags or a box, what the last one holds.
        choices: the options, if there are any; choices_as: see `read_row`.

    Raises:
        GoldError: it is missing or unreadable, or is none of the choices.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise GoldError(f"no gold answer ({' or '.join(ANSWER_COLUMNS)}), found {value!r}")
    tagged = _ANSWER_TAGS.findall(value)
    text = (tagged[-1] if tagged else value).strip()
    boxed = last_box(text)
    text = boxed.strip() if boxed is not None else text
    if choices:
        return _choice(text, choices, choices_as)
    letter = read_letter(text)
    try:
        read_gold(text)
    except GoldError:
        # "B. 12" is no value, but says which letter is right.
        if letter is None:
            raise
        return letter
    return text


def _choice(text: str, choices: Sequence[str], choices_as: str) -> str:
    """The letter, or the text, of the choice that a gold answer names in either way."""
    if text in choices:
        index = choices.index(text)
    else:
        letter = read_letter(text)
        index = _LETTERS.index(letter) if letter is not None else len(choices)
    if index >= len(choices):
        raise GoldError(f"the gold answer {text!r} is none of the choices {list(choices)}")
    if choices_as == "letter":
        return _LETTERS[index]
    read_gold(choices[index])
    return choices[index]


def _first(raw: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)
