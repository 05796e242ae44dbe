r"""Small expression trees: build them, evaluate them, and write them as plain LaTeX.

Rational arithmetic is folded exactly while building; products and sums are flat and sorted, so
5\sqrt{3}, \sqrt{3}*5 and 10\sqrt{3}/2 give the same tree.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

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
FUNCTIONS: dict[str, Callable[[float], float]] = {
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
    return FUNCTIONS[node.function](evaluate(node.argument))


def has_unknown(node: Node) -> bool:
    """Whether an expression holds a symbol other than pi."""
    if isinstance(node, Symbol):
        return node != PI
    if isinstance(node, Sum):
        return any(map(has_unknown, node.terms))
    if isinstance(node, Product):
        return any(map(has_unknown, node.factors))
    if isinstance(node, Quotient):
        return has_unknown(node.numerator) or has_unknown(node.denominator)
    if isinstance(node, Power):
        return has_unknown(node.base) or has_unknown(node.exponent)
    return isinstance(node, Call) and has_unknown(node.argument)


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
