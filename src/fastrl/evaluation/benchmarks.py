"""Public benchmarks in their published columns: rows in, questions out.

Each function reads one row. What a benchmark publishes as its prompt is kept; what its protocol
leaves to a language model (finding the answer in the text) is done by rules here, see
`docs/evaluate.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastrl.evaluation.questions import LETTERS, Question, Rule, with_choices
from fastrl.geometry.datasets import Picture, RowError
from fastrl.geometry.grading.boxes import last_box

Row = Mapping[str, Any]

MATHVISTA_TAGS = ("task", "context", "grade", "skills", "source", "category", "language")
_LETTERED = re.compile(r"^\(?([A-Z])[):.]\s*(.+)$")
_PRECISE = "Answer with a number, to three places behind the point."


def mathvista(row: Row, folder: Any = None) -> Question:
    """A question of MathVista (testmini: 1,000).

    Columns: pid, question, image or decoded_image, choices, unit, precision, answer (of a choice
    its text), question_type, answer_type (text, integer, float, list), metadata, query (the
    published prompt, used where it is there).

    Args:
        row: as published; folder: what paths of pictures are relative to.

    Raises:
        RowError: something is missing or unknown.
    """
    name = str(_need(row, "pid"))
    choices = tuple(str(choice) for choice in row.get("choices") or ())
    gold = str(_need(row, "answer"))
    kind = str(_need(row, "answer_type"))
    precision = row.get("precision")
    if choices:
        if gold not in choices:
            raise RowError(f"the answer {gold!r} is none of the choices {list(choices)}")
        gold, rule = LETTERS[choices.index(gold)], Rule("choice")
    elif kind == "integer":
        rule = Rule("integer")
    elif kind == "float":
        rule = Rule("rounded", decimals=int(precision) if precision is not None else 2)
    elif kind in ("list", "text"):
        rule = Rule(kind)
    else:
        raise RowError(f"answer_type {kind!r}: expected text, integer, float or list")
    metadata = {key: row[key] for key in ("question_type", "answer_type") if row.get(key)}
    metadata |= {key: (row.get("metadata") or {}).get(key) for key in MATHVISTA_TAGS}
    text = row.get("query") or _mathvista_prompt(row, choices, kind, precision)
    return Question(
        name, str(text), gold, _pictures(row, folder), choices, rule, tags=_tags(metadata)
    )


def _mathvista_prompt(row: Row, choices: tuple[str, ...], kind: str, precision: Any) -> str:
    """Our words for what `query` says: the question, its unit, choices, and the answer's form."""
    unit = f" (Unit: {row['unit']})" if row.get("unit") else ""
    form = {
        "integer": "Answer with an integer.",
        "float": f"Answer with a number, to {int(precision or 2)} places behind the point.",
        "list": "Answer with a list in brackets, such as [1, 2].",
    }.get(kind, "")
    question = with_choices(f"{_need(row, 'question')}{unit}", choices)
    return f"{question}\n{form}" if form and not choices else question


def mathverse(row: Row, folder: Any = None) -> Question:
    """A question of MathVerse (testmini: 3,940, five versions of each of 788 problems).

    Columns: sample_index, problem_index, problem_version, question (with its choices below
    "Choices:"; empty for "Vision Only"), image, answer, question_type (multi-choice or
    free-form), metadata (subject, subfield, source), query_cot (the published prompt, used where
    it is there), question_for_eval.

    Args:
        row: as published; folder: what paths of pictures are relative to.

    Raises:
        RowError: something is missing.
    """
    gold = str(_need(row, "answer")).strip()
    question = str(row.get("question") or "")
    is_choice = str(_need(row, "question_type")) == "multi-choice"
    choices = _choices_in(str(row.get("question_for_eval") or question)) if is_choice else ()
    metadata = row.get("metadata") or {}
    tags = {
        "version": row.get("problem_version"),
        "question_type": row.get("question_type"),
        "subject": metadata.get("subject"),
        "subfield": metadata.get("subfield"),
    }
    return Question(
        str(_need(row, "sample_index")),
        str(row.get("query_cot") or question),
        gold,
        _pictures(row, folder),
        choices,
        Rule("choice") if is_choice else Rule("exact"),
        group=str(_need(row, "problem_index")),
        tags=_tags(tags),
    )


def _choices_in(text: str) -> tuple[str, ...]:
    """The choices below "Choices:", lettered from A without a gap; none where they are not so."""
    lines = text.rpartition("Choices:")[2].strip().splitlines()
    found = [match for line in lines if (match := _LETTERED.match(line.strip()))]
    letters = "".join(match[1] for match in found)
    is_whole = len(found) == len(lines) > 1 and letters == LETTERS[: len(letters)]
    return tuple(match[2].strip() for match in found) if is_whole else ()


def mathvision(row: Row, folder: Any = None) -> Question:
    """A question of MATH-Vision (test: 3,040; testmini: 304).

    Columns: id, question, options, image or decoded_image, answer (of options the letter),
    level, subject. All its pictures are drawn as one, so <image1> stays a word of the question.
    A value counts where it is the same to two places behind the point.

    Args:
        row: as published; folder: what paths of pictures are relative to.

    Raises:
        RowError: something is missing.
    """
    options = tuple(str(option) for option in row.get("options") or ())
    # Some options are in the picture alone, and their texts are just their letters.
    shown = () if "".join(options) == LETTERS[: len(options)] else options
    gold = str(_need(row, "answer")).strip()
    return Question(
        str(_need(row, "id")),
        with_choices(str(_need(row, "question")), shown),
        last_box(gold) or gold,  # a few of the published answers are in a box
        _pictures(row, folder),
        options,
        Rule("choice") if options else Rule("rounded", decimals=2),
        tags=_tags({"subject": row.get("subject"), "level": row.get("level")}),
    )


def dynamath(row: Row, folder: Any = None) -> Question:
    """A question of DynaMath (501 questions in ten variants each).

    Columns: id (or qid) and, where variants share a file, variant; question, image or
    decoded_image, ground_truth (or answer), answer_type (float, multiple choice, text), subject,
    knowledge_level (or level). A number counts within 0.001; the variants of a question are one
    group, all of which must be right for the worst case.

    Args:
        row: as published; folder: what paths of pictures are relative to.

    Raises:
        RowError: something is missing or unknown.
    """
    group = str(_need(row, "qid" if "qid" in row else "id"))
    variant = row.get("variant")
    kind = str(_need(row, "answer_type")).strip().lower()
    rules = {"float": Rule("near"), "multiple choice": Rule("choice"), "text": Rule("text")}
    if kind not in rules:
        raise RowError(f"answer_type {kind!r}: expected one of {', '.join(rules)}")
    question = str(_need(row, "question")).strip()
    return Question(
        group if variant is None else f"{group}/{variant}",
        f"{question} {_PRECISE}" if kind == "float" else question,
        str(_need(row, "ground_truth" if "ground_truth" in row else "answer")).strip(),
        _pictures(row, folder),
        rule=rules[kind],
        group=group,
        tags=_tags(
            {
                "subject": row.get("subject"),
                "level": row.get("knowledge_level") or row.get("level"),
                "answer_type": kind,
            }
        ),
    )


def _need(row: Row, column: str) -> Any:
    value = row.get(column)
    if value is None:
        raise RowError(f"no {column}")
    return value


def _pictures(row: Row, folder: Any) -> tuple[Picture, ...]:
    """The picture of a row: decoded_image where it is there, since image is then only a name."""
    source = row.get("decoded_image") or row.get("image")
    return (Picture(source, folder),) if source else ()


def _tags(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Tags without those that a row does not have."""
    return {
        key: tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
        for key, value in values.items()
        if value not in (None, "", [])
    }
