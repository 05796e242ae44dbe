import pytest

from fastrl.geometry.toy import accuracy_reward, format_reward
from fastrl.geometry.toy.rewards import boxed_number, has_format, is_right

GOOD = "<thinking>180-50-60=70</thinking>\\boxed{70}"


@pytest.mark.parametrize(
    ("completion", "number"),
    [
        (GOOD, 70.0),
        ("\\boxed{3}\\boxed{4}", 4.0),
        ("\\boxed{ 12 }", 12.0),
        ("\\boxed{-1.5}", -1.5),
        ("70", None),
        ("\\boxed{}", None),
        ("\\boxed{70", None),
        ("\\boxed 70", None),
        ("\\boxed{70, 80}", None),
        ("", None),
    ],
)
def test_the_last_box_counts(completion: str, number: float | None) -> None:
    assert boxed_number(completion) == number


def test_right_is_numeric_equality() -> None:
    assert is_right("\\boxed{70.0}", "70")
    assert not is_right("\\boxed{700}", "70")
    assert not is_right("70", "70")


@pytest.mark.parametrize(
    ("completion", "good"),
    [
        (GOOD, True),
        (GOOD + "\n", True),
        ("<thinking></thinking>\\boxed{70}", False),
        ("<thinking>  </thinking>\\boxed{70}", False),
        ("<thinking>a</thinking><thinking>b</thinking>\\boxed{70}", False),
        ("<thinking>a\\boxed{70}", False),
        ("a\\boxed{70}", False),
        (GOOD + " and more", False),
        (GOOD + "\\boxed{71}", False),
        ("<thinking>a</thinking>70", False),
    ],
)
def test_format_is_one_thought_then_one_box(completion: str, good: bool) -> None:
    assert has_format(completion) is good


def test_as_trl_calls_them() -> None:
    completions = [[{"role": "assistant", "content": text}] for text in (GOOD, "\\boxed{1}")]
    assert accuracy_reward(completions=completions, answer=["70", "2"], prompts=None) == [1.0, 0.0]
    assert format_reward(completions=completions, trainer_state=None) == [0.5, 0.0]
