"""The record of a generation batch."""

from __future__ import annotations

import numpy as np
import pytest

from fastrl.trl.record import as_text, row_pictures, weighted_rewards


def test_weighted_rewards() -> None:
    rewards = np.array([[1.0, 2.0], [np.nan, 2.0], [np.nan, np.nan]])
    found = weighted_rewards(rewards, np.array([1.0, 0.5]))
    np.testing.assert_array_equal(found, [2.0, 1.0, np.nan])


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ("plain", "plain"),
        ([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}], "one\ntwo"),
        (
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what?"}]}],
            "<image> what?",
        ),
        ([{"role": "assistant", "content": None}], ""),
    ],
)
def test_as_text(messages: object, text: str) -> None:
    assert as_text(messages) == text


@pytest.mark.parametrize(
    ("row", "pictures"),
    [
        ({"images": ["a", "b"]}, ("a", "b")),
        ({"images": None, "image": "a"}, ("a",)),
        ({"image": None}, ()),
        ({"prompt": "x"}, ()),
    ],
)
def test_pictures_of_a_row(row: dict[str, object], pictures: tuple[str, ...]) -> None:
    assert row_pictures(row) == pictures
