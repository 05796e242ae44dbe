"""A policy is asked in evaluation as it was asked in training."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from fastrl.evaluation.questions import conversation, with_instruction
from fastrl.evaluation.sources import geometry
from fastrl.geometry.datasets import FORMAT_INSTRUCTION
from fastrl.geometry.datasets.rows import read_row


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "<image>Find x.", "images": [picture()], "answer": "5"},
        {"problem": "Find x.\n", "images": [picture(), picture()], "answer": "5"},
        {"problem": "Is <image> like <image> ?", "images": [picture(), picture()], "answer": "5"},
        {"problem": "Find x.", "choices": ["3", "5"], "answer": "5", "image": picture()},
        {"problem": " What is 2 + 2?", "answer": "4"},
    ],
)
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_the_same_messages(row: dict[str, Any], system: str) -> None:
    question = geometry(row)
    asked = with_instruction(question.text, FORMAT_INSTRUCTION)
    asked_so = type(question)("1", asked, question.answer, question.pictures)
    assert conversation(asked_so, system) == read_row(row).prompt(system_prompt=system)
    examples = {with_instruction("1 + 1?", FORMAT_INSTRUCTION): "\\boxed{2}"}
    trained = read_row(row).prompt(system_prompt=system, examples={"1 + 1?": "\\boxed{2}"})
    assert conversation(asked_so, system, examples) == trained
