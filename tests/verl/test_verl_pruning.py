from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fastrl.verl.config import FastRLSettings
from fastrl.verl.pruning import ScoredRows, choose_rows


def scored(
    keys: Sequence[str],
    advantages: Sequence[float],
    tokens: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[str] | None = None,
) -> ScoredRows:
    return ScoredRows(
        keys=keys,
        prompt_N=prompts or [key.split("_")[0] for key in keys],
        advantages_N=np.array(advantages, dtype=np.float64),
        rewards_N=np.array(advantages, dtype=np.float64) + 1,
        token_rows=[np.array(row, dtype=np.int64) for row in tokens or [[1, 2]] * len(keys)],
    )


def choose(rows: ScoredRows, multiple_of: int = 1, **settings: Any) -> Any:
    return choose_rows(rows, FastRLSettings(**settings), multiple_of=multiple_of, seed=(0, 1))


def test_equal_advantage_and_equal_tokens_keep_one() -> None:
    keys = ["a_0_0", "a_1_0", "a_2_0", "b_0_0", "b_1_0"]
    tokens = [[1, 2], [1, 2], [7, 8], [3], [3]]
    kept = choose(scored(keys, [1, 1, 1, 0.5, -0.5], tokens), weighting="kept")
    assert sorted(kept.keep) == [0, 2, 3, 4]  # row 1 repeats row 0; row 2 is another path
    assert kept.weights.tolist() == [1, 1, 1, 1]
    assert kept.metrics() == {
        "fastrl/generated": 5,
        "fastrl/kept": 4,
        "fastrl/kept_before_refill": 4,
        "fastrl/kept_per_prompt": 2,
        "fastrl/max_kept_per_prompt": 2,
        "fastrl/num_generations": 3,
        "fastrl/groups_without_contrast": 0,
        "fastrl/reward": 1 + 3 / 5,
    }


def test_refill_reaches_the_multiple_under_kept_only() -> None:
    rows = scored([f"a_{i}_0" for i in range(6)], [1, 1, 1, -1, -1, -1])
    kept = choose(rows, multiple_of=4, weighting="kept")
    assert len(kept.keep) == 4
    assert kept.selection.num_before_refill == 2
    exact = choose(rows, multiple_of=4, weighting="exact")
    assert len(exact.keep) == 2
    assert exact.weights.tolist() == [3, 3]


def test_the_order_of_arrival_changes_nothing() -> None:
    keys = [f"{uid}_{session}_0" for uid in ("x", "y", "z") for session in range(4)]
    advantages = [1, 1, -1, -1, 0.5, 0.5, 0.5, -1.5, 0, 0, 0, 0]
    rows = scored(keys, advantages)
    for weighting in ("kept", "exact"):
        chosen = choose(rows, multiple_of=8, weighting=weighting)
        wanted = [(keys[row], w) for row, w in zip(chosen.keep, chosen.weights, strict=True)]
        order = np.random.default_rng(0).permutation(12)
        shuffled = scored([keys[i] for i in order], [advantages[i] for i in order])
        again = choose(shuffled, multiple_of=8, weighting=weighting)
        found = [(shuffled.keys[row], w) for row, w in zip(again.keep, again.weights, strict=True)]
        assert found == wanted


def test_prompts_come_in_an_order_drawn_from_the_seed() -> None:
    rows = scored([f"p{uid}_{session}_0" for uid in range(6) for session in range(2)], [1, -1] * 6)
    settings = FastRLSettings()
    orders = set()
    for step in range(3):
        kept = choose_rows(rows, settings, multiple_of=1, seed=(0, step))
        prompts = [int(row) // 2 for row in kept.keep]
        assert prompts[::2] == prompts[1::2]  # a prompt's rollouts stay together
        assert sorted(set(prompts)) == list(range(6))
        orders.add(tuple(prompts))
    assert len(orders) > 1


def test_uids_change_nothing_but_the_same_question_twice_is_two_groups() -> None:
    prompts = ["7"] * 4
    keys = ["u_0_0", "u_1_0", "v_0_0", "v_1_0"]
    kept = choose(scored(keys, [1, 1, 1, 1], prompts=prompts), weighting="kept")
    assert kept.selection.kept_per_group.tolist() == [1, 1]
    renamed = ["p_0_0", "p_1_0", "q_0_0", "q_1_0"]
    again = choose(scored(renamed, [1, 1, 1, 1], prompts=prompts), weighting="kept")
    assert sorted(again.keep) == sorted(kept.keep) == [0, 2]
    assert again.keep.tolist() == kept.keep.tolist()


def test_sessions_are_kept_or_dropped_whole() -> None:
    keys = ["a_0_0", "a_1_0", "a_0_1", "a_1_1", "a_2_0"]
    rows = scored(keys, [1, 1, 1, 1, -2], [[1], [1], [2], [2], [9]])
    kept = choose(rows, multiple_of=4, weighting="exact")
    # Sessions 0 and 1 say the same: one of them stands for both, with all its rows.
    assert kept.keep.tolist() in ([0, 2, 4], [1, 3, 4])  # session by session
    assert kept.weights.tolist() == [2, 2, 1]
    assert kept.metrics()["fastrl/generated"] == 3
    assert kept.metrics()["fastrl/kept"] == 2
    # The reward of a session is its last row's.
    assert kept.reward == pytest.approx((2 + 2 - 1) / 3)
    assert len(choose(rows, multiple_of=4, weighting="kept").keep) == 3  # verl pads


def test_a_session_without_trained_tokens_is_seen_last_under_kept() -> None:
    keys = ["a_0_0", "a_1_0", "a_2_0"]
    kept = choose(scored(keys, [1, 1, 1], [[], [4], [4]]), weighting="kept")
    assert kept.keep.tolist() == [0, 1]  # the empty one differs from the seed, row 1
    assert kept.selection.reason.tolist() == ["seed", "duplicate", "different"]


def test_groups_without_contrast_may_leave_nothing() -> None:
    rows = scored(["a_0_0", "a_1_0"], [0, 0])
    assert len(choose(rows, drop_uninformative=True).keep) == 0
    assert len(choose(rows).keep) == 1


def test_a_key_of_another_form_is_told() -> None:
    with pytest.raises(ValueError, match="'a_0'"):
        choose(scored(["a_0"], [1]))
