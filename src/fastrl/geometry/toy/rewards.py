"""The toy's two rewards: 1 for the right boxed number, 0.5 for the asked-for format."""

from __future__ import annotations

import re
from typing import Any

FORMAT_REWARD = 0.5
_LAST_BOX = re.compile(r".*\\boxed\{([^{}]*)\}", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FORMAT = re.compile(
    r"<thinking>(?!\s*</thinking>)((?!</?thinking>).)+</thinking>\s*\\boxed\{[^{}]+\}\s*", re.S
)


def boxed_number(completion: str) -> float | None:
    """The number in the last box of a completion; None without a box or without a number in it."""
    box = _LAST_BOX.match(completion)
    if box is None:
        return None
    content = box.group(1).strip()
    return float(content) if _NUMBER.fullmatch(content) else None


def is_right(completion: str, answer: str) -> bool:
    """Whether the last box holds the answer, as a number."""
    return boxed_number(completion) == float(answer)


def has_format(completion: str) -> bool:
    """Whether it is one non-empty <thinking> block, then one box, and nothing else."""
    return _FORMAT.fullmatch(completion) is not None


def completion_text(completion: Any) -> str:
    """The text of a completion as TRL hands it to reward functions."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def accuracy_reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 for the right boxed number, else 0. A TRL reward function."""
    return [
        float(is_right(completion_text(completion), gold))
        for completion, gold in zip(completions, answer, strict=True)
    ]


def format_reward(completions: list[Any], **_: Any) -> list[float]:
    """0.5 for the format, else 0. A TRL reward function."""
    return [FORMAT_REWARD * has_format(completion_text(completion)) for completion in completions]
