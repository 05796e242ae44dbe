from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fastrl.geometry import rewards
from fastrl.geometry.grading import GoldError, Grader
from fastrl.geometry.rewards import (
    GeometryReward,
    accuracy_reward,
    compute_score,
    compute_scores,
    format_reward,
)

HANGS_OR_FAILS = """
import json, sys, time

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    if "48" in line:
        time.sleep(60)
    print(json.dumps("error: it failed"), flush=True)
"""
RIGHT = r"<thinking>2 + 3</thinking>\boxed{5}"
IN_FORMAT = [
    RIGHT,
    "<thinking>2 + 3</thinking>\nSo the answer is $\\boxed{5}$.\n",
    "\n <thinking>\na\n</thinking>\\fbox{x}",
    r"<thinking>maybe \boxed{4}</thinking>\boxed{5}",
    r"<thinking>a < b</thinking>\boxed{\frac{1}{3}}",
    r"<thinking>角度</thinking>\boxed{5}",
]
OUT_OF_FORMAT = [
    "",
    r"\boxed{5}",
    r"<thinking></thinking>\boxed{5}",
    "<thinking> \n\t</thinking>\\boxed{5}",
    "<thinking>\u200b...</thinking>\\boxed{5}",
    r"<thinking>a</thinking>",
    r"<thinking>a</thinking>5",
    r"<thinking>a</thinking>\boxed{}",
    r"<thinking>a</thinking>\boxed{ }",
    r"<thinking>a</thinking>\boxed{5",
    r"<thinking>a</thinking>\boxed 5",
    r"<thinking>a \boxed{5}</thinking>",
    r"<thinking>a</thinking>\boxed{5}\boxed{5}",
    r"<thinking>a</thinking>\boxed{5} or \fbox{6}",
    r"<thinking>a</thinking>\boxed{\boxed{5}}",
    r"<thinking>a</thinking><thinking>b</thinking>\boxed{5}",
    r"<thinking>a</thinking>\boxed{5}<thinking>b</thinking>",
    r"<thinking>a<thinking>b</thinking>\boxed{5}",
    r"<thinking>a</thinking></thinking>\boxed{5}",
    r"<thinking>a</thinking>\boxed{5}<thinking>",
    r"</thinking>a<thinking>\boxed{5}",
    r"<thinking>a\boxed{5}",
    r"well, <thinking>a</thinking>\boxed{5}",
    r"<think>a</think>\boxed{5}",
    r"<thinking>a</thinking><think>b</think>\boxed{5}",
    r"<thinking>a</thinking><Thinking>b</Thinking>\boxed{5}",
    r"<thinking>a</thinking><thinking >b</thinking >\boxed{5}",
    r"<thinking>a</thinking>\boxed{5}</ think>",
    r"<THINKING>a</THINKING>\boxed{5}",
]


@pytest.mark.parametrize("completion", IN_FORMAT)
def test_a_completion_in_format(completion: str) -> None:
    assert format_reward([completion]) == [0.5]


@pytest.mark.parametrize("completion", OUT_OF_FORMAT)
def test_a_completion_out_of_format(completion: str) -> None:
    assert format_reward([completion]) == [0.0]


def test_accuracy_is_paid_whatever_the_format() -> None:
    completions = [RIGHT, r"\boxed{5}", r"\boxed{6}", "5", ""]
    assert accuracy_reward(completions, ["5"] * 5) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_each_completion_has_its_own_gold() -> None:
    completions = [r"\boxed{5}", r"\boxed{B. 12}", r"\boxed{5\sqrt{3}}"]
    assert accuracy_reward(completions, ["6", "B", "5√{3}cm"]) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "completion",
    [
        [{"role": "assistant", "content": RIGHT}],
        [{"role": "assistant", "content": "let me see"}, {"role": "assistant", "content": RIGHT}],
        [{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}],
        [{"role": "assistant", "content": [{"type": "text", "text": RIGHT[:9]},
                                           {"type": "image"},
                                           {"type": "text", "text": RIGHT[9:]}]}],
    ],
)  # fmt: skip
def test_chat_messages_are_read(completion: object) -> None:
    assert accuracy_reward([completion], ["5"]) == [1.0]
    assert format_reward([completion]) == [0.5]


@pytest.mark.parametrize(
    "completion",
    [[], [{"role": "assistant"}], [{"role": "assistant", "content": None}],
     [{"role": "assistant", "content": []}], [{"role": "assistant", "content": [{"text": None}]}]],
)  # fmt: skip
def test_an_empty_message_earns_nothing(completion: object) -> None:
    assert accuracy_reward([completion], ["5"]) == [0.0]
    assert format_reward([completion]) == [0.0]


def test_what_a_host_adds_is_ignored() -> None:
    extras = {"prompts": ["p"], "completion_ids": [[1]], "trainer_state": None, "problem": ["q"]}
    assert accuracy_reward(completions=[RIGHT], answer=["5"], **extras) == [1.0]
    assert format_reward(completions=[RIGHT], answer=["5"], **extras) == [0.5]


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="shorter"):
        accuracy_reward([RIGHT, RIGHT], ["5"])


@pytest.mark.parametrize("gold", ["", "see the figure", None])
def test_a_bad_gold_answer_is_an_error_that_names_the_row(gold: str) -> None:
    with pytest.raises(GoldError, match=r"^row 1 of this batch: the gold answer"):
        accuracy_reward([RIGHT, RIGHT], ["5", gold])
    with pytest.raises(GoldError, match=r"^geoqa, row 17: the gold answer"):
        compute_score("geoqa", RIGHT, gold, {"index": 17})
    with pytest.raises(GoldError, match=r"^geoqa, row unknown: the gold answer"):
        compute_score("geoqa", RIGHT, gold)


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (RIGHT, 1.5),
        (r"\boxed{5}", 1.0),
        (r"<thinking>a</thinking>\boxed{6}", 0.5),
        ("5", 0.0),
    ],
)
def test_verl_gets_the_sum(completion: str, score: float) -> None:
    assert compute_score("geoqa", completion, "5", None) == score
    assert (
        compute_score(
            data_source="geoqa",
            solution_str=completion,
            ground_truth="5",
            extra_info={"split": "a"},
        )
        == score
    )


@pytest.mark.parametrize(
    ("completion", "parts"),
    [
        (RIGHT, {"score": 1.5, "acc": 1.0, "format": 1.0, "undecided": 0.0}),
        (r"\boxed{5}", {"score": 1.0, "acc": 1.0, "format": 0.0, "undecided": 0.0}),
        (
            r"<thinking>a</thinking>\boxed{6}",
            {"score": 0.5, "acc": 0.0, "format": 1.0, "undecided": 0.0},
        ),
        ("5", {"score": 0.0, "acc": 0.0, "format": 0.0, "undecided": 0.0}),
    ],
)
def test_verl_gets_the_parts(completion: str, parts: dict[str, float]) -> None:
    assert compute_scores("geoqa", completion, "5", {"index": 1}) == parts
    weighted = compute_scores("geoqa", completion, "5", accuracy_weight=0.9, format_weight=0.1)
    assert weighted["score"] == 0.9 * parts["acc"] + 0.1 * parts["format"]
    assert (weighted["acc"], weighted["format"]) == (parts["acc"], parts["format"])
    assert weighted.keys() == parts.keys()
    with pytest.raises(GoldError, match=r"^geoqa, row 17: the gold answer"):
        compute_scores("geoqa", completion, "", {"index": 17})


def test_weights_are_configurable() -> None:
    reward = GeometryReward(accuracy_weight=0.9, format_weight=0.1)
    assert reward.accuracy_reward([RIGHT, "5"], ["5", "5"]) == [0.9, 0.0]
    assert reward.format_reward([RIGHT, "5"]) == [0.1, 0.0]
    assert reward.compute_score("geoqa", RIGHT, "5") == 1.0
    assert compute_score("geoqa", RIGHT, "5", accuracy_weight=2.0, format_weight=0.0) == 2.0


def test_a_grader_with_a_tolerance_is_used() -> None:
    with Grader(tolerance=0.01) as grader:
        reward = GeometryReward(grader=grader)
        assert reward.accuracy_reward([r"\boxed{8.66}"], ["5√{3}"]) == [1.0]
        assert grader.counts.graded == 1
    assert accuracy_reward([r"\boxed{8.66}"], ["5√{3}"]) == [0.0]


def test_names_that_trl_shows_in_its_logs() -> None:
    reward = GeometryReward()
    for function in (accuracy_reward, reward.accuracy_reward):
        assert function.__name__ == "accuracy_reward"
        assert not inspect.iscoroutinefunction(function)
    assert format_reward.__name__ == reward.format_reward.__name__ == "format_reward"


def test_timeouts_are_logged_where_the_host_offers_it(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text(HANGS_OR_FAILS)
    logged: dict[str, float] = {}
    with Grader(worker=script, time_limit=0.3) as grader:
        reward = GeometryReward(grader=grader)
        earned = reward.accuracy_reward(
            [r"\boxed{\sqrt{48}}", r"\boxed{\sqrt{48}}", r"\boxed{\sqrt{12}}", r"\boxed{1}"],
            ["4√{3}", "4√{3}", "2√{3}", "1"],
            log_metric=logged.__setitem__,
        )
        assert earned == [0.0, 0.0, 0.0, 1.0]
        assert logged == {rewards.TIMEOUTS_METRIC: 2.0, rewards.ERRORS_METRIC: 1.0}
        assert reward.grader.timeouts == 2


def test_verl_is_told_of_checks_that_ended_undecided(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text(HANGS_OR_FAILS)
    undecided = {"score": 0.5, "acc": 0.0, "format": 1.0, "undecided": 1.0}
    with Grader(worker=script, time_limit=0.3) as grader:
        reward = GeometryReward(grader=grader)
        for answer, gold in (("\\sqrt{48}", "4√{3}"), ("\\sqrt{12}", "2√{3}")):  # hangs, fails
            completion = rf"<thinking>a</thinking>\boxed{{{answer}}}"
            assert reward.compute_scores("geoqa", completion, gold) == undecided
            assert reward.compute_score("geoqa", completion, gold) == 0.5
        assert reward.compute_scores("geoqa", RIGHT, "5")["undecided"] == 0.0
