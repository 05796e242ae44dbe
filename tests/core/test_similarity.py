"""Token-set Jaccard against Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.core.similarity import token_set_jaccard

SMALL = st.integers(0, 12)
ANY = st.sampled_from([-(2**63), -5, -1, 0, 1, 7, 2**22, 2**40, 2**63 - 1])


def one_pair(a: list[int], b: list[int]) -> float:
    rows = [np.array(a, dtype=np.int64), np.array(b, dtype=np.int64)]
    return float(token_set_jaccard(rows, np.array([0]), np.array([1]))[0])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [], 1.0),
        ([], [3], 0.0),
        ([3], [], 0.0),
        ([1, 2], [2, 1, 1, 2], 1.0),
        ([1, 1, 1, 2], [2, 3], 1 / 3),
        ([1, 2, 3], [3, 4, 5], 0.2),
        ([0], [1], 0.0),
        ([-1, 5], [5, 2**50], 1 / 3),
    ],
)
def test_values(a: list[int], b: list[int], expected: float) -> None:
    assert one_pair(a, b) == expected


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(
        st.lists(st.lists(SMALL, max_size=9), min_size=2, max_size=7),
        st.lists(st.lists(ANY, max_size=5), min_size=2, max_size=7),
    ),
    st.data(),
)
def test_matches_python_sets_for_any_pairs(tokens: list[list[int]], data: st.DataObject) -> None:
    row = st.integers(0, len(tokens) - 1)
    pairs = data.draw(st.lists(st.tuples(row, row), min_size=1, max_size=12))
    left, right = np.array(pairs).T
    got = token_set_jaccard([np.array(t, dtype=np.int64) for t in tokens], left, right)
    for (a, b), value in zip(pairs, got.tolist(), strict=True):
        union = set(tokens[a]) | set(tokens[b])
        assert value == (len(set(tokens[a]) & set(tokens[b])) / len(union) if union else 1.0)


def test_int32_and_strided_rows() -> None:
    rows = [np.arange(10, dtype=np.int32)[::2], np.array([0, 2, 4, 5], dtype=np.int32)]
    rows.append(np.array([-1, 0], dtype=np.int32))
    got = token_set_jaccard(rows, np.array([1, 2]), np.array([0, 0]))
    assert got.tolist() == [3 / 6, 1 / 6]


def test_no_pairs() -> None:
    empty = np.empty(0, dtype=np.int64)
    assert token_set_jaccard([], empty, empty).tolist() == []
