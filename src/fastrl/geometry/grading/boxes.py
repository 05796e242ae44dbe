r"""Find the answer in a completion: the content of its last \boxed{} or \fbox{}."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_OPENING = re.compile(r"\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_THOUGHT_TAGS = ("thinking", "think")


def count_boxes(text: str) -> int:
    r"""How many times a text writes \boxed or \fbox, well formed or not."""
    return len(_BOX.findall(text))


def last_box(text: str) -> str | None:
    r"""The content of the last box of a text, stripped.

    Args:
        text: any text.

    Returns:
        None without a box, and where the last one is never closed, empty, or has no braces
        ("\boxed 5"): an earlier box is not what the text ends on.
    """
    last = None
    for last in _BOX.finditer(text):  # noqa: B007
        pass
    opening = _OPENING.match(text, last.end()) if last else None
    if opening is None:
        return None
    depth = 1
    for brace in _BRACE.finditer(text, opening.end()):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[opening.end() : brace.start()].strip() or None
    return None


def extract_answer(completion: str) -> str | None:
    r"""The answer that a completion gives: what its last \boxed{} or \fbox{} holds.

    Args:
        completion: the policy's text.

    Returns:
        None without a proper last box (see `last_box`), and where a <thinking> or <think> block
        is still open at the end: a thought that was cut off has answered nothing.
    """
    for tag in _THOUGHT_TAGS:
        if completion.rfind(f"<{tag}>") > completion.rfind(f"</{tag}>"):
            return None
    return last_box(completion)
