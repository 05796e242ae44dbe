"""Properties over golds in the forms that GeoQA and Geometry3K use."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.geometry.grading import Outcome, default_grader, equivalent, extract_answer, is_correct

NUMBERS = ["1", "7", "12", "240", "2.4", "10.8", "0.5", "3.42", "6.00", "1,250"]
UNITS = [
    "cm", "m", "mm", "km", "米", "厘米", "海里", "秒", "小时", "平方米", "平方厘米",
    "cm²", "cm^{2}", "cm^2", "cm^2^", " cm", r"\text{ cm}", r"\,\text{cm}^2", r"\mathrm{cm}^{2}",
    r"\mathrm{~m}", " meters", " square units", r"\text{ square meters}", " sq. cm", " cm squared",
    "km/h", " nautical miles", r"\text{ seconds}", " units", "（米）", " inches", "cm.",  # noqa: RUF001
]  # fmt: skip
DEGREES = ["°", r"^\circ", r"^{\circ}", r"\circ", r"^{ \circ }", " degrees", r"\text{ degrees}",
           r"\degree", "度", "º", r"^\text{o}"]  # fmt: skip


def forms(number: str) -> list[str]:
    """Golds made of a number, each as GeoQA or Geometry3K writes them."""
    return [
        number, f"√{{{number}}}", f"2√{{{number}}}", f"{number}π", rf"\frac{{{number}}}{{7}}",
        rf"\frac{{{number}√{{3}}}}{{5}}", rf"\frac{{3}}{{2}}√{{{number}}}", f"√{{2}}+{number}",
        f"(√{{3}}+{number})", f"{number}√{{2}}-2", rf"\frac {{ \sqrt {{ {number} }} }} {{ 10 }}",
        rf"{number} \sqrt {{ 3 }}", rf"{number} \pi", f"3:{number}",
    ]  # fmt: skip


GOLDS = [gold for number in NUMBERS for gold in forms(number)]
SPACES = st.sampled_from(["", " ", "  ", "\n", "\t", r"\,", r"\ ", "\u3000", "~", r"\quad "])
golds = st.sampled_from(GOLDS)


def as_latex(gold: str) -> str:
    return gold.replace("√", r"\sqrt").replace("π", r"\pi ")


def test_a_sweep_over_golds_has_no_false_negative() -> None:
    suffixes = ["", *UNITS, *DEGREES]
    missed = [
        (gold, suffix)
        for gold, suffix in itertools.product(GOLDS, suffixes)
        if not (
            is_correct(rf"\boxed{{{as_latex(gold)}{suffix}}}", gold)
            and is_correct(rf"\boxed{{{as_latex(gold)}}}", gold + suffix)
        )
    ]
    assert missed == []
    assert len(GOLDS) * len(suffixes) == 140 * 44


def test_different_golds_are_never_taken_for_one_another() -> None:
    values = ["1", "2", "10", "10√{2}", "10√{3}", "10π", r"\frac{10}{3}", r"\frac{10√{2}}{3}",
              "0.1", "√{10}", "√{10}+1", "√{10}-1", "10:7", "-10", "100", "1.0001"]  # fmt: skip
    taken = [
        (answer, gold)
        for answer, gold in itertools.permutations(values, 2)
        if default_grader().compare(answer, gold) is not Outcome.WRONG
    ]
    assert taken == []


def test_near_misses_of_every_gold_are_wrong() -> None:
    changes = ["{}√{{2}}", "-{}", "{}0", "{}^2", "{}π", "1+{}", "{},{}", "{} or {}", "{};{}"]
    taken = [
        (gold, change)
        for gold, change in itertools.product(GOLDS, changes)
        if not (gold.startswith("3:") or equivalent(gold, "1"))
        and equivalent(change.format(*[f"({gold})"] * 2), gold)
    ]
    assert taken == []


@settings(deadline=None)
@given(golds)
def test_grading_is_reflexive(gold: str) -> None:
    assert equivalent(gold, gold)
    assert equivalent(as_latex(gold), gold)


@settings(deadline=None)
@given(golds, st.sampled_from(UNITS + DEGREES), golds)
def test_a_unit_or_degree_mark_changes_nothing(gold: str, mark: str, answer: str) -> None:
    verdict = equivalent(answer, gold)
    assert equivalent(answer + mark, gold) is verdict
    assert equivalent(answer, gold + mark) is verdict
    assert equivalent(answer + mark, gold + mark) is verdict


@settings(deadline=None)
@given(st.data())
def test_whitespace_changes_nothing(data: st.DataObject) -> None:
    tokens = data.draw(
        st.sampled_from(
            [
                ["5", r"\sqrt", "{", "3", "}"],
                [r"\frac", "{", "2", r"\sqrt", "{", "5", "}", "}", "{", "5", "}"],
                ["x", "=", "12", r"\pi ", "cm", "^", "{", "2", "}"],
                ["(", r"\sqrt", "{", "3", "}", "+", "1", ")", "小时"],
                ["3", ":", "4"],
                ["140", "°"],
            ]
        )
    )
    gaps = data.draw(st.lists(SPACES, min_size=len(tokens) + 1, max_size=len(tokens) + 1))
    spaced = gaps[0] + "".join(token + gap for token, gap in zip(tokens, gaps[1:], strict=True))
    assert equivalent(spaced, "".join(tokens))


TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[A-Za-z]+|\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?|.", re.DOTALL)
MARKS = ["", *UNITS, *DEGREES]
CHANGES = ["{0}", "({0})", "x = {0}", "-{0}", "1+{0}", "{0}0", "{0}^2", "{0}π", "{0},{0}",
           "({0},{0})", "({0}),({0})", "{0};{0}", "{0} or {0}", "{0}=7", "(1,200)", "(1, 200)",
           "[{0},2]", "面积={0}", "{0}:{0}"]  # fmt: skip


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_whitespace_between_tokens_never_changes_a_verdict(data: st.DataObject) -> None:
    gold = data.draw(golds)
    change = data.draw(st.sampled_from(CHANGES))
    answer = change.format(data.draw(st.sampled_from([gold, data.draw(golds)])))
    answer += data.draw(st.sampled_from(MARKS))
    tokens = TOKEN.findall(answer)
    gaps = data.draw(st.lists(SPACES, min_size=len(tokens) + 1, max_size=len(tokens) + 1))
    spaced = gaps[0] + "".join(token + gap for token, gap in zip(tokens, gaps[1:], strict=True))
    grader = default_grader()
    assert grader.compare(spaced, gold) is grader.compare(answer, gold)
    # Neither does it inside a gold, for as long as it is one.
    if change == "{0}":
        assert grader.compare(gold, spaced) is grader.compare(gold, answer)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), golds)
def test_arbitrary_bytes_never_raise(data: bytes, gold: str) -> None:
    for encoding in ("latin-1", "utf-8"):
        text = data.decode(encoding, errors="surrogateescape")
        assert isinstance(is_correct(text, gold), bool)
        assert isinstance(is_correct(rf"\boxed{{{text}}}", gold), bool)


SYNTAX = st.lists(
    st.sampled_from(
        [r"\frac", r"\sqrt", r"\pi", r"\sin", "{", "}", "(", ")", "[", "]", "^", "_", "°", "%", "!",
         "+", "-", "*", "/", ":", ",", "=", "1", "0", "9", ".", "x", "e", " ", r"\approx", "$",
         "\\", r"\text{", "cm", r"\angle", "'", "<thinking>", "</thinking>", r"\boxed{", "²", "√",
         "\uff19", "\x00", "\ud800", "٣"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(SYNTAX, st.sampled_from(["5", "5√{3}", "A", "0", r"\frac{1}{x}"]))
def test_arbitrary_syntax_never_raises(text: str, gold: str) -> None:
    assert isinstance(equivalent(text, gold), bool)
    assert isinstance(is_correct(text, gold), bool)
    assert extract_answer(text) is None or isinstance(extract_answer(text), str)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 900, "-" * 900, "√" * 900, "2^" * 400 + "2", r"\frac" * 150, r"\sin" * 200,
        "9" * 900, "9^{999}" * 100, "1" + "+x" * 400, "x" * 900, "A, " * 300, "1=" * 400,
        "_" * 900, "_a" * 400, "{" * 900, "a" * 100_000, " " * 100_000, "1 " * 400, r"\text{" * 150,
        r"\frac{" + "9" * 900 + "}{" + "7" * 90 + "}", "(9^{400})/(9^{400}-1)" * 20,
        "1" * 400 + "cm", r"\sqrt{2}\cdot 9^{400}/9^{399}" * 20,
        "5" + " " * 900 + "x", "°" * 900, "%" * 900,
    ],
)  # fmt: skip
def test_long_or_deep_answers_are_wrong_and_quick(text: str) -> None:
    assert default_grader().compare(text, "5") is Outcome.WRONG
    assert default_grader().compare(text, r"5\sqrt{3}") is Outcome.WRONG
    assert default_grader().compare(text, "B") is Outcome.WRONG
