"""Bring the many ways to write one value to one notation, which `reading` can read.

Cleaning drops what carries no value (math delimiters, spacing, markdown, units, thousands
separators) and keeps everything else, so that a text which is more than a value stays unreadable.
"""

from __future__ import annotations

import re

from .thousands import join_thousands

_CHARACTERS = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
        **dict.fromkeys("\u3000\u00a0\u2009\u202f~", " "),
        **dict.fromkeys("\u200b\ufeff`", ""),
        **dict.fromkeys("−–—﹣", "-"),  # noqa: RUF001
        **dict.fromkeys("×✕·⋅∙", "*"),  # noqa: RUF001
        **dict.fromkeys("÷⁄∕", "/"),  # noqa: RUF001
        **dict.fromkeys("º˚∘", "°"),
        **dict.fromkeys("′’", "'"),  # noqa: RUF001
        "∶": ":",  # noqa: RUF001
        "。": ".",
        "、": ",",
        "√": r"\sqrt ",
        "∛": r"\sqrt[3]",
        "π": r"\pi ",
        "𝜋": r"\pi ",
        "²": "^{2}",
        "³": "^{3}",
        "½": r"\frac{1}{2}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "≈": r"\approx ",
        "∠": r"\angle ",
        "△": r"\triangle ",
        "㎜": "mm",
        "㎝": "cm",
        "㎞": "km",
        "㎠": "cm^{2}",
        "㎡": "m^{2}",
    }
)
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc"
# In order: a later rule may count on an earlier one.
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[,;!: \n()\[\]$]|\\\\|\\$|\$", " "),
        (
            r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|quad|qquad|rm|bf)(?![A-Za-z])",
            " ",
        ),
        (
            r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit|mathsf|operatorname|mbox)"
            r"\s*\{([^{}]*)\}",
            r" \1 ",
        ),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:cdot|times|ast)(?![A-Za-z])", "*"),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\colon(?![A-Za-z])", ":"),
        (r"\\prime(?![A-Za-z])", "'"),
        (r"\\%|(?<![A-Za-z\\])percent(?![A-Za-z])", "%"),
        (r"(?<![A-Za-z\\])a(sin|cos|tan)(?![A-Za-z])", r"\\arc\1 "),
        (rf"(?<![A-Za-z\\])(sqrt|pi|frac|{_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
        (r"\\(?:circ|degrees?)(?![A-Za-z])", "°"),
        (r"(?<![A-Za-z\\])(?:degrees?|deg)(?![A-Za-z])|(?<!角)度", "°"),
        (r"\^\s*(?:\{\s*[°o]\s*\}|°|o(?![A-Za-z]))", "°"),
        (r"\^\s*(?:\{\s*'\s*\}|')", "'"),
        (r"(?<!\d)(\d+)\s*°\s*(\d+)\s*'", r"(\1+\2/60)°"),
        (r"\*\*", "^"),
    )
)
_GAP_IN_CHINESE = re.compile(r"(?<=[\u4e00-\u9fff])\s+(?=[\u4e00-\u9fff])")

# Single letters and short names in lower case only: M and S may be unknowns.
_UNIT_WORDS = (
    r"(?i:kilomet(?:er|re)s?|centimet(?:er|re)s?|millimet(?:er|re)s?|decimet(?:er|re)s?"
    r"|met(?:er|re)s?|inch(?:es)?|feet|foot|yards?|nautical\s+miles?|miles?|units?"
    r"|seconds?|secs?|minutes?|mins?|hours?|hrs?)"
    r"|km|cm|mm|dm|in|ft|yd|mi|m|s"
    r"|厘米|毫米|分米|千米|公里|海里|米|单位|小时|分钟|秒"
)
_UNIT = (
    r"(?:(?:[Ss]quare|[Ss]q|[Cc]ubic|平方|立方)\s*\.?\s*)?"
    rf"(?:{_UNIT_WORDS})"
    r"(?:\s+(?:squared|cubed))?"
    # "12 cm2" has an exponent, "5 m 3" a second number.
    r"(?:(?:\s*\^\s*)?(?:\{\s*[23]\s*\}|[23])(?:\s*\^)?)?"
)
_UNITS = rf"{_UNIT}(?:\s*(?:/|per)\s*(?:{_UNIT}|h))?"
_TRAILING_UNIT = re.compile(
    rf"(?:(?<=\\pi)|(?<=[\d)}}\]°.]))\s*(?:{_UNITS}|\(\s*{_UNITS}\s*\))\s*\.?\s*$"
)


def _one_space(text: str) -> str:
    return " ".join(text.split())


def clean(text: str) -> str:
    r"""One notation for a value as written by people, data sets and models.

    Args:
        text: an answer or a gold answer.

    Returns:
        The same value in LaTeX's \frac, \sqrt and \pi with *, / and ^, degrees as a degree sign,
        ratios with a colon, without delimiters, spacing commands, markdown and thousands
        separators. Units are left to `strip_unit`, which wants one value at a time.
    """
    # Runs of spaces would take the patterns, which allow some nearly anywhere, quadratic time.
    text = _one_space(text.translate(_CHARACTERS)).strip("*").strip()
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    # What a sentence leaves behind would make a list of a number: "1,200,".
    text = _GAP_IN_CHINESE.sub("", _one_space(text)).rstrip(' .,;*"')
    return join_thousands(text)


def strip_unit(text: str) -> str:
    """A cleaned value without the unit behind it; units are dropped, never converted."""
    return _TRAILING_UNIT.sub("", text, count=1).rstrip(" .,")
