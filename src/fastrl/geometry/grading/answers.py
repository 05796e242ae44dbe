r"""Read answers and gold answers: the letter of a choice, or one value or tuple of values.

Around the value itself an answer may name what it is ("x = 20"), say it twice ("48/4 = 12", both
must hold), add an approximation ("5\sqrt{3} \approx 8.66", a remark), or be a ratio ("3:4").
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from .cleaning import clean, strip_unit
from .expressions import Node, Number, UnreadableError, divide, evaluate, has_unknown
from .reading import read_expression

MAX_LENGTH = 1000
MAX_STATEMENTS = 4
CLOSE = 1e-9
LONG_DECIMAL = 10**9
# "22/7 = 3.14" rounds; no rounding to three digits is further from what it rounds.
ROUNDING = 0.01
_MISSING = {"n/a", "na", "?", "-", "none", "null", "nan"}


class GoldError(ValueError):
    """A gold answer is missing or unreadable, so nothing can be graded against it."""


@dataclass(frozen=True)
class Value:
    """One number or expression, or several in an order, with their float values."""

    nodes: tuple[Node, ...]
    floats: tuple[float, ...]


@dataclass(frozen=True)
class Gold:
    """What a gold answer says: the letter of a choice, or a value."""

    letter: str | None
    value: Value | None


_APPROXIMATELY = re.compile(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_SUBSCRIPT = re.compile(r"_\s*(?:\{[^{}]*\}|\w)")
_NAMED = re.compile(
    r"\\angle\s*\d+|\\(?:angle|triangle|Delta|odot|overline|widehat|frac|sin|cos|tan|alpha|beta"
    r"|gamma|theta|phi|therefore|parallel)(?![A-Za-z])"
)
# No digit, minus, power or root: "2x = 20" and "x^2 = 20" are equations, not names of the value.
_NAME = re.compile(r"[A-Za-z\u4e00-\u9fff'{}(),:/+\s]+")
_GOLD_LETTER = re.compile(r"\(?([A-Z])\)?[.)]?")
_LETTER = re.compile(r"\(?([A-Z])\)?(?:\s*[.):,]\s*(.*))?", re.DOTALL)
_OTHER_LETTER = re.compile(r"(?:^|[\s,;/&(]|or|and)[A-Z](?:[.):,;/\s]|$)")


def _is_name(text: str) -> bool:
    text = _NAMED.sub("A", _SUBSCRIPT.sub("", text))
    return any(character.isalpha() for character in text) and _NAME.fullmatch(text) is not None


def _statements(text: str) -> list[str]:
    parts = _APPROXIMATELY.split(text)
    text = parts[1] if len(parts) > 1 and _is_name(parts[0]) else parts[0]
    statements = text.split("=")
    if len(statements) > 1 and _is_name(statements[0]):
        del statements[0]
    return statements


def _split_commas(text: str) -> list[str]:
    depth, pieces = 0, [""]
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _read_statement(text: str) -> Value:
    text = text.strip()
    pieces = _split_commas(text)
    if len(pieces) == 1 and text.startswith("(") and text.endswith(")"):
        inner = _split_commas(text[1:-1])
        pieces = inner if len(inner) > 1 else pieces
    nodes: list[Node] = []
    for piece in pieces:
        terms = [read_expression(strip_unit(term)) for term in piece.split(":")]
        # A ratio of more than two numbers is told by those of neighbours.
        ratios = [divide(*pair) for pair in pairwise(terms)]
        nodes.extend(ratios or terms)
    floats = tuple(evaluate(node) for node in nodes)
    if not all(map(math.isfinite, floats)):
        raise UnreadableError("it is no finite number")
    return Value(tuple(nodes), floats)


def read_values(text: str) -> list[Value]:
    """Every value that a text states for one thing; more than one only around "=".

    Args:
        text: an answer, as written.

    Raises:
        UnreadableError: it is not a value, or more than one (say, "3 or 4").
    """
    if len(text) > MAX_LENGTH:
        raise UnreadableError(f"it has more than {MAX_LENGTH} characters")
    statements = _statements(clean(text))
    if len(statements) > MAX_STATEMENTS:
        raise UnreadableError(f"it states more than {MAX_STATEMENTS} values")
    try:
        return [_read_statement(statement) for statement in statements]
    except (ArithmeticError, ValueError) as error:
        raise UnreadableError(str(error)) from error


def read_letter(text: str) -> str | None:
    r"""The letter of a choice: B, (B), \text{B} or "B. 12"; None for anything else or two."""
    match = _LETTER.fullmatch(clean(text)) if len(text) <= MAX_LENGTH else None
    if match is None or (match[2] and _OTHER_LETTER.search(match[2])):
        return None
    return match[1]


def read_gold(gold: str) -> Gold:
    """What a gold answer says.

    Args:
        gold: a gold answer, as the data set has it.

    Raises:
        GoldError: it is empty, not text, cannot be read, or states values that contradict one
            another ("3 = 4"); the message names it.
    """
    if not isinstance(gold, str):
        raise GoldError(f"the gold answer {gold!r} is not text")
    return _read_gold(gold)


# An epoch grades each gold answer once a rollout: reading it is done once.
@lru_cache(maxsize=65536)
def _read_gold(gold: str) -> Gold:
    if not gold.strip() or gold.strip().lower() in _MISSING:
        raise GoldError(f"the gold answer {gold!r} is missing")
    letter = _GOLD_LETTER.fullmatch(clean(gold))
    if letter:
        return Gold(letter[1], None)
    try:
        values = read_values(gold)
    except UnreadableError as error:
        raise GoldError(f"the gold answer {gold!r} cannot be read: {error}") from error
    if not _agree(values):
        raise GoldError(f"the gold answer {gold!r} states values that contradict one another")
    return Gold(None, values[-1])


def _agree(values: list[Value]) -> bool:
    """Whether all values could be one, up to rounding; equations with an unknown say nothing."""
    known = [value for value in values if not any(map(has_unknown, value.nodes))]
    return all(
        len(one.floats) == len(other.floats)
        and all(
            math.isclose(*pair, rel_tol=ROUNDING, abs_tol=CLOSE)
            for pair in zip(one.floats, other.floats, strict=True)
        )
        for one, other in pairwise(known)
    )


def _is_long_decimal(node: Node) -> bool:
    return isinstance(node, Number) and node.value.denominator >= LONG_DECIMAL


def compare_values(value: Value, gold: Value) -> bool | None:
    """Whether a value equals the gold one, where arithmetic can tell; None where it cannot.

    Rational numbers are compared exactly, with one exception: a decimal of nine places or more was
    computed, not guessed, and equals what it approximates with all of them.

    Args:
        value: what an answer states.
        gold: what the gold answer says.
    """
    if len(value.nodes) != len(gold.nodes):
        return False
    undecided = False
    for node, gold_node, one, other in zip(
        value.nodes, gold.nodes, value.floats, gold.floats, strict=True
    ):
        if node == gold_node:
            continue
        if not math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE * 1e-3):
            return False
        if _is_long_decimal(node) or _is_long_decimal(gold_node):
            continue
        if isinstance(node, Number) and isinstance(gold_node, Number):
            return False
        undecided = True
    return None if undecided else True
