"""balanced_shares: a partition, equal counts, balanced tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.core import balanced_shares

lengths = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 4096)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(lengths, st.integers(1, 8))
def test_properties(tokens: list[int], num_shares: int) -> None:
    shares = balanced_shares(tokens, num_shares)
    assert len(shares) == num_shares
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(tokens)))
    assert all(share.dtype == np.int64 and (np.diff(share) > 0).all() for share in shares)
    counts = [len(share) for share in shares]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1
    sums = [sum(tokens[row] for row in share) for share in shares]
    contiguous = np.array_split(np.array(tokens, dtype=np.int64), num_shares)
    assert max(sums) <= max(int(block.sum()) for block in contiguous)


def test_shares_end_at_most_one_heaviest_row_apart() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        tokens = rng.integers(0, rng.choice([3, 50, 4096]), rng.integers(1, 40))
        sums = [
            int(tokens[share].sum()) for share in balanced_shares(tokens, int(rng.integers(1, 9)))
        ]
        assert max(sums) - min(sums) <= tokens.max()


@pytest.mark.parametrize(
    ("tokens", "num_shares", "expected"),
    [
        ([], 2, [[], []]),
        ([7], 3, [[0], [], []]),
        ([0, 0], 3, [[0], [1], []]),
        ([4, 3, 2, 1], 2, [[0, 3], [1, 2]]),
        ([1, 1, 1, 1, 1], 2, [[0, 2, 4], [1, 3]]),
        ([10, 4, 4, 2, 0, 0], 2, [[0, 4, 5], [1, 2, 3]]),
        ([4, 4, 8, 9, 6], 2, [[0, 1, 2], [3, 4]]),  # greedy alone ends at 17 and 14
        ([9, 1, 9, 1], 1, [[0, 1, 2, 3]]),
    ],
)
def test_values(tokens: list[int], num_shares: int, expected: list[list[int]]) -> None:
    assert [share.tolist() for share in balanced_shares(tokens, num_shares)] == expected


def test_ranks_agree_whatever_the_integer_type() -> None:
    tokens = np.random.default_rng(0).integers(0, 2048, 64)
    one = balanced_shares(tokens, 8)
    two = balanced_shares(tokens.astype(np.int32), 8)
    assert [a.tolist() for a in one] == [b.tolist() for b in two]
    sums = [int(tokens[share].sum()) for share in one]
    assert max(sums) - min(sums) < 0.05 * np.mean(sums)


@pytest.mark.parametrize(
    ("tokens", "num_shares", "told"),
    [
        ([1, -2], 2, r"tokens_N\[1\] = -2"),
        ([1.5], 2, "tokens_N: type float64"),
        ([[1]], 2, "tokens_N: shape"),
        ([1], 0, "num_shares = 0"),
        ([1], 2.0, "num_shares = 2.0"),
        ([-1], 0, r"tokens_N\[0\] = -1.*\n.*num_shares = 0"),
    ],
)
def test_bad_arguments_are_named(tokens: Any, num_shares: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        balanced_shares(tokens, num_shares)
