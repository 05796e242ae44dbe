"""The toy's pictures as a Hugging Face data set, in the columns that TRL expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets import Dataset, Features, Image, Value

from fastrl.geometry.toy.figures import Figure, figures

FEATURES = Features(
    {
        "prompt": [{"role": Value("string"), "content": Value("string")}],
        "image": Image(),
        "answer": Value("string"),
        "family": Value("string"),
    }
)


def row(figure: Figure) -> dict[str, Any]:
    """One figure as a data set row."""
    return {
        "prompt": [{"role": "user", "content": figure.question}],
        "image": figure.picture,
        "answer": figure.answer,
        "family": figure.family,
    }


def toy_dataset(count: int, seed: int = 0, held_out: bool = False) -> Dataset:
    """`count` pictures with questions and answers; `held_out` ones share no seed with training.

    Columns: prompt (one user turn), image, answer (a number as text), family.
    """

    def rows() -> Iterator[dict[str, Any]]:
        for figure in figures(count, seed, held_out):
            yield row(figure)

    return Dataset.from_list(list(rows()), features=FEATURES)
