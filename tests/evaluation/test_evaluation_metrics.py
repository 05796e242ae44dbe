"""pass@k against all choices, votes by hand, intervals against known values and by simulation."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.evaluation.metrics import (
    all_right,
    majority_at_k,
    mean_at_k,
    mean_with_interval,
    pass_at_k,
    wilson,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_share_of_all_choices_with_a_right_one(row: list[bool], k: int) -> None:
    if k > len(row):
        with pytest.raises(ValueError, match=rf"k = {k}: expected 1 to {len(row)}"):
            pass_at_k(np.array([row]), k)
        return
    choices = list(combinations(row, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(np.array([row]), k)[0] == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_unbiased_and_the_plain_estimate_is_not() -> None:
    rng = np.random.default_rng(0)
    correct_QS = rng.random((20000, 4)) < 0.3
    truth = 1 - 0.7**2
    assert pass_at_k(correct_QS, 2).mean() == pytest.approx(truth, abs=0.01)
    plain = 1 - (1 - correct_QS.mean(axis=1)) ** 2
    assert plain.mean() < truth - 0.03


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    correct_QS = np.zeros((1, 4096), dtype=bool)
    correct_QS[0, 7] = True
    assert pass_at_k(correct_QS, 1024)[0] == pytest.approx(0.25)


def test_mean_at_k() -> None:
    correct_QS = np.array([[True, False, False, True], [False] * 4])
    assert mean_at_k(correct_QS).tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("votes", "correct", "value"),
    [
        (["5", "5", "7"], [True, True, False], 1.0),
        (["7", "7", "5"], [False, False, True], 0.0),
        (["5", "7"], [True, False], 0.5),
        (["5", "7", "8"], [True, False, False], 1 / 3),
        # Right ones are one answer however they are written.
        (["5", "5.0", "7", "7", "8"], [True, True, False, False, False], 0.5),
        # Who answers nothing does not vote, however many they are.
        ([None, None, None, "5"], [False, False, False, True], 1.0),
        ([None, None], [False, False], 0.0),
    ],
)
def test_majority(votes: list[str | None], correct: list[bool], value: float) -> None:
    assert majority_at_k([votes], np.array([correct]))[0] == pytest.approx(value)


def test_all_versions_of_a_problem_must_be_right_in_the_same_sample() -> None:
    correct_QS = np.array([[True, True], [True, False], [False, True]])
    values, names = all_right(correct_QS, ["a", "a", "b"])
    assert names == ["a", "b"]
    assert values.tolist() == [0.5, 0.5]


def test_wilson_by_hand() -> None:
    # 8 of 10: centre (0.8 + z²/20) / (1 + z²/10), z = 1.95996
    interval = wilson(8, 10)
    assert (interval.value, interval.method) == (0.8, "wilson")
    assert (interval.low, interval.high) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    none = wilson(0, 20)
    assert none.low == 0.0
    assert none.high == pytest.approx(0.16113, abs=1e-5)
    assert wilson(20, 20).low == pytest.approx(1 - none.high)


def test_right_or_wrong_gets_wilson_and_shares_get_the_bootstrap() -> None:
    assert mean_with_interval(np.array([0.0, 1.0, 1.0])).method == "wilson"
    assert mean_with_interval(np.array([0.0, 1.0, 0.5])).method == "bootstrap"
    assert mean_with_interval(np.array([0.0, 1.0, 1.0]), ["a", "a", "b"]).method == "bootstrap"
    # Groups that agree in themselves are as many as they are, not as many as their questions.
    together = mean_with_interval(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])
    assert together == wilson(1, 2)
    assert mean_with_interval(np.zeros(3), ["a", "a", "b"]) == wilson(0, 2)
    with pytest.raises(ValueError, match="no question"):
        mean_with_interval(np.array([]))


def test_the_bootstrap_has_the_width_of_the_standard_error_and_a_seed() -> None:
    rng = np.random.default_rng(1)
    values_Q = rng.random(400)
    interval = mean_with_interval(values_Q)
    assert interval == mean_with_interval(values_Q)
    half = 1.96 * values_Q.std() / 20
    assert interval.value == pytest.approx(values_Q.mean())
    assert interval.high - interval.value == pytest.approx(half, rel=0.12)
    assert interval.value - interval.low == pytest.approx(half, rel=0.12)


def test_versions_of_one_problem_count_as_one_draw() -> None:
    rng = np.random.default_rng(2)
    values_Q = np.repeat(rng.random(80), 5)
    groups = [str(number) for number in np.repeat(np.arange(80), 5)]
    alone, together = mean_with_interval(values_Q), mean_with_interval(values_Q, groups)
    ratio = (together.high - together.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(5**0.5, rel=0.15)
    assert together.value == pytest.approx(alone.value)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        chances_Q = rng.beta(2, 3, size=100)
        correct_QS = rng.random((100, 4)) < chances_Q[:, None]
        interval = mean_with_interval(mean_at_k(correct_QS))
        covered += interval.low <= 0.4 <= interval.high
    assert 0.90 <= covered / 200 <= 0.985
