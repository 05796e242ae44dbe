"""The charts' lines: every arm has a colour and dash pattern of its own, light or dark."""

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest

from fastrl.report.charts import Axes, Series, line_chart

STYLE = (files("fastrl.report") / "assets" / "chart.css").read_text(encoding="utf-8")
PAGE = (files("fastrl.report") / "assets" / "page.css").read_text(encoding="utf-8")
# The three blocks of each style sheet: light, dark by the system's wish, dark by the button.
BLOCKS = (0, 1, 2)


def line_styles(num_arms: int, block: int) -> list[tuple[str, str]]:
    """Colour and dashes of each arm's line, as the style sheet has them."""
    points = np.array([0.0, 1.0])
    series = [
        Series(f"arm {number}", points, points + number, colour=number)
        for number in range(num_arms)
    ]
    svg = line_chart("Reward", series, Axes("updates", "reward"))
    lines = re.findall(r'<path class="line ([^"]+)" d="M[\d.]+ [\d.]+L', svg)
    assert len(lines) == num_arms
    return [style(classes.split(), block) for classes in lines]


def style(classes: list[str], block: int) -> tuple[str, str]:
    rules = dict(re.findall(r"\.(\w+) \{ ([^}]*) \}", STYLE.partition("svg.chart")[2]))
    told = dict(
        part.split(": ")
        for name in classes
        for part in rules.get(name, "").rstrip("; ").split("; ")
        if part
    )
    variable = re.fullmatch(r"var\(--(\w+)\)", told["stroke"])
    assert variable is not None
    return colours(STYLE, variable[1])[block], told.get("stroke-dasharray", "none")


def colours(sheet: str, name: str) -> list[str]:
    found = re.findall(rf"--{name}: (#\w+);", sheet)
    assert len(found) == len(BLOCKS)
    return found


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("block", BLOCKS)
def test_twelve_arms_have_twelve_colours_with_contrast(block: int) -> None:
    found = line_styles(12, block)
    assert len({colour for colour, _ in found}) == 12
    behind = luminance(colours(PAGE, "card")[block])
    for colour, _ in found:
        low, high = sorted((luminance(colour), behind))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_dashes_tell_lines_apart_too() -> None:
    found = line_styles(12, 0)
    assert len({dash for _, dash in found}) == 7
    for (_, one), (_, other) in itertools.pairwise(found):
        assert one != other


def test_further_arms_wrap_to_other_pairs() -> None:
    assert len(set(line_styles(40, 0))) == 40
