"""What counts as equal, case by case. Every case goes through the public functions."""

from __future__ import annotations

import pytest

from fastrl.geometry.grading import GoldError, Outcome, default_grader, equivalent, is_correct

EQUAL = [
    # other graders called these unequal
    ("58°", "58"),
    ("5√3", r"5\sqrt{3}"),
    ("9π", r"9\pi"),
    (r"50\%", "0.5"),
    (r"12\,\text{cm}^2", "12"),
    ("12 cm2", "12"),
    ("12m3", "12"),
    ("12 cm ^ {2}", "12"),
    ("12 cm^2^", "12"),
    ("3:4", "3/4"),
    (r"\text{13}", "13"),
    ("13**", "13"),
    ("**13**", "13"),
    # forms of numbers
    ("1,000", "1000"),
    (r"1{,}000", "1000"),
    (r"1\,000", "1000"),
    ("1,234,567.5", "1234567.5"),
    ("6.0", "6"),
    ("6", "6.00米"),
    ("+5", "5"),
    ("−5", "-5"),  # noqa: RUF001
    (".5", "0.5"),
    ("5.", "5"),
    ("１２．５", "12.5"),  # noqa: RUF001
    ("1/2", "0.5"),
    (r"\frac12", "0.5"),
    (r"\dfrac{1}{2}", r"\frac{2}{4}"),
    ("½", r"\frac{1}{2}"),
    (r"1\frac{1}{2}", "1.5"),
    (r"1\frac12", "1.5"),
    ("2^{3}", "8"),
    ("2**3", "8"),
    ("50%", r"50\%"),
    # computed to the last digit
    ("1.3333333333333333", r"\frac{4}{3}"),
    ("0.3333333333333333", "1/3"),
    ("8.660254037844386", "5√{3}"),
    ("8.66025403784", "5√{3}"),
    (r"\frac{1}{3}", "0.3333333333333333"),
    (r"\frac{\pi}{3}", "1.0471975511965976"),
    # names, chains, remarks, ratios
    ("x = 20", "20"),
    ("20", "x = 20"),
    (r"\angle ABC = 20^\circ", "20°"),
    (r"m\angle 1 = 20", "20"),
    (r"S_{\triangle ABC} = 6", "6"),
    (r"\tan A = \frac{3}{4}", "0.75"),
    (r"\frac{AB}{CD} = \frac{3}{4}", "3:4"),
    (r"AB = \frac{48}{4} = 12", "12"),
    ("面积 = 12", "12"),
    (r"5\sqrt{3} \approx 8.66", r"5\sqrt{3}"),
    (r"x \approx 8.66", "8.66"),
    ("6:8", "3:4"),
    ("2:4:6", "1:2:3"),
    (r"1:\sqrt{3}", r"\frac{1}{\sqrt{3}}"),
    ("(1, 2)", "1,2"),
    # a comma in a list separates, one in a number does not
    ("(1,200)", "(1, 200)"),
    ("(1, 200)", "(1,200)"),
    (r"P = \left( 1,200 \right)", "(1, 200)"),
    ("(-1,200)", "(-1, 200)"),
    ("(1,250,3)", "(1, 250, 3)"),
    ("1,250, 3", "1, 250, 3"),
    (r"(\sqrt 3,250)", r"(\sqrt{3}, 250)"),
    (r"(1{,}200, 3)", "(1200, 3)"),
    (r"(√{3}+1,250)", "√{3}+1250"),
    ("2+(1,250)", "1252"),
    ("(1,250)+2", "1252"),
    ("2*(1,250)", "2500"),
    ("((1,250)-50)/2", "600"),
    ("√{1,250}", "√{1250}"),
    (r"\sqrt(1,600)", "40"),
    ("(1,250)cm", "1250"),
    ("1,200,", "1200"),
    ("1,200，", "1200"),  # noqa: RUF001
    ("AB, CD = 1,200", "1200"),
    ("x = 1,200 = 1,200", "1200"),
    ("40 海 里", "40海里"),
    ("16 平 方 厘 米", "16"),
    ("面 积 = 12", "12"),
    # degrees
    (r"58^\circ", "58"),
    (r"58^{\circ}", "58"),
    (r"58\circ", "58"),
    (r"58^o", "58"),
    (r"58\degree", "58"),
    ("58 degrees", "58"),
    (r"58\text{ degrees}", "58"),
    ("58度", "58"),
    ("58", "58°"),
    ("58º", "58˚"),
    (r"22^\circ 30'", "22.5°"),
    (r"180^\circ - 40^\circ", "140°"),
    # roots and pi
    (r"2*sqrt(5)/5", "2√5/5"),
    (r"\sqrt(3)", "√3"),
    (r"5 \sqrt { 3 }", "5√{3}"),
    (r"\sqrt{3}\cdot 5", "5√{3}"),
    (r"10√{3}/2", "5√{3}"),
    (r"\frac{3}{2}√{3}", r"\frac{3\sqrt{3}}{2}"),
    (r"\sqrt3 + 1", "(√{3}+1)小时"),
    (r"\sqrt{16}", "4"),
    ("3.5pi", r"\frac{7}{2}\pi"),
    (r"\frac{\pi}{6}", r"\frac{1}{6}π"),
    # delimiters
    ("$5$", "5"),
    (r"\(5\)", "5"),
    (r"\left(5\right)", "5"),
    (r"\displaystyle\frac{1}{2}", "0.5"),
    ("`5`", "5"),
    (r"\\frac{1}{2}", "0.5"),
    # choices
    ("B", "B"),
    (r"\text{B}", "B"),
    ("(B)", "B"),
    ("B.", "B"),
    ("B. 12", "B"),
    ("(B) 12", "B"),
    ("B: AB = 12", "B"),
    (r"\mathrm{B}", "(B)"),
]
EQUAL_BY_SYMBOLIC_CHECK = [
    (r"\sqrt{48}", r"4\sqrt{3}"),
    (r"\frac{2}{\sqrt{5}}", r"\frac{2√{5}}{5}"),
    (r"2(\sqrt{2} - 1)", "2√{2}-2"),
    (r"\sqrt[3]{2}\cdot\sqrt[3]{4}", "2"),
    (r"20\sin 30°", "10"),
    (r"4\sin(60°)^2", "3"),
    (r"4\sin^2 60^\circ", "3"),
    (r"4\sin(60)°^2", "3"),
    (r"2\cos 45^\circ", r"\sqrt{2}"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"(x+1)^2", "x^2 + 2x + 1"),
    (r"\sqrt{3}\pi", r"\frac{3\pi}{\sqrt{3}}"),
]
UNEQUAL = [
    ("10", "10√{2}"),
    ("10√{2}", "10"),
    ("4", r"4\sqrt{2}"),
    ("$4$", r"$4\sqrt{2}$"),
    (r"4\sqrt(2)", "4"),
    ("8.66", "5√{3}"),
    ("8.660254", "5√{3}"),
    ("8.66025404784", "5√{3}"),
    ("0.333333", r"\frac{1}{3}"),
    ("1", "1.00000001"),
    ("1.00000001", "1"),
    ("3.14", r"\pi"),
    (r"50\%", "50"),
    ("50", r"50\%"),
    ("5", "-5"),
    (r"\pm 5", "5"),
    ("5!", "5"),
    ("5^", "5"),
    ("0.5", "5"),
    ("15", "5"),
    ("1 2", "12"),
    ("5000", "5"),
    (r"5^\circ C", "5"),
    ("60 rad", "60°"),
    # a digit after a unit is its exponent only where nothing stands between
    ("5 m 3", "5"),
    ("5 in 2", "5"),
    ("12 cm 2", "12"),
    ("12 cm {2}", "12"),
    ("12 square m 2", "12"),
    # many answers
    ("3, 4", "3"),
    ("3, 4", "4"),
    ("3; 4", "4"),
    ("3 4", "4"),
    ("3 or 4", "4"),
    (r"3 \text{ or } 4", "3"),
    ("3 and 4", "3"),
    ("3 = 4", "3"),
    ("3 = 4", "4"),
    ("x = 3 = 4", "4"),
    (r"\{3, 4\}", "3"),
    ("[3, 4]", "4"),
    ("(3, 4)", "4"),
    ("(1,200)", "1200"),
    ("(1,200)", "1,200"),
    ("x = (1,200)", "1200"),
    ("[1,200]", "1200"),
    ("1,200, 3", "1200"),
    ("0, 1, 2, 3, 4, 5", "5"),
    ("3 ≤ x ≤ 4", "3"),
    # more than the value, or not the value
    ("the answer is 5", "5"),
    ("5 apples", "5"),
    ("fifty", "50"),
    ("2x = 20", "20"),
    ("x^2 = 20", "20"),
    ("-x = 20", "20"),
    (r"\sqrt{x} = 20", "20"),
    ("5 cm and", "5"),
    ("", "5"),
    (" ", "5"),
    ("None", "5"),
    ("cm", "5"),
    ("°", "5"),
    ("=", "5"),
    (r"\frac{5}{}", "5"),
    (r"\frac{5}{0}", "5"),
    ("5/0", "5"),
    ("0^{-1}", "5"),
    (r"\sqrt{-25}", "5"),
    (r"\tan 90^\circ + 5", "5"),
    ("9^{9^{9^{9}}}", "5"),
    ("1:2:4", "1:2:3"),
    ("2:1", "1:2"),
    # choices
    ("A", "B"),
    ("b", "B"),
    ("B, C", "B"),
    ("B or C", "B"),
    ("B. C", "B"),
    ("B. 12 C. 13", "B"),
    ("AB", "B"),
    ("12", "B"),
    ("ABCD", "B"),
    ("", "B"),
    ("B. 12", "12"),
]


@pytest.mark.parametrize(("answer", "gold"), EQUAL)
def test_equal_by_arithmetic_alone(answer: str, gold: str) -> None:
    before = default_grader().counts.symbolic
    assert equivalent(answer, gold)
    assert is_correct(rf"so \boxed{{{answer}}}", gold)
    assert default_grader().counts.symbolic == before


@pytest.mark.parametrize(("answer", "gold"), EQUAL_BY_SYMBOLIC_CHECK)
def test_equal_by_the_symbolic_check(answer: str, gold: str) -> None:
    before = default_grader().counts
    assert equivalent(answer, gold)
    assert equivalent(gold, answer)
    after = default_grader().counts
    assert after.symbolic == before.symbolic + 2
    assert (after.timeouts, after.errors) == (before.timeouts, before.errors)


@pytest.mark.parametrize(("answer", "gold"), UNEQUAL)
def test_unequal(answer: str, gold: str) -> None:
    outcome = default_grader().compare(answer, gold)
    assert outcome is Outcome.WRONG
    assert not is_correct(rf"so \boxed{{{answer}}}", gold)


@pytest.mark.parametrize(
    "gold",
    [
        "", " ", "\n", "None", "N/A", "?", "-", "nan", "isosceles", "see the figure", "yes",
        r"\frac{1}{", "3 or 4", "1/0", r"\sqrt{-1}", r"\boxed{}", "cm", "B. 12", "5" * 1001,
    ],
)  # fmt: skip
def test_a_gold_answer_that_cannot_be_read_is_an_error_that_names_it(gold: str) -> None:
    for completion in (r"\boxed{5}", rf"\boxed{{{gold}}}", "", "no box"):
        with pytest.raises(GoldError) as error:
            is_correct(completion, gold)
        assert repr(gold) in str(error.value)


@pytest.mark.parametrize(
    "gold", ["3 = 4", "x = 3 = 4", r"\frac{1}{3} = 0.4", "(1, 2) = 3", "π = 3"]
)
def test_a_gold_answer_that_contradicts_itself_is_an_error_that_names_it(gold: str) -> None:
    with pytest.raises(GoldError, match="contradict") as error:
        is_correct(r"\boxed{4}", gold)
    assert repr(gold) in str(error.value)


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        ("x = 4", "4"),
        ("2+2=4", "4"),
        ("AB = 2 \\cdot 3 = 6", "6"),
        ("AB = BC = 6", "6"),
        # a rounding, an equation that holds an unknown, and a remark
        ("1/3 = 0.333", "0.333"),
        (r"\pi = 3.14", "3.14"),
        ("2x = 20", "20"),
        (r"\sin 30° = 0.5", "0.5"),
        (r"5\sqrt{3} \approx 8.7", r"5\sqrt{3}"),
    ],
)
def test_a_gold_answer_may_state_its_value_twice(gold: str, value: str) -> None:
    assert equivalent(value, gold)
    assert not equivalent("77", gold)


@pytest.mark.parametrize("gold", [None, 5, 2.5, ["5"]])
def test_a_gold_answer_that_is_no_text_is_an_error(gold: object) -> None:
    with pytest.raises(GoldError, match="is not text"):
        is_correct(r"\boxed{5}", gold)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "gold", "tolerance", "expected"),
    [
        ("8.66", "5√{3}", 1e-3, True),
        ("8.66", "5√{3}", 1e-6, False),
        (r"x \approx 8.66", "5√{3}", 1e-3, True),
        (r"\frac{26}{3}", "5√{3}", 1e-3, True),
        ("3.14", "π", 1e-3, True),
        ("3.1", "π", 1e-3, False),
        ("101", "100", 0.02, True),
        ("103", "100", 0.02, False),
        ("10", "10√{2}", 0.02, False),
        ("0", "0", 0.02, True),
        ("(1, 2.01)", "(1, 2)", 0.02, True),
        ("(1, 2.01, 3)", "(1, 2)", 0.02, False),
    ],
)
def test_a_tolerance_when_asked_for(
    answer: str, gold: str, tolerance: float, expected: bool
) -> None:
    assert equivalent(answer, gold, tolerance=tolerance) is expected


def test_a_completion_without_an_answer_is_told_apart_from_a_wrong_one() -> None:
    grader = default_grader()
    assert grader.grade("5", "5") is Outcome.NO_ANSWER
    assert grader.grade(r"\boxed{}", "5") is Outcome.NO_ANSWER
    assert grader.grade(r"\boxed{6}", "5") is Outcome.WRONG
    assert grader.grade(r"\boxed{5}", "5") is Outcome.CORRECT
