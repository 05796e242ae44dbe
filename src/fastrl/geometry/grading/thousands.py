r"""Tell a comma that groups the digits of a number from one that stands between values.

"1,200" is a number and "(1, 200)" a list; "(1,200)" is the same list without its space, while
"(\sqrt{3}+1,250)" is a sum in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,|\{,\}| )\d{3})+(?![\d])")
_TOKEN = re.compile(
    rf"(?P<number>{_THOUSANDS.pattern})|(?P<open>[(\[{{])|(?P<close>[)\]}}])|\\[A-Za-z]+|\S"
)
_BEHIND_SPACE = re.compile(r"\s*(\\[A-Za-z]+|\S)")
_OPERATORS = frozenset("+-*/^")
_RELATIONS = ("", *"=,:;", r"\approx", r"\simeq", r"\doteq")
# What may stand before and behind a list; anything else makes the bracket a part of a term.
_BEFORE = frozenset((*_RELATIONS, "(", "[", "'"))
_BEHIND = frozenset((*_RELATIONS, ")", "]"))


@dataclass
class _Level:
    """What stands between a bracket and its partner, deeper brackets aside."""

    opening: str = ""
    before: str = ""
    numbers: list[re.Match[str]] = field(default_factory=list)
    has_comma: bool = False
    has_operator: bool = False

    def add(self, token: re.Match[str], before: str) -> None:
        """Take in what stands at this level, behind the token `before`."""
        if token["number"]:
            self.numbers.append(token)
        self.has_comma |= token.group() == ","
        # Directly behind the bracket it is a sign.
        self.has_operator |= token.group() in _OPERATORS and before != self.opening

    def is_list(self, behind: str) -> bool:
        if self.has_comma or self.opening not in ("(", "["):
            return self.has_comma
        before_is_name = self.before.isalpha()
        return (
            not self.has_operator
            and (before_is_name or self.before in _BEFORE)
            and behind in _BEHIND
        )


def join_thousands(text: str) -> str:
    """A text without the separators inside its numbers.

    A comma separates values where another comma beside it surely does, and in round or square
    brackets that hold no sum or product and are no part of one.

    Args:
        text: a value, its delimiters and spacing commands gone.
    """
    if not _THOUSANDS.search(text):
        return text
    levels = [_Level()]
    in_list: dict[int, bool] = {}

    def finish(level: _Level, behind: str) -> None:
        is_list = level.is_list(behind)
        in_list.update((number.start(), is_list) for number in level.numbers)

    before = ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match["open"]:
            levels.append(_Level(token, before))
        elif match["close"] and len(levels) > 1:
            behind = _BEHIND_SPACE.match(text, match.end())
            finish(levels.pop(), behind[1] if behind else "")
        elif token == "=" and len(levels) == 1:
            # Each side is a statement of its own: "AB, CD = 1,200".
            finish(levels.pop(), token)
            levels.append(_Level())
        else:
            levels[-1].add(match, before)
        before = token
    while levels:
        finish(levels.pop(), "")

    def joined(number: re.Match[str]) -> str:
        separators = r"\{,\}| " if in_list[number.start()] else r"[,{} ]"
        return re.sub(separators, "", number.group())

    return _THOUSANDS.sub(joined, text)
