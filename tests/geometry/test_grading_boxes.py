from __future__ import annotations

import pytest

from fastrl.geometry.grading import extract_answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{3} no, \boxed{4}", "4"),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}"),
        (r"\boxed{\frac{\sqrt{2}}{10}} done}", r"\frac{\sqrt{2}}{10}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{3} then \fbox{7}", "7"),
        (r"\fbox{3} then \boxed{7}", "7"),
        (r"\boxed {8}", "8"),
        ("\\boxed\n{ 8 }", "8"),
        (r"\boxed{\boxed{9}}", "9"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\text{B}}", r"\text{B}"),
        ("\\boxed{1\n+ 1}", "1\n+ 1"),
        (r"<thinking>sum</thinking>\boxed{5}", "5"),
        (r"<think>sum</think>\boxed{5}", "5"),
        (r"<thinking>so \boxed{5}</thinking>", "5"),
    ],
)
def test_the_last_box_is_the_answer(completion: str, answer: str) -> None:
    assert extract_answer(completion) == answer


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "5",
        "the answer is 5",
        r"\boxed{}",
        "\\boxed{ \n }",
        r"\boxed{5",
        r"\boxed{\frac{1}{3}",
        r"\boxed{5\}",
        r"\boxed 5",
        r"\boxed",
        r"boxed{5}",
        r"\boxedx{5}",
        r"\boxed{5} and then \boxed{6",
        r"\boxed{5} and then \boxed{}",
        r"\boxed{5} and then \boxed 6",
        r"<thinking>so \boxed{5}",
        r"<think>so \boxed{5}",
        r"<thinking>a</thinking>\boxed{5}<thinking>wait",
    ],
)
def test_there_is_no_answer(completion: str) -> None:
    assert extract_answer(completion) is None


def test_a_flood_of_open_boxes_is_read_in_one_pass() -> None:
    assert extract_answer(r"\boxed{" * 200_000) is None
