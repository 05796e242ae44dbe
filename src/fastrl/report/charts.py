"""Charts as small SVG pictures, coloured by CSS classes so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

WIDTH, PLOT_HEIGHT = 480, 210
LEFT, RIGHT, BOTTOM = 46, 14, 40
LEGEND_LINE, CHARACTER = 18, 6.8
# As many as assets/chart.css has. Without a common divisor: no two of the first 84 arms share both.
NUM_COLOURS, NUM_DASHES = 12, 7
NUM_PHASE_COLOURS = 7
LONGEST_NAME = 40
MARKS_UP_TO = 12  # points of a curve; more would hide the line

Points = npt.NDArray[np.float64]
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Series:
    """A curve of M points, with a band where low and high are given, or loose points.

    Attributes:
        name: in the legend.
        x_M, y_M: coordinates.
        low_M, high_M: the band.
        colour: number of its colour and dash pattern.
        is_scatter: points without a line.
    """

    name: str
    x_M: Points
    y_M: Points
    low_M: Points | None = None
    high_M: Points | None = None
    colour: int = 0
    is_scatter: bool = False


@dataclass(frozen=True)
class Level:
    """A height to compare with, drawn across a chart, and its name."""

    height: float
    name: str


@dataclass(frozen=True)
class Axes:
    """What the axes mean.

    Attributes:
        x, y: labels with units.
        is_share: whether y is a share, told in percent.
        from_zero: whether y starts at 0.
        level: a height to compare with.
    """

    x: str
    y: str
    is_share: bool = False
    from_zero: bool = False
    level: Level | None = None


def line_chart(title: str, series: Sequence[Series], axes: Axes) -> str:
    """Curves with bands, as one <svg>; empty text without points."""
    series = [one for one in series if len(one.x_M)]
    if not series:
        return ""
    ys = np.concatenate([v for s in series for v in (s.y_M, s.low_M, s.high_M) if v is not None])
    if axes.level is not None:
        ys = np.append(ys, axes.level.height)
    xs = np.concatenate([s.x_M for s in series])
    x_end = float(xs.max()) or 1.0
    x_ticks = [tick for tick in _ticks(0.0, x_end) if tick <= x_end]
    y_ticks = _ticks(0.0 if axes.from_zero else float(ys.min()), float(ys.max()))
    legend, top = _legend([(one.name, one.colour) for one in series])
    height = top + PLOT_HEIGHT + BOTTOM

    def px(x: float) -> float:
        return LEFT + x / x_end * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return top + PLOT_HEIGHT * (1 - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]))

    decimals = 0 if y_ticks[1] - y_ticks[0] >= 0.0099 else 1
    parts = [legend]
    for tick in y_ticks:
        label = f"{tick:.{decimals}%}" if axes.is_share else _number(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {py(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 6, py(tick) + 4, label, "end"))
    for tick in x_ticks:
        parts.append(_text(px(tick), top + PLOT_HEIGHT + 17, _number(tick), "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 6, axes.x, "middle", "label"))
    parts += [_band(one, px, py) for one in series if one.low_M is not None]
    parts += [_curve(one, px, py) for one in series]
    if axes.level is not None:
        y = py(axes.level.height)
        parts.append(f'<path class="limit" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        # Below the line at the left: curves that rise to it leave that corner free.
        parts.append(_text(LEFT + 6, y + 14, axes.level.name, "start", "label"))
    return _svg(title, f"{axes.y} against {axes.x}", height, parts)


def stacked_bars(
    title: str, bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], unit: str
) -> str:
    """Horizontal bars of stacked parts, as one <svg>; empty text without bars.

    Args:
        title: of the picture.
        bars: (label, a value per name) each.
        names: of the parts, in order.
        unit: of the values.
    """
    if not bars:
        return ""
    longest = max(sum(values) for _, values in bars) or 1.0
    used = [i for i in range(len(names)) if any(values[i] > 0.003 * longest for _, values in bars)]
    legend, top = _legend([(names[i], i) for i in used], is_swatch=True)
    row, thick = 42, 18
    height = top + row * len(bars) + 4
    scale = (WIDTH - 12 - 66) / longest
    parts = [legend]
    for number, (label, values) in enumerate(bars):
        y, x = top + row * number, 6.0
        label = _short(label)
        parts.append(_text(6, y + 12, label, "start", "label"))
        for i, value in enumerate(values):
            told = f"{label}: {names[i]} {value:.1f} {unit}, {value / max(sum(values), 1e-9):.0%}"
            parts.append(
                f'<rect class="p{i % NUM_PHASE_COLOURS}" x="{x:.1f}" y="{y + 17}" '
                f'width="{max(value * scale, 0):.1f}" height="{thick}">'
                f"<title>{escape(told)}</title></rect>"
            )
            x += value * scale
        parts.append(_text(x + 6, y + 31, f"{sum(values):.0f} {unit}", "start", "label"))
    return _svg(title, f"{title}, in {unit}", height, parts)


@dataclass(frozen=True)
class Dot:
    """A row of `dot_chart`: a value, its interval if known, and a limit if there is one."""

    label: str
    value: float
    low: float | None
    high: float | None
    limit: float | None
    colour: int


def dot_chart(title: str, dots: Sequence[Dot], axis: str, limit_name: str = "") -> str:
    """Values with intervals, one row each, beside their limit; empty text without rows.

    Args:
        title: of the picture.
        dots: the rows.
        axis: label of the values, which are ratios: the axis starts at 0, and 1 is marked.
        limit_name: what the limit is; empty without one.
    """
    if not dots:
        return ""
    row, top = 36, 30 if limit_name else 12
    end = max(max(d.value, d.high or 0, d.limit or 0, 1.0) for d in dots) * 1.04
    height = top + row * len(dots) + BOTTOM

    def px(x: float) -> float:
        return 10 + max(x, 0.0) / end * (WIDTH - 24)

    bottom = height - BOTTOM
    parts = []
    if limit_name:
        parts.append(f'<path class="limit" d="M8 4v14"/>{_text(16, 15, limit_name, "start")}')
    for tick in _ticks(0.0, end):
        if tick <= end:
            parts.append(f'<path class="grid" d="M{px(tick):.1f} {top - 4}V{bottom}"/>')
            parts.append(_text(px(tick), bottom + 16, _number(tick), "middle"))
    parts.append(f'<path class="one" d="M{px(1.0):.1f} {top - 4}V{bottom}"/>')
    for number, dot in enumerate(dots):
        y, colour = top + row * number + 22, dot.colour % NUM_COLOURS
        told = f"{_short(dot.label)}  {dot.value:.2f}x"
        if dot.low is not None and dot.high is not None:
            told += f" [{dot.low:.2f}, {dot.high:.2f}]"
            path = f"M{px(dot.low):.1f} {y}H{px(dot.high):.1f}"
            parts.append(f'<path class="bar s{colour}" d="{path}"/>')
        if dot.limit is not None:
            parts.append(f'<path class="limit" d="M{px(dot.limit):.1f} {y - 9}v18"/>')
        parts.append(f'<circle class="f{colour}" cx="{px(dot.value):.1f}" cy="{y}" r="5"/>')
        parts.append(_text(12, y - 9, told, "start", "label"))
    parts.append(_text(WIDTH / 2, height - 6, axis, "middle", "label"))
    return _svg(title, f"{axis}; {limit_name}" if limit_name else axis, height, parts)


def _band(one: Series, px: Scale, py: Scale) -> str:
    if one.low_M is None or one.high_M is None or np.array_equal(one.low_M, one.high_M):
        return ""
    upper = [f"{px(x):.1f} {py(y):.1f}" for x, y in zip(one.x_M, one.high_M, strict=True)]
    lower = [f"{px(x):.1f} {py(y):.1f}" for x, y in zip(one.x_M, one.low_M, strict=True)]
    path = "M" + "L".join([*upper, *lower[::-1]]) + "Z"
    return f'<path class="band f{one.colour % NUM_COLOURS}" d="{path}"/>'


def _curve(one: Series, px: Scale, py: Scale) -> str:
    colour = one.colour % NUM_COLOURS
    points = [(px(x), py(y)) for x, y in zip(one.x_M, one.y_M, strict=True)]
    parts = []
    if not one.is_scatter:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line {_stroke(one.colour)}" d="{path}"/>')
    if one.is_scatter or len(points) <= MARKS_UP_TO:
        for (x, y), value_x, value_y in zip(points, one.x_M, one.y_M, strict=True):
            told = escape(f"{one.name}: {_number(float(value_x))}, {float(value_y):.4g}")
            parts.append(
                f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" '
                f'r="{5 if one.is_scatter else 2.5}"><title>{told}</title></circle>'
            )
    return "".join(parts)


def _stroke(colour: int) -> str:
    """Classes of a line's colour and dash pattern."""
    return f"s{colour % NUM_COLOURS} d{colour % NUM_DASHES}"


def _legend(entries: Sequence[tuple[str, int]], is_swatch: bool = False) -> tuple[str, int]:
    """The legend, wrapped into lines, and the y below it."""
    parts, x, y = [], 6.0, 12
    for name, colour in entries:
        name = _short(name)
        width = 30 + CHARACTER * len(name) + 10
        if x > 6 and x + width > WIDTH:
            x, y = 6.0, y + LEGEND_LINE
        if is_swatch:
            mark = (
                f'<rect class="p{colour % NUM_PHASE_COLOURS}" x="{x + 10:.0f}" y="{y - 9}" '
                'width="12" height="11"/>'
            )
        else:
            mark = f'<path class="line {_stroke(colour)}" d="M{x:.0f} {y - 4}h24"/>'
        parts.append(mark + _text(x + 28, y, name, "start"))
        x += width
    return "".join(parts), y + 14


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\u2026"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(title: str, description: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(title)}"><desc>{escape(description)}</desc>'
        + "".join(parts)
        + "</svg>"
    )


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers that span [low, high]: at least two, in steps of 1, 2 or 5."""
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-300):
        pad = abs(high) / 10 or 1.0
        low, high = low - pad * (low != 0), high + pad
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"
