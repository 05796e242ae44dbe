"""A question as it is asked: words, pictures, the right answer, and how it is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastrl.geometry.datasets import Picture

PLACEHOLDER = "<image>"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Rule:
    """How an answer is compared with the right one.

    Attributes:
        kind: "exact" (the training's grader), "choice", "integer", "rounded" (to `decimals`),
            "near" (within `margin`), "list" or "text".
        boxed_only: whether only a box counts as an answer, as in training; otherwise "the answer
            is ..." or a last line that is nothing but an answer counts too.
        in_thought: whether a box counts although its thought was never closed (the toy's reward).
        decimals: places that "rounded" keeps.
        margin: the greatest absolute difference of "near".
    """

    kind: str = "exact"
    boxed_only: bool = False
    in_thought: bool = False
    decimals: int = 2
    margin: float = 1e-3


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        id: unique within its data set.
        text: the words, choices included; each "<image>" stands for a picture. Without any,
            the pictures come first.
        answer: the right answer; the letter, where there are choices.
        pictures: opened when asked for.
        choices: the texts behind the letters A, B, ...
        rule: how an answer is judged.
        group: what it belongs to (a problem with several versions); by default itself.
        tags: what results are broken down by, such as the subject; a question may have several
            values of one tag.
    """

    id: str
    text: str
    answer: str
    pictures: tuple[Picture, ...] = ()
    choices: tuple[str, ...] = ()
    rule: Rule = field(default_factory=Rule)
    group: str = ""
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def with_choices(text: str, choices: Sequence[str]) -> str:
    """The question with its choices below, a letter each."""
    if not choices:
        return text
    lines = [f"({LETTERS[row]}) {choice}" for row, choice in enumerate(choices)]
    return "\n".join([text.rstrip(), "Choices:", *lines])


def with_instruction(text: str, instruction: str) -> str:
    """The question followed by how to answer."""
    return f"{text.rstrip()}\n{instruction}" if instruction else text


def conversation(
    question: Question, system: str = "", examples: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The question as chat messages, pictures as `{"type": "image"}` parts.

    A question without pictures is plain text, which every chat template takes.

    Args:
        question: as it is asked.
        system: the first message; empty for none.
        examples: question to reply, as earlier turns; their questions as they are asked, too.
    """
    content: str | list[dict[str, str]] = question.text
    if question.pictures:
        pieces = question.text.split(PLACEHOLDER)
        if len(pieces) != len(question.pictures) + 1:
            pieces = [""] * len(question.pictures) + [question.text]
        content = []
        for row, piece in enumerate(pieces):
            if piece:
                content.append({"type": "text", "text": piece})
            if row < len(question.pictures):
                content.append({"type": "image"})
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for asked, reply in (examples or {}).items():
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}]
    return [*messages, {"role": "user", "content": content}]


def fingerprint(questions: Sequence[Question]) -> str:
    """A checksum of ids, words, answers and number of pictures: whether two lists are the same."""
    digest = hashlib.sha256()
    for question in questions:
        parts = (question.id, question.text, question.answer, str(len(question.pictures)))
        digest.update(repr((parts, question.choices, question.rule)).encode())
    return digest.hexdigest()[:16]
