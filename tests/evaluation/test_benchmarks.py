"""Benchmarks in their published columns: made-up rows, and real ones where they lie beside us."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastrl.evaluation.answers import judge
from fastrl.evaluation.benchmarks import dynamath, mathverse, mathvision, mathvista
from fastrl.evaluation.questions import Question, conversation
from fastrl.evaluation.sources import load_questions
from fastrl.geometry.datasets import DatasetError, RowError
from fastrl.geometry.grading import Grader, Outcome

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def picture() -> dict[str, Any]:
    file = BytesIO()
    Image.new("RGB", (40, 30), "white").save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def right(question: Question, answer: str) -> bool:
    with Grader(max_workers=1) as grader:
        verdict = judge(f"\\boxed{{{answer}}}", question, grader)
    return verdict.outcome is Outcome.CORRECT


def vista(**changes: Any) -> dict[str, Any]:
    return {
        "pid": "7",
        "question": "How wide is it?",
        "image": "images/7.jpg",
        "decoded_image": picture(),
        "choices": None,
        "unit": "cm",
        "precision": 1.0,
        "answer": "1.2",
        "question_type": "free_form",
        "answer_type": "float",
        "metadata": {"task": "geometry problem solving", "skills": ["a", "b"], "grade": None},
        "query": None,
        **changes,
    }


def test_mathvista_float() -> None:
    question = mathvista(vista())
    assert question.text == (
        "How wide is it? (Unit: cm)\nAnswer with a number, to 1 places behind the point."
    )
    assert question.pictures[0].open().size == (40, 30)
    assert question.tags == {
        "question_type": ("free_form",),
        "answer_type": ("float",),
        "task": ("geometry problem solving",),
        "skills": ("a", "b"),
    }
    assert right(question, "1.24")
    assert not right(question, "1.3")


def test_mathvista_choice_has_its_text_as_answer_and_its_letter_as_gold() -> None:
    row = vista(choices=["2", "4"], answer="4", answer_type="text", question_type="multi_choice")
    question = mathvista(row)
    assert question.answer == "B"
    assert question.text == "How wide is it? (Unit: cm)\nChoices:\n(A) 2\n(B) 4"
    assert right(question, "B")
    assert right(question, "4 cm")
    assert not right(question, "A")


def test_mathvista_takes_the_published_prompt_where_it_is_there() -> None:
    assert mathvista(vista(query="Hint: a number.\nQuestion: How wide?")).text.startswith("Hint")


def test_mathvista_integer_and_list() -> None:
    assert right(mathvista(vista(answer="4", answer_type="integer", precision=None)), "4")
    question = mathvista(vista(answer="[0, 8]", answer_type="list", precision=None))
    assert right(question, "[0,8]")
    assert not right(question, "[8, 0]")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pid": None}, "no pid"),
        ({"answer": None}, "no answer"),
        ({"answer_type": "colour"}, "answer_type 'colour'"),
        ({"choices": ["1", "2"], "answer": "3"}, "'3' is none of the choices"),
    ],
)
def test_mathvista_rows_that_cannot_be_used(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        mathvista(vista(**changes))


def verse(**changes: Any) -> dict[str, Any]:
    return {
        "sample_index": "3",
        "problem_index": "1",
        "problem_version": "Text Lite",
        "question": "then the angle is ()\nChoices:\nA:40°\nB:60°",
        "image": picture(),
        "answer": "B",
        "question_type": "multi-choice",
        "metadata": {"split": "testmini", "subject": "Plane Geometry", "subfield": "Angle"},
        **changes,
    }


def test_mathverse_choices_stand_in_the_question() -> None:
    question = mathverse(verse())
    assert question.choices == ("40°", "60°")
    assert (question.id, question.group) == ("3", "1")
    assert question.tags["version"] == ("Text Lite",)
    assert right(question, "B")
    assert right(question, "60")
    assert not right(question, "40")


def test_mathverse_vision_only_has_no_words_of_its_own() -> None:
    row = verse(question="", query_cot="Reason, then give the letter.", question_for_eval=None)
    question = mathverse(row)
    assert question.text == "Reason, then give the letter."
    assert question.choices == ()
    assert right(question, "B")
    assert not right(question, "C")


def test_mathverse_free_form_is_compared_exactly() -> None:
    question = mathverse(
        verse(answer=r"5\sqrt{3}", question_type="free-form", question="How long?")
    )
    assert right(question, r"\sqrt{75}")
    assert not right(question, "8.66")


def test_mathverse_without_a_picture_is_text_only() -> None:
    assert mathverse(verse(image="")).pictures == ()


def vision(**changes: Any) -> dict[str, Any]:
    return {
        "id": "12",
        "question": "Which area? <image1>",
        "options": ["1", "2", "3", "4", "5"],
        "image": "images/12.jpg",
        "decoded_image": picture(),
        "answer": "C",
        "level": 4,
        "subject": "metric geometry - area",
        **changes,
    }


def test_mathvision_choices_and_values() -> None:
    question = mathvision(vision())
    assert question.text.endswith("Choices:\n(A) 1\n(B) 2\n(C) 3\n(D) 4\n(E) 5")
    assert right(question, "C")
    assert right(question, "3")
    assert not right(question, "4")
    value = mathvision(vision(options=[], answer=r"\frac{1}{3}"))
    assert right(value, "0.333")
    assert not right(value, "0.3")
    assert value.tags == {"subject": ("metric geometry - area",), "level": ("4",)}


def test_mathvision_options_that_are_in_the_picture_are_not_listed() -> None:
    question = mathvision(vision(options=list("ABCDE")))
    assert question.text == "Which area? <image1>"
    assert right(question, "(C)")


def test_its_one_picture_comes_first_and_image1_stays_a_word() -> None:
    content = conversation(mathvision(vision(options=[])))[0]["content"]
    assert content == [{"type": "image"}, {"type": "text", "text": "Which area? <image1>"}]


def test_dynamath_rules_by_answer_type() -> None:
    row = {
        "id": "5",
        "question": "How long?",
        "decoded_image": picture(),
        "ground_truth": "9.425",
        "answer_type": "float",
        "subject": "plane geometry",
        "knowledge_level": "high school",
    }
    question = dynamath(row)
    assert right(question, "9.4255")
    assert not right(question, "9.43")
    assert question.tags["level"] == ("high school",)
    choice = dynamath({**row, "answer_type": "multiple choice", "ground_truth": "B"})
    assert right(choice, "B")
    assert right(dynamath({**row, "answer_type": "text", "ground_truth": "even"}), "Even")
    with pytest.raises(RowError, match="answer_type 'colour'"):
        dynamath({**row, "answer_type": "colour"})


def test_every_broken_row_is_named_at_once(tmp_path: Path) -> None:
    rows = {
        "1": vista(pid="1", decoded_image=None, image=None),
        "2": vista(pid="2", answer=None, decoded_image=None, image=None),
        "3": vista(pid="1", decoded_image=None, image="images/none.jpg"),
        "4": vista(pid="1", decoded_image=None, image=None, answer="wide", answer_type="integer"),
        "5": vista(pid="1", decoded_image=None, image=None),
    }
    (tmp_path / "testmini.json").write_text(json.dumps(rows))
    with pytest.raises(DatasetError) as error:
        load_questions("mathvista", str(tmp_path / "testmini.json"))
    told = str(error.value)
    assert "mathvista: 4 rows cannot be used" in told
    assert "row 1: no answer" in told
    assert "row 2: the picture" in told
    assert "row 3: the right answer 'wide' is no number" in told
    assert "row 4: its id '1' stands twice" in told
    assert "--skip_broken" in told
    left = load_questions("mathvista", str(tmp_path / "testmini.json"), skip_broken=True)
    assert [question.id for question in left.questions] == ["1"]
    assert len(left.skipped) == 4


@pytest.mark.skipif(not DATA.exists(), reason="the shared data does not lie beside the project")
def test_real_mathvision_geometry() -> None:
    path = DATA / "mathvision_geo150" / "test_geo150.jsonl"
    questions = load_questions("mathvision", str(path)).questions
    assert len(questions) == 150
    with Grader(max_workers=1) as grader:
        for question in questions:
            gold = f"\\boxed{{{question.answer}}}"
            assert judge(gold, question, grader).outcome is Outcome.CORRECT, question
            if question.choices:
                text = question.choices["ABCDE".index(question.answer)]
                by_text = judge(f"the answer is\n\\boxed{{{text}}}", question, grader)
                assert by_text.outcome is Outcome.CORRECT, question
    assert {len(question.pictures) for question in questions} == {1}


@pytest.mark.skipif(not DATA.exists(), reason="the shared data does not lie beside the project")
def test_real_dynamath_variants() -> None:
    path = DATA / "dynamath_planegeo" / "variants.jsonl"
    questions = load_questions("dynamath", str(path)).questions
    assert len(questions) == 200
    assert len({question.group for question in questions}) == 20
    with Grader(max_workers=1) as grader:
        for question in questions:
            gold = f"\\boxed{{{question.answer}}}"
            assert judge(gold, question, grader).outcome is Outcome.CORRECT, question
            assert judge(r"\boxed{-77.5}", question, grader).outcome is Outcome.WRONG, question
