"""Completions as token ids: those logged, a tokenizer's, or words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.report.logged import LoggedRollouts

WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Tokens:
    """N token rows and where they come from.

    Attributes:
        rows: N rows of ids.
        source: in words; the similarity depends on it.
    """

    rows: list[npt.NDArray[np.int64]]
    source: str


def tokenise(logged: LoggedRollouts, tokenizer: str | None = None) -> Tokens:
    """Token ids of every completion.

    Args:
        logged: N rollouts.
        tokenizer: name or path for transformers; None takes the ids that were logged, or else
            words and punctuation marks.

    Raises:
        ValueError: the tokenizer cannot be loaded, or a rollout has neither text nor ids.
    """
    texts = [rollout.completion for rollout in logged.rollouts]
    if tokenizer is None and all(r.token_ids is not None for r in logged.rollouts):
        rows = [np.array(r.token_ids, dtype=np.int64) for r in logged.rollouts]
        return Tokens(rows, "logged token ids")
    for rollout in logged.rollouts:
        if rollout.completion is None:
            raise ValueError(
                f"{rollout.where}: no completion text, which is needed unless every rollout has "
                "token_ids (and no --tokenizer is given). If it goes by another name, say so: "
                "--fields completion=THEIR_NAME."
            )
    if tokenizer is None:
        words: dict[str, int] = {}
        rows = [
            np.array([words.setdefault(w, len(words)) for w in WORD.findall(t or "")], np.int64)
            for t in texts
        ]
        return Tokens(rows, "words and punctuation marks")
    encode = _load(tokenizer)
    # Special tokens would be shared by every completion.
    rows = [
        np.array(encode(text, add_special_tokens=False)["input_ids"], np.int64) for text in texts
    ]
    return Tokens(rows, f"tokenizer {tokenizer}")


def _load(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ValueError("--tokenizer needs transformers: pip install transformers.") from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--tokenizer {name}: cannot be loaded: {error}") from error
