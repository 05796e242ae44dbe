import pytest
from picture_files import drawn, encoded

from fastrl.geometry.datasets.rows import GeometryRow, RowError, gold_answer, read_row
from fastrl.geometry.grading import GoldError

PICTURE = encoded(drawn())


def parts(problem: str, pictures: int) -> object:
    row = read_row({"problem": problem, "images": [PICTURE] * pictures, "answer": "1"})
    return row.prompt(format_instruction=None)[0]["content"]


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


IMAGE = {"type": "image"}


def test_placeholders_say_where_pictures_belong() -> None:
    assert parts("<image>Find x.", 1) == [IMAGE, text("Find x.")]
    assert parts("Find x.", 1) == [IMAGE, text("Find x.")]
    assert parts("Find x.", 2) == [IMAGE, IMAGE, text("Find x.")]
    assert parts("In <image> and <image>, find x.", 2) == [
        text("In "),
        IMAGE,
        text(" and "),
        IMAGE,
        text(", find x."),
    ]
    assert parts("<image>\nFind x.", 1) == [IMAGE, text("\nFind x.")]
    assert parts("Find x.", 0) == "Find x."


@pytest.mark.parametrize(("problem", "pictures"), [("<image>Find x.", 0), ("<image><image>x", 1)])
def test_placeholders_and_pictures_must_agree(problem: str, pictures: int) -> None:
    with pytest.raises(RowError, match=rf"{problem.count('<image>')} <image> for {pictures} pict"):
        parts(problem, pictures)


def test_the_prompt_holds_system_question_choices_and_instruction() -> None:
    row = GeometryRow("Find x.", "B", choices=("12", "15"))
    assert row.prompt("Use a box.", system_prompt="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find x.\n\nA. 12\nB. 15\nUse a box."},
    ]


def test_examples_are_earlier_turns() -> None:
    examples = {"2 + 2?": "\\boxed{4}", "3 + 3?": "\\boxed{6}"}
    assert GeometryRow("4 + 4?", "8").prompt("Box it.", "Be brief.", examples) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?\nBox it."},
        {"role": "assistant", "content": "\\boxed{4}"},
        {"role": "user", "content": "3 + 3?\nBox it."},
        {"role": "assistant", "content": "\\boxed{6}"},
        {"role": "user", "content": "4 + 4?\nBox it."},
    ]
    assert len(GeometryRow("4 + 4?", "8").prompt(None, examples={})) == 1


def test_both_names_of_every_column() -> None:
    geometry3k = read_row({"problem": "Find x.", "images": [PICTURE], "answer": "5"})
    solutions = read_row(
        {"problem": "Find x.", "image": PICTURE, "solution": "<answer> 145° </answer>"}
    )
    assert (geometry3k.answer, len(geometry3k.pictures)) == ("5", 1)
    assert (solutions.answer, len(solutions.pictures)) == ("145°", 1)
    assert read_row({"question": "x?", "answer": 3}) == GeometryRow("x?", "3")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("8√{3}", "8√{3}"),
        (60, "60"),
        (3.5, "3.5"),
        ("<answer>A</answer>", "A"),
        ("<answer>1</answer> no: <answer>2</answer>", "2"),
        ("So it is \\boxed{\\frac{1}{3}}.", "\\frac{1}{3}"),
        ("B. 12", "B"),
        ("(C)", "(C)"),
    ],
)
def test_gold_answers(value: object, expected: str) -> None:
    assert gold_answer(value) == expected


@pytest.mark.parametrize("value", [None, "", "  ", "<answer></answer>", "N/A", True, "see figure"])
def test_a_missing_or_unreadable_gold_is_an_error(value: object) -> None:
    with pytest.raises(GoldError, match="gold answer"):
        gold_answer(value)


@pytest.mark.parametrize("gold", ["B", "(B)", "15", "B. 15"])
def test_a_gold_of_choices_as_text_or_letter(gold: str) -> None:
    raw = {"problem": "Find x.", "choices": ["12", "15", "18"], "answer": gold}
    by_letter = read_row(raw)
    assert (by_letter.answer, by_letter.choices) == ("B", ("12", "15", "18"))
    by_text = read_row(raw, choices_as="text")
    assert (by_text.answer, by_text.choices) == ("15", ())


def test_a_choice_that_is_itself_a_letter_is_meant_as_text() -> None:
    assert gold_answer("B", ["C", "B", "A"]) == "B"
    assert gold_answer("A", ["C", "B", "A"]) == "C"


def test_a_gold_that_is_no_choice_is_an_error() -> None:
    for gold in ("D", "13"):
        with pytest.raises(GoldError, match=rf"'{gold}' is none of the choices"):
            gold_answer(gold, ["12", "15", "18"])


def test_all_that_is_wrong_with_a_row_is_told_at_once() -> None:
    with pytest.raises(RowError, match=r"no problem text.*no picture.*no gold answer"):
        read_row({"problem": " ", "images": [5], "answer": None})
