"""Read a cleaned value into an expression tree: a whole text or none of it.

A value with words around it, or two values, is unreadable.
"""

from __future__ import annotations

import re
from fractions import Fraction

from .expressions import (
    FUNCTIONS,
    PI,
    Call,
    Node,
    Symbol,
    UnreadableError,
    add,
    divide,
    multiply,
    number,
    power,
)

MAX_DEPTH = 40

_GREEK = ("alpha", "beta", "gamma", "theta", "phi", "varphi", "omega", "lambda", "mu")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+", re.ASCII)
_DIGIT = re.compile(r"\d", re.ASCII)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_LETTERS = re.compile(r"[A-Za-z]+")
_MIXED = re.compile(
    r"(\d+)\s*\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))", re.ASCII
)
_SHORT_WORDS = ("or", "no", "is", "km", "cm", "mm", "dm", "in", "ft")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.in_angle = False

    def peek(self) -> str:
        self.position = self._match(_SPACE).end()
        return self.text[self.position : self.position + 1]

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise UnreadableError(f"nothing to read at {self.text[self.position :][:20]!r}")
        return match

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = self._match(pattern)
        self.position = match.end()
        return match

    def accept(self, characters: str) -> str:
        character = self.peek()
        if not character or character not in characters:
            return ""
        self.position += 1
        return character

    def sum(self) -> Node:
        sign = self.accept("+-")
        terms = [self.signed(sign, self.term())]
        while sign := self.accept("+-"):
            terms.append(self.signed(sign, self.term()))
        return add(terms)

    @staticmethod
    def signed(sign: str, node: Node) -> Node:
        return multiply((number(-1), node)) if sign == "-" else node

    def term(self) -> Node:
        above: list[Node] = [self.factor()]
        below: list[Node] = []
        while character := self.peek():
            if operator := self.accept("*/"):
                sign = self.accept("+-")
                (above if operator == "*" else below).append(self.signed(sign, self.factor()))
            elif character in "({\\" or character.isalpha():
                above.append(self.factor())
            else:
                break
        return divide(multiply(above), multiply(below)) if below else multiply(above)

    def factor(self) -> Node:
        node = self.mixed_number() or self.primary()
        while mark := self.accept("^°%"):
            if mark == "^":
                node = power(node, self.exponent())
            elif mark == "%":
                node = divide(node, number(100))
            else:
                node = self.degrees(node)
        return node

    def degrees(self, node: Node) -> Node:
        # An angle is told in degrees with or without the mark; only a function needs radians.
        return multiply((node, number(Fraction(1, 180)), PI)) if self.in_angle else node

    def mixed_number(self) -> Node | None:
        self.peek()
        mixed = _MIXED.match(self.text, self.position)
        if mixed is None:
            return None
        whole, top, bottom = mixed[1], mixed[2] or mixed[3], mixed[4] or mixed[5]
        if not 0 < int(top) < int(bottom):
            return None
        self.position = mixed.end()
        return number(int(whole) + Fraction(int(top), int(bottom)))

    def exponent(self) -> Node:
        self.deepen()
        node = self.signed(self.accept("+-"), self.primary())
        if self.accept("^"):
            node = power(node, self.exponent())
        self.depth -= 1
        return node

    def deepen(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("it is nested too deeply")

    def primary(self) -> Node:
        self.deepen()
        character = self.peek()
        if character in _CLOSING:
            node = self.group()
        elif character == "\\":
            node = self.command()
        elif character.isascii() and character.isalpha():
            node = self.letter()
        else:
            node = number(self.take(_NUMBER).group())
        self.depth -= 1
        return node

    def group(self) -> Node:
        closing = _CLOSING[self.accept("([{")]
        node = self.sum()
        if not self.accept(closing):
            raise UnreadableError(f"a {closing!r} is missing")
        return node

    def letter(self) -> Node:
        letters = self._match(_LETTERS).group()
        # Two letters may be a product of two lengths; more are a word.
        if len(letters) > 2 or letters.lower() in _SHORT_WORDS:
            raise UnreadableError(f"{letters!r} is a word")
        self.position += 1
        return Symbol(letters[0])

    def command(self) -> Node:
        name = self.take(_COMMAND).group(1)
        if name == "frac":
            return divide(self.argument(digits=_DIGIT), self.argument(digits=_DIGIT))
        if name == "sqrt":
            index = self.group() if self.peek() == "[" else number(2)
            return power(self.argument(digits=_NUMBER), divide(number(1), index))
        if name in FUNCTIONS:
            return self.call(name)
        if name == "pi" or name in _GREEK:
            return Symbol(name)
        raise UnreadableError(rf"\{name} is not known")

    def argument(self, digits: re.Pattern[str]) -> Node:
        if self.peek().isdigit():
            return number(self.take(digits).group())
        return self.primary()

    def call(self, name: str) -> Node:
        exponent = self.exponent() if self.accept("^") else number(1)
        outer, self.in_angle = self.in_angle, not name.startswith("arc")
        if self.peek() in ("(", "{"):
            argument = self.group()  # and no power: sin(x)^2 is the square of the sine
            if self.accept("°"):
                argument = self.degrees(argument)
        else:
            factors = [self.factor()]
            while self.peek().isalpha() or self.text.startswith(r"\pi", self.position):
                factors.append(self.factor())
            argument = multiply(factors)
        self.in_angle = outer
        return power(Call(name, argument), exponent)


def read_expression(text: str) -> Node:
    """The expression that a whole cleaned text spells.

    Args:
        text: a value as `cleaning.clean` and `cleaning.strip_unit` leave it.

    Raises:
        UnreadableError: it is not exactly one expression; the message says where.
    """
    reader = _Reader(text)
    node = reader.sum()
    if reader.peek():
        raise UnreadableError(f"something follows at {text[reader.position :][:20]!r}")
    return node
