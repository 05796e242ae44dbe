"""The variants of differential pruning that are measured and not built."""

import numpy as np
import pytest
from gradients import Batch
from variants import (
    Row,
    buckets,
    clusters,
    drawn,
    ngrams,
    prompt_noise,
    pruned,
    repeated_paths,
    standing_for,
    typical_first,
)

from fastrl.core import Rollouts

# One group; rows 0, 2, 3, 4 share an advantage. 2 repeats 0, and 4 repeats 3.
TEXTS = [[1, 2, 3], [9], [1, 2, 3], [5, 6, 7], [5, 6, 7, 8]]
ROLLOUTS = Rollouts(np.zeros(5, dtype=np.int64), np.array([0.5, -2.0, 0.5, 0.5, 0.5]), TEXTS)


def test_ngrams_are_of_neighbours() -> None:
    first, second, short = ngrams([[1, 2, 1, 2], [2, 1], [7]], 2)
    assert first == [0, 1, 0]
    assert second == [1]
    assert short == [2]


def test_clusters_leave_no_row_out_and_join_what_repeats() -> None:
    assert [rows.tolist() for rows in buckets(ROLLOUTS)] == [[0, 2, 3, 4], [1]]
    assert [rows.tolist() for rows in clusters(ROLLOUTS, 0.5)] == [[0, 2], [3, 4], [1]]
    assert [rows.tolist() for rows in clusters(ROLLOUTS, 1.0)] == [[0, 2], [3], [4], [1]]


def test_one_drawn_of_each_stands_for_all_on_average() -> None:
    factors_SN = drawn(clusters(ROLLOUTS, 0.5), 1, total=5, draws=4000)
    assert ((factors_SN > 0).sum(axis=1) == 3).all()
    assert factors_SN.sum(axis=1) == pytest.approx(np.ones(4000))
    assert factors_SN.mean(axis=0) == pytest.approx(np.full(5, 0.2), abs=0.01)


def test_two_of_a_bucket_share_its_weight() -> None:
    factors_SN = drawn(buckets(ROLLOUTS), 2, total=5, draws=50)
    values = np.unique(factors_SN.round(6))
    assert values.tolist() == [0.0, 0.2, 0.4]


def test_a_seed_stands_for_its_duplicates() -> None:
    assert (5 * standing_for(ROLLOUTS, 0.5)).tolist() == [[2, 1, 0, 1, 1]]


def test_paths_that_repeat_are_counted() -> None:
    # 3 and 4 both differ from the seed, row 0; 4 repeats 3 unless every token must agree.
    assert repeated_paths(ROLLOUTS, 0.5) == "1 of 2"
    assert repeated_paths(ROLLOUTS, 1.0) == "0 of 2"


def test_the_most_typical_member_comes_first() -> None:
    texts = [[1, 2], [9], [1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3]]
    rollouts = Rollouts(ROLLOUTS.group_ids, ROLLOUTS.advantages, texts)
    # Mean similarity to the bucket: 0.667, 0.713, 0.713, 0.792 for rows 0, 2, 3, 4.
    assert typical_first(rollouts).tolist() == [4, 1, 2, 3, 0]


def test_distance_is_that_of_the_weighted_gradients() -> None:
    gradients_ND = np.eye(5)
    batch = Batch(ROLLOUTS, np.ones(5), gradients_ND @ gradients_ND.T)
    # Row 0 for 2, the rest as they are: (0.2, 0, -0.2, 0, 0) off, over five times 0.04.
    line = Row("name", "set", standing_for(ROLLOUTS, 0.5)).told(batch)
    assert line == "| name | set | 80% | 0.400 | 0.400 |"
    # Drawn is 0 or 2, as above but for the other of them too, or a row that nothing repeats.
    factors_SN = pruned(ROLLOUTS, 1.0, "exact", draws=20)
    assert set(map(tuple, (5 * factors_SN).tolist())) == {
        (2, 1, 0, 1, 1),
        (0, 1, 2, 1, 1),
        (1, 1, 1, 1, 1),
    }


def test_another_draw_of_prompts_is_the_variance_of_the_mean() -> None:
    groups = np.array([0, 0, 1, 1])
    rollouts = Rollouts(groups, np.ones(4), [[1], [2], [3], [4]])
    # The groups' gradients are (2, 0) and (0, 2), their mean (1, 1): 2 each from it, squared.
    gradients_ND = np.array([[1.0, 0], [3, 0], [0, 0], [0, 4]])
    batch = Batch(rollouts, np.ones(4), gradients_ND @ gradients_ND.T)
    assert prompt_noise(batch) == pytest.approx((2 + 2) / (2 - 1) / 2 / 2)
