"""The data sets that `fastrl evaluate` knows by name, and files of one's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from datasets import load_dataset

from fastrl.evaluation import benchmarks
from fastrl.evaluation.answers import gold_problem
from fastrl.evaluation.questions import Question, Rule, with_instruction
from fastrl.geometry.datasets import (
    FORMAT_INSTRUCTION,
    KNOWN_DATASETS,
    DatasetError,
    Picture,
    RowError,
)
from fastrl.geometry.datasets.pictures import PictureError
from fastrl.geometry.datasets.rows import read_row
from fastrl.geometry.datasets.sources import RawRows, open_source

PROBLEMS_SHOWN = 20
TOY_PICTURES = 256
# The toy's answers are short, and a sample that runs on would hold up its whole batch.
TOY_NEW_TOKENS = 32
MAX_NEW_TOKENS = 2048
GEOQA_NEW_TOKENS = 4096  # as long as training lets them be
# Training grades boxes alone, so does an evaluation on its data sets.
TRAINING_RULE = Rule("exact", boxed_only=True)
TOY_RULE = Rule("exact", boxed_only=True, in_thought=True)

Loader = Callable[[Mapping[str, Any], Path | None], Question]


class Loaded(NamedTuple):
    """The questions to ask, and what is wrong with each row that was left out."""

    questions: list[Question]
    skipped: list[str]


@dataclass(frozen=True)
class Source:
    """A data set that is known by name.

    Attributes:
        load: makes a question of a row.
        place: where it is published: a hub name.
        split: the one that is evaluated on.
        published: how many questions that split has.
        config: the data set's configuration, where it has several and no default.
        repeats: whether ids repeat, one question's variants having the same; they are numbered.
        max_new_tokens: the longest completion, in tokens.
        instruction: what follows each question by default.
    """

    load: Loader
    place: str = ""
    split: str = "test"
    published: int | None = None
    config: str | None = None
    repeats: bool = False
    max_new_tokens: int = MAX_NEW_TOKENS
    instruction: str = FORMAT_INSTRUCTION


def geometry(row: Mapping[str, Any], folder: Path | None = None) -> Question:
    """A question of Geometry3K or GeoQA, or of one's own data in such columns.

    Columns: see `fastrl.geometry.datasets.read_row`; the names of R1-V's GeoQA test file
    (question, image_path, ground_truth) are understood, too. The training's grader judges.

    Args:
        row: as published; folder: what paths of pictures are relative to.

    Raises:
        RowError: something is missing or cannot be used; all of it is told.
    """
    names = {"image_path": "image", "ground_truth": "answer"}
    known = read_row({names.get(key, key): value for key, value in row.items()}, folder)
    tags = {
        key: (str(row[key]),)
        for key in ("level", "subject", "family")
        if row.get(key) not in (None, "")
    }
    name = next((str(row[key]) for key in ("id", "index") if row.get(key) is not None), "")
    # The choices are in the words; the letter is graded as in training.
    text = known.question(None)
    return Question(name, text, known.answer, known.pictures, rule=TRAINING_RULE, tags=tags)


SOURCES = {
    "toy": Source(geometry, max_new_tokens=TOY_NEW_TOKENS, instruction=""),
    "geometry3k": Source(geometry, KNOWN_DATASETS["geometry3k"], published=601),
    "geoqa": Source(
        geometry, KNOWN_DATASETS["geoqa"], published=754, max_new_tokens=GEOQA_NEW_TOKENS
    ),
    "geoqa8k": Source(
        geometry, KNOWN_DATASETS["geoqa8k"], published=754, max_new_tokens=GEOQA_NEW_TOKENS
    ),
    "mathvista": Source(benchmarks.mathvista, "AI4Math/MathVista", "testmini", published=1000),
    "mathverse": Source(
        benchmarks.mathverse, "AI4Math/MathVerse", "testmini", published=3940, config="testmini"
    ),
    "mathvision": Source(benchmarks.mathvision, "MathLLMs/MathVision", published=3040),
    "dynamath": Source(
        benchmarks.dynamath,
        "DynaMath/DynaMath_Sample",
        "+".join(f"sample_variant{number}" for number in range(1, 11)),
        published=5010,
        repeats=True,
    ),
}


def source_of(dataset: str) -> Source:
    """The source behind a name; a path or hub name is read as geometry data.

    Raises:
        DatasetError: it is neither a known name, nor an existing path, nor a hub name.
    """
    if dataset in SOURCES:
        return SOURCES[dataset]
    if not Path(dataset).exists() and dataset.count("/") != 1:
        raise DatasetError(
            f"--dataset {dataset}: expected one of {', '.join(SOURCES)}, a file or folder, or a "
            "hub name (owner/name)."
        )
    return Source(geometry, dataset)


def load_questions(
    dataset: str,
    data_path: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    instruction: str | None = None,
    seed: int = 0,
    skip_broken: bool = False,
) -> Loaded:
    """The questions of a data set, all checked, with how to answer added to each.

    Args:
        dataset: a name of `SOURCES`, or a path or hub name of geometry data.
        data_path: where a known data set lies: a file, a folder or a hub name; by default where
            it is published.
        split: by default the one that is usually evaluated on; a single file has none.
        limit: the first so many questions; for the toy, how many pictures are drawn.
        instruction: what follows each question; by default the data set's own.
        seed: of the toy's held-out stream.
        skip_broken: leave rows out that cannot be used, instead of raising.

    Raises:
        DatasetError: it cannot be opened, or has rows that cannot be used (each is named).
    """
    source = source_of(dataset)
    problems: list[str] = []
    if dataset == "toy" and data_path is None:
        questions = _toy(limit or TOY_PICTURES, seed)
    else:
        # A place of the user's own has no configuration that we know of.
        known = source if data_path is None else replace(source, config=None)
        questions, problems = _read(data_path or source.place, known, split, limit)
    if problems and not skip_broken:
        more = len(problems) - PROBLEMS_SHOWN
        shown = "; ".join(problems[:PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise DatasetError(
            f"{dataset}: {len(problems)} rows cannot be used: {shown}. Mend them, or leave them "
            "out with --skip_broken."
        )
    if not questions:
        raise DatasetError(f"{dataset}: there is no question to ask in it.")
    words = source.instruction if instruction is None else instruction
    asked = [replace(q, text=with_instruction(q.text, words)) for q in questions]
    return Loaded(asked, problems)


def _toy(count: int, seed: int) -> list[Question]:
    from fastrl.geometry.toy import figures

    return [
        Question(
            f"held-out/{seed}/{number}",
            figure.question,
            figure.answer,
            (Picture(figure.picture),),
            rule=TOY_RULE,
            tags={"family": (figure.family,)},
        )
        for number, figure in enumerate(figures(count, seed, held_out=True))
    ]


def _read(
    place: str, source: Source, split: str | None, limit: int | None
) -> tuple[list[Question], list[str]]:
    """The usable questions, and what is wrong with each other row."""
    rows, folder = _rows(place, split or source.split, source.config)
    seen: Counter[str] = Counter()
    questions: dict[str, Question] = {}
    problems = []
    for number in range(len(rows) if limit is None else min(limit, len(rows))):
        try:
            question = source.load(rows[number], folder)
            problem = gold_problem(question)
            for picture in question.pictures:
                picture.check()
            name = question.id or str(number)
            seen[name] += 1
            if source.repeats and seen[name] > 1:
                name = f"{name}/{seen[name]}"
            if problem is None and name in questions:
                problem = f"its id {name!r} stands twice"
        except (RowError, PictureError) as error:
            problem = str(error)
        if problem:
            problems.append(f"row {number}: {problem}")
        else:
            questions[name] = replace(question, id=name)
    return list(questions.values()), problems


def _rows(
    place: str, split: str, config: str | None
) -> tuple[Sequence[Mapping[str, Any]], Path | None]:
    path = Path(place)
    if path.is_file() and path.suffix == ".json":
        # MathVista and MathVerse also publish one JSON file, by id or as a list.
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = list(content.values()) if isinstance(content, dict) else content
        return rows, path.parent
    if config is not None:
        found = open_configuration(place, config, split)
    else:
        found = open_source(place, None if path.is_file() else split)
    return found, found.folder  # type: ignore[return-value]


def open_configuration(place: str, config: str, split: str) -> RawRows:
    """One configuration of a data set that has several; pictures stay encoded.

    Args:
        place: a hub name; config: its configuration; split: of it, or several joined by "+".

    Raises:
        DatasetError: it cannot be had.
    """
    try:
        dataset = load_dataset(place, config, split=split)
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{place}, configuration {config!r}, split {split!r}: cannot be had from the hub "
            f"({error}). Check the split and the connection, or give a file with --data_path."
        ) from error
    return RawRows(dataset, f"{place}[{split}]")
