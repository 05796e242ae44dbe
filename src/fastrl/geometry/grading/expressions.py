r"""Read a cleaned value into a small expression tree, evaluate it, and write it as plain LaTeX.

The reader takes a whole text or none of it, so a value with words around it, or two values, is
unreadable. Rational arithmetic is folded exactly while reading; products and sums are flat and
sorted, so 5\sqrt{3}, \sqrt{3}*5 and 10\sqrt{3}/2 give the same tree.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

MAX_DEPTH = 40
MAX_BITS = 4096


class UnreadableError(ValueError):
    """The text is not one value in the notation that the grader reads."""


@dataclass(frozen=True)
class Number:
    """An exact rational number."""

    value: Fraction


@dataclass(frozen=True)
class Symbol:
    """Pi, or an unknown: a letter, or a Greek letter by its LaTeX name."""

    name: str


@dataclass(frozen=True)
class Sum:
    """Terms added up, sorted."""

    terms: tuple[Node, ...]


@dataclass(frozen=True)
class Product:
    """Factors multiplied, a number first, the rest sorted."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Quotient:
    """A division whose denominator is no plain number."""

    numerator: Node
    denominator: Node


@dataclass(frozen=True)
class Power:
    """A power; roots are powers with the exponent 1 / index."""

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Call:
    """A trigonometric function, its argument in radians."""

    function: str
    argument: Node


Node = Number | Symbol | Sum | Product | Quotient | Power | Call

PI = Symbol("pi")
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "cot": lambda angle: 1 / math.tan(angle),
    "sec": lambda angle: 1 / math.cos(angle),
    "csc": lambda angle: 1 / math.sin(angle),
    "arcsin": math.asin,
    "arccos": math.acos,
    "arctan": math.atan,
}
_GREEK = ("alpha", "beta", "gamma", "theta", "phi", "varphi", "omega", "lambda", "mu")


def number(value: int | str | Fraction) -> Number:
    """An exact number from an int, a decimal as text, or a fraction."""
    return Number(Fraction(value))


def _folded(value: Fraction) -> Number:
    # Python refuses to print integers of more than 4,300 digits; no answer comes near.
    if max(abs(value.numerator), value.denominator).bit_length() > 2 * MAX_BITS:
        raise UnreadableError("a number in it is too long")
    return Number(value)


def add(terms: Iterable[Node]) -> Node:
    """The sum of some terms, numbers folded into one."""
    constant, rest = Fraction(0), []
    for term in terms:
        for part in term.terms if isinstance(term, Sum) else (term,):
            if isinstance(part, Number):
                constant += part.value
            else:
                rest.append(part)
    parts: list[Node] = sorted(rest, key=repr)
    if constant or not parts:
        parts.insert(0, _folded(constant))
    return parts[0] if len(parts) == 1 else Sum(tuple(parts))


def multiply(factors: Iterable[Node]) -> Node:
    """The product of some factors, numbers folded into one."""
    coefficient, rest = Fraction(1), []
    for factor in factors:
        for part in factor.factors if isinstance(factor, Product) else (factor,):
            if isinstance(part, Number):
                coefficient *= part.value
            else:
                rest.append(part)
    parts: list[Node] = sorted(rest, key=repr)
    if coefficient != 1 or not parts:
        parts.insert(0, _folded(coefficient))
    return parts[0] if len(parts) == 1 else Product(tuple(parts))


def divide(numerator: Node, denominator: Node) -> Node:
    """A quotient; a numeric denominator becomes a coefficient.

    Raises:
        UnreadableError: the denominator is 0.
    """
    if not isinstance(denominator, Number):
        return Quotient(numerator, denominator)
    if denominator.value == 0:
        raise UnreadableError("it divides by zero")
    return multiply((Number(1 / denominator.value), numerator))


def power(base: Node, exponent: Node) -> Node:
    """A power, folded where base and result are rational and of a sane size.

    Raises:
        UnreadableError: 0 to a negative power.
    """
    if not isinstance(exponent, Number):
        return Power(base, exponent)
    if exponent.value == 1:
        return base
    if not isinstance(base, Number):
        return Power(base, exponent)
    if base.value == 0 and exponent.value < 0:
        raise UnreadableError("it divides by zero")
    if exponent.value.denominator == 1:
        size = max(abs(base.value.numerator), base.value.denominator).bit_length()
        if abs(exponent.value) * size <= MAX_BITS:
            return Number(base.value ** int(exponent.value))
    elif exponent.value == Fraction(1, 2) and base.value >= 0:
        roots = math.isqrt(base.value.numerator), math.isqrt(base.value.denominator)
        root = Fraction(*roots)
        if root * root == base.value:
            return Number(root)
    return Power(base, exponent)


def evaluate(node: Node) -> float:
    """The value of an expression as a float; unknowns get arbitrary fixed values.

    Two expressions with different values are different; the reverse is for a symbolic check.

    Raises:
        ArithmeticError, ValueError: it has no finite real value.
    """
    if isinstance(node, Number):
        return float(node.value)
    if isinstance(node, Symbol):
        return math.pi if node == PI else 1.1 + zlib.crc32(node.name.encode()) / 2**32
    if isinstance(node, Sum):
        return math.fsum(map(evaluate, node.terms))
    if isinstance(node, Product):
        return math.prod(map(evaluate, node.factors))
    if isinstance(node, Quotient):
        return evaluate(node.numerator) / evaluate(node.denominator)
    if isinstance(node, Power):
        result = evaluate(node.base) ** evaluate(node.exponent)
        if isinstance(result, complex):
            raise ValueError("a root of a negative number")
        return float(result)
    return _FUNCTIONS[node.function](evaluate(node.argument))


def to_latex(node: Node) -> str:
    """An expression as LaTeX in which every grouping is explicit."""
    if isinstance(node, Number):
        top, bottom = node.value.numerator, node.value.denominator
        sign = "-" if top < 0 else ""
        return f"{sign}{abs(top)}" if bottom == 1 else rf"{sign}\frac{{{abs(top)}}}{{{bottom}}}"
    if isinstance(node, Symbol):
        return node.name if len(node.name) == 1 else rf"\{node.name}"
    if isinstance(node, Sum):
        return " + ".join(f"({to_latex(term)})" for term in node.terms)
    if isinstance(node, Product):
        return r" \cdot ".join(f"({to_latex(factor)})" for factor in node.factors)
    if isinstance(node, Quotient):
        return rf"\frac{{{to_latex(node.numerator)}}}{{{to_latex(node.denominator)}}}"
    if isinstance(node, Power):
        if node.exponent == number(Fraction(1, 2)):
            return rf"\sqrt{{{to_latex(node.base)}}}"
        return rf"({to_latex(node.base)})^{{{to_latex(node.exponent)}}}"
    return rf"\{node.function}({to_latex(node.argument)})"


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
        if name in _FUNCTIONS:
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
