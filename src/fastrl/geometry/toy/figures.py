"""Plane figures with labelled lengths and angles, drawn on the fly, each with a question.

Every figure also knows the procedures that a careless student would use (the perimeter for the
area, one angle subtracted instead of two, the radius squared). The starting policy is taught a
mixture of right and wrong ones, so that choosing the right one is what reinforcement learning
has to bring out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

PICTURE_SIZE = 112  # pixels; a multiple of patch size 14 times merge size 2
LABEL_SIZE = 34  # points
LABEL_NUMBERS = (*range(2, 16), *range(20, 100, 10))  # every number that a label can show
LINE_COLOURS = ("#203a63", "#5b2a6e", "#1f5c4d", "#7a3b1d", "#444444")
FILL_COLOURS = ("#eef3fb", "#f6effa", "#ecf7f3", "#fbf3ec", "#f4f4f4")


@dataclass(frozen=True)
class Procedure:
    """One way to compute an answer from the labels: the text of the computation and its result."""

    expression: str
    result: int

    def __str__(self) -> str:
        return f"{self.expression}={self.result}"


@dataclass(frozen=True)
class Figure:
    """A picture, its question in words, and what can be computed from its labels.

    `labels` are the numbers in the picture in reading order, `label_centres` where they stand
    (x, y in pixels); `right` is the correct procedure, `wrong` the tempting ones (their results
    always differ from the right one).
    """

    family: str
    picture: Image.Image
    question: str
    labels: tuple[int, ...]
    label_centres: tuple[tuple[int, int], ...]
    right: Procedure
    wrong: tuple[Procedure, ...]

    @property
    def answer(self) -> str:
        """The correct number, as text."""
        return str(self.right.result)


class _Canvas:
    """A square picture with jittered labels, one style per picture."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        style = rng.randrange(len(LINE_COLOURS))
        self.line = LINE_COLOURS[style]
        self.fill = FILL_COLOURS[style]
        self.picture = Image.new("RGB", (PICTURE_SIZE, PICTURE_SIZE), "white")
        self.draw = ImageDraw.Draw(self.picture)
        self.font = ImageFont.load_default(size=LABEL_SIZE)
        self.labels: list[int] = []
        self.label_centres: list[tuple[int, int]] = []

    def jitter(self, value: int, by: int = 3) -> int:
        return value + self.rng.randint(-by, by)

    def label(self, x: int, y: int, number: int) -> None:
        """Write `number` centred near (x, y)."""
        centre = (self.jitter(x), self.jitter(y))
        self.draw.text(centre, str(number), fill="black", font=self.font, anchor="mm")
        self.labels.append(number)
        self.label_centres.append(centre)

    def polygon(self, points: list[tuple[int, int]]) -> None:
        self.draw.polygon(points, fill=self.fill, outline=self.line, width=3)


def _triangle(rng: random.Random) -> Figure:
    first, second = rng.choice(
        [
            (a, b)
            for a in range(20, 100, 10)
            for b in range(20, 100, 10)
            if a + b <= 160 and a + b != 90  # at 90 the sum of two angles equals the third
        ]
    )
    canvas = _Canvas(rng)
    canvas.polygon([(canvas.jitter(56, 16), canvas.jitter(9)), (5, 74), (107, 74)])
    canvas.label(28, 93, first)
    canvas.label(84, 93, second)
    question = rng.choice(
        (
            "Two angles of the triangle are given. What is the third angle?",
            "Find the third angle of the triangle.",
        )
    )
    right = Procedure(f"180-{first}-{second}", 180 - first - second)
    wrong = (
        Procedure(f"180-{first}", 180 - first),
        Procedure(f"{first}+{second}", first + second),
    )
    return _figure("triangle", canvas, question, right, wrong)


def _rectangle(rng: random.Random) -> Figure:
    # 4 x 4 and 3 x 6 have as much perimeter as area: the wrong procedure would be rewarded.
    width, height = rng.choice(
        [(w, h) for w in range(2, 10) for h in range(2, 10) if w * h not in (2 * (w + h), w + h)]
    )
    canvas = _Canvas(rng)
    corner = (canvas.jitter(40), canvas.jitter(42))
    canvas.draw.rectangle((*corner, 106, 106), fill=canvas.fill, outline=canvas.line, width=3)
    canvas.label(74, 20, width)
    canvas.label(18, 76, height)
    question = rng.choice(
        ("What is the area of the rectangle?", "Find how much area the rectangle covers.")
    )
    right = Procedure(f"{width}*{height}", width * height)
    wrong = (
        Procedure(f"2*({width}+{height})", 2 * (width + height)),
        Procedure(f"{width}+{height}", width + height),
    )
    return _figure("rectangle", canvas, question, right, wrong)


def _circle(rng: random.Random) -> Figure:
    radius = rng.randrange(3, 16)
    canvas = _Canvas(rng)
    x, y = canvas.jitter(56), canvas.jitter(56)
    canvas.draw.ellipse(
        (x - 48, y - 48, x + 48, y + 48), fill=canvas.fill, outline=canvas.line, width=3
    )
    canvas.draw.line((x, y + 14, x + 45, y + 14), fill=canvas.line, width=3)
    canvas.label(66, 44, radius)
    question = rng.choice(
        (
            "The radius of the circle is given. What is its diameter?",
            "Find the diameter of the circle.",
        )
    )
    right = Procedure(f"2*{radius}", 2 * radius)
    wrong = (
        Procedure(f"{radius}*{radius}", radius * radius),
        Procedure(f"3*{radius}", 3 * radius),
    )
    return _figure("circle", canvas, question, right, wrong)


def _parallelogram(rng: random.Random) -> Figure:
    angle = rng.randrange(30, 90, 10)
    canvas = _Canvas(rng)
    shift = canvas.jitter(24, 6)
    canvas.polygon([(4, 106), (106 - shift, 106), (107, 22), (4 + shift, 22)])
    canvas.label(48, 84, angle)
    question = rng.choice(
        (
            "One angle of the parallelogram is given. What is the angle next to it?",
            "Find the neighbouring angle in the parallelogram.",
        )
    )
    right = Procedure(f"180-{angle}", 180 - angle)
    wrong = (
        Procedure(f"90-{angle}", 90 - angle),
        Procedure(f"360-{angle}", 360 - angle),
    )
    return _figure("parallelogram", canvas, question, right, wrong)


def _figure(
    family: str,
    canvas: _Canvas,
    question: str,
    right: Procedure,
    wrong: tuple[Procedure, ...],
) -> Figure:
    labels, centres = tuple(canvas.labels), tuple(canvas.label_centres)
    return Figure(family, canvas.picture, question, labels, centres, right, wrong)


FAMILIES: dict[str, Callable[[random.Random], Figure]] = {
    "triangle": _triangle,
    "rectangle": _rectangle,
    "circle": _circle,
    "parallelogram": _parallelogram,
}


def draw_figure(seed: int | str, family: str | None = None) -> Figure:
    """Draw the figure of a seed: the same seed gives the same picture, question and answer.

    Args:
        seed: any integer or string.
        family: one of `FAMILIES`; by default the seed chooses it.

    Raises:
        ValueError: if the family is unknown.
    """
    rng = random.Random(seed)
    chosen = rng.choice(list(FAMILIES))
    if family is not None:
        chosen = family
    if chosen not in FAMILIES:
        raise ValueError(f"family: {chosen!r} is not one of {', '.join(FAMILIES)}.")
    return FAMILIES[chosen](rng)


def figures(count: int, seed: int = 0, held_out: bool = False) -> Iterator[Figure]:
    """Yield `count` figures of the training or of the held-out stream of a seed.

    The two streams never share a drawing seed. Numbers repeat between them (there are only some
    hundred combinations of labels); pictures, with their jitter and colours, do not.
    """
    stream = "held-out" if held_out else "train"
    for index in range(count):
        yield draw_figure(f"{stream}/{seed}/{index}")
