"""Where an answer is found in a completion, and how each rule judges it."""

import time
from collections.abc import Iterator

import pytest

from fastrl.evaluation.answers import Verdict, find_answer, gold_problem, judge
from fastrl.evaluation.questions import Question, Rule
from fastrl.geometry.grading import Grader, Outcome

SIDES = ("135°", "140°", "145°", "150°")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(max_workers=1) as grader:
        yield grader


def asked(gold: str, rule: Rule | None = None, choices: tuple[str, ...] = ()) -> Question:
    return Question("1", "?", gold, choices=choices, rule=rule or Rule())


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"so \boxed{12}", "12"),
        (r"\boxed{3} or rather \boxed{4}", "4"),
        ("the answer is 12.", "12"),
        ("The final answer is: **12 cm**. It is the side.", "12 cm"),
        ("Answer: 3.5\nDone", "3.5"),
        ("The answer is approximately 8.66, because 5 is half of 10.", "8.66"),
        ("first the answer is 3. No: the answer is 4.", "4"),
        ("<think>the answer is 3</think><answer> 4 </answer>", "4"),
        ("the sum is 7\n12", "12"),
        ("the sum is 7\n**12**.", "12"),
        # A thought is not an answer, whether closed or cut short.
        ("<thinking>the answer is 3</thinking>no idea", None),
        ("<thinking>the answer is 3", None),
        (r"<think>\boxed{3}", None),
        (r"the answer is 12 \boxed{}", None),
        ("I see a triangle.", None),
        ("", None),
    ],
)
def test_where_the_answer_of_a_value_is_found(completion: str, answer: str | None) -> None:
    assert find_answer(completion, asked("12", Rule("rounded"))) == answer


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (r"\boxed{C}", True),
        (r"\boxed{(C)}", True),
        (r"\boxed{\text{C}}", True),
        (r"\boxed{C. 145°}", True),
        (r"\boxed{c}", True),
        (r"\boxed{145^\circ}", True),
        (r"\boxed{145}", True),
        ("The correct option is C.", True),
        ("The correct answer is option C since the angles add up.", True),
        ("The correct answer is option B since the angles add up.", False),
        ("The answer is (C) 145°", True),
        ("So it is 145.\nC", True),
        (r"\boxed{B}", False),
        (r"\boxed{140}", False),
        # A letter counts before a text.
        (r"\boxed{B. 145°}", False),
        (r"\boxed{B or C}", False),
        (r"\boxed{E}", False),
        ("Angles add up to 180°.", False),
    ],
)
def test_choices_by_letter_or_text(completion: str, right: bool, grader: Grader) -> None:
    verdict = judge(completion, asked("C", Rule("choice"), SIDES), grader)
    assert (verdict.outcome is Outcome.CORRECT) == right


def test_a_choice_in_words(grader: Grader) -> None:
    question = asked("B", Rule("choice"), ("Yes", "No"))
    assert judge("The answer is no.", question, grader).outcome is Outcome.CORRECT
    assert judge(r"\boxed{\text{Yes}}", question, grader).outcome is Outcome.WRONG


def test_a_text_that_two_choices_have_chooses_none(grader: Grader) -> None:
    question = asked("A", Rule("choice"), ("12", "12.0", "13"))
    assert judge(r"\boxed{12.00}", question, grader).outcome is Outcome.WRONG
    assert judge(r"\boxed{12}", question, grader).outcome is Outcome.CORRECT


def test_votes_for_a_letter_and_for_its_text_are_the_same(grader: Grader) -> None:
    question = asked("C", Rule("choice"), SIDES)
    votes = [
        judge(text, question, grader).vote for text in (r"\boxed{B}", r"\boxed{140}", "no idea")
    ]
    assert votes == ["B", "B", None]


@pytest.mark.parametrize(
    ("rule", "gold", "answer", "right"),
    [
        (Rule("integer"), "3", "3", True),
        (Rule("integer"), "3", "3.0", True),
        (Rule("integer"), "3", "3.7", True),  # MathVista cuts off, and so do we
        (Rule("integer"), "3", "4", False),
        (Rule("integer"), "1000", "1,000", True),
        (Rule("integer"), "50", r"50\%", True),
        (Rule("integer"), "5", "$5", True),
        (Rule("integer"), "5", "five", False),
        (Rule("rounded", decimals=1), "1.2", "1.23", True),
        (Rule("rounded", decimals=1), "1.2", "1.26", False),
        (Rule("rounded", decimals=2), "8.66", r"5\sqrt{3}", True),
        (Rule("rounded", decimals=2), "8.66", "8.7", False),
        (Rule("rounded", decimals=2), r"\frac{1}{3}", "0.33", True),
        (Rule("rounded", decimals=2), "(1,2)", "(1, 2)", True),
        (Rule("rounded", decimals=2), "(1,2)", "(2, 1)", False),
        (Rule("rounded", decimals=2), "Tuesday", "tuesday", True),
        (Rule("rounded", decimals=2), "Tuesday", "Monday", False),
        (Rule("near"), "9.425", "9.426", True),
        (Rule("near"), "9.425", "9.4249", True),
        (Rule("near"), "9.425", r"3\pi", True),
        (Rule("near"), "9.425", "9.427", False),
        (Rule("list"), "[1, 2]", "[1,2]", True),
        (Rule("list"), "[1, 2]", "[1.0, 2.0]", True),
        (Rule("list"), "[1, 2]", "[2, 1]", False),
        (Rule("list"), "[1, 2]", "1 and 2", False),
        (Rule("text"), "even", "Even.", True),
        (Rule("text"), "even", "odd", False),
        (Rule("exact"), "5√{3}", r"\sqrt{75}", True),
        (Rule("exact"), "5√{3}", "8.66", False),
        (Rule("exact"), "Tuesday", "Tuesday", True),
    ],
)
def test_rules(rule: Rule, gold: str, answer: str, right: bool, grader: Grader) -> None:
    verdict = judge(f"\\boxed{{{answer}}}", asked(gold, rule), grader)
    assert verdict.outcome is (Outcome.CORRECT if right else Outcome.WRONG)
    assert verdict.answer == answer


def test_training_data_grades_boxes_alone(grader: Grader) -> None:
    question = asked("12", Rule("exact", boxed_only=True))
    assert judge("the answer is 12", question, grader) == Verdict(None, None, Outcome.NO_ANSWER)
    assert judge(r"\boxed{12}", question, grader).outcome is Outcome.CORRECT
    open_thought = r"<thinking>3*4=12\boxed{12}"
    assert judge(open_thought, question, grader).outcome is Outcome.NO_ANSWER
    toy = asked("12", Rule("exact", boxed_only=True, in_thought=True))
    assert judge(open_thought, toy, grader).outcome is Outcome.CORRECT


def test_votes_do_not_depend_on_spelling(grader: Grader) -> None:
    question = asked("1", Rule("exact", boxed_only=True))
    same = [r"\boxed{12}", r"\boxed{12.0}", r"\boxed{12 cm}", r"\boxed{\frac{24}{2}}"]
    assert {judge(text, question, grader).vote for text in same} == {"12"}
    assert judge(r"\boxed{no idea}", question, grader).vote == "noidea"


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (asked(" "), "missing"),
        (asked("F", Rule("choice"), SIDES), "none of A, B, C, D"),
        (asked("AB", Rule("choice"), SIDES), "none of A, B, C, D"),
        (asked("AB", Rule("choice")), "no letter"),
        (asked("sure", Rule("exact", boxed_only=True)), "'sure'"),
        (asked("sure", Rule("integer")), "no number"),
        (asked("sure", Rule("exact")), None),
        (asked("C", Rule("choice"), SIDES), None),
    ],
)
def test_golds_that_cannot_be_used(question: Question, problem: str | None) -> None:
    found = gold_problem(question)
    assert (found is None) if problem is None else (problem in (found or ""))


@pytest.mark.parametrize(
    "completion",
    [
        "the answer" + " " * 8000 + "x",
        "the answer" + "\n" * 8000 + "x",
        "the answer is 5" + " " * 8000 + "x",
    ],
)
def test_a_flood_of_spaces_is_searched_in_one_pass(completion: str) -> None:
    start = time.perf_counter()
    find_answer(completion, asked("12", Rule("rounded")))
    assert time.perf_counter() - start < 0.1
