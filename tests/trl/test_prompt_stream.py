"""The walk over the training set that further prompts come from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datasets import Dataset, IterableDataset

from fastrl.trl.prompt_stream import PromptStream


def numbers(count: int) -> Dataset:
    return Dataset.from_list([{"n": number} for number in range(count)])


def streamed(count: int) -> IterableDataset:
    return IterableDataset.from_generator(lambda: ({"n": number} for number in range(count)))


def drawn(stream: PromptStream, count: int) -> list[int]:
    return [stream.take(1)[0][0]["n"] for _ in range(count)]


@pytest.mark.parametrize("make", [numbers, streamed])
def test_every_row_once_a_pass(make: Any) -> None:
    stream = PromptStream(make(10), seed=3)
    first, second = drawn(stream, 10), drawn(stream, 10)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))


@pytest.mark.parametrize("make", [numbers, streamed])
def test_the_order_is_the_seeds(make: Any) -> None:
    assert drawn(PromptStream(make(10), 3), 15) == drawn(PromptStream(make(10), 3), 15)
    assert drawn(PromptStream(make(10), 3), 10) != drawn(PromptStream(make(10), 4), 10)


@pytest.mark.parametrize("make", [numbers, streamed])
@pytest.mark.parametrize("before", [0, 4, 10, 13])
def test_it_goes_on_from_its_state(make: Any, before: int) -> None:
    whole = PromptStream(make(10), 3)
    wanted = drawn(whole, before + 9)[before:]
    stream = PromptStream(make(10), 3)
    drawn(stream, before)
    resumed = PromptStream(make(10), 3)
    resumed.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    assert drawn(resumed, 9) == wanted


def test_how_you_draw_does_not_matter() -> None:
    stream = PromptStream(numbers(10), 3)
    found = [row["n"] for count in (4, 1, 8) for row in stream.take(count)[0]]
    assert found == drawn(PromptStream(numbers(10), 3), 13)


@pytest.mark.parametrize("make", [numbers, streamed])
def test_it_stops_when_every_row_has_been_tried(make: Any) -> None:
    stream = PromptStream(make(5), 3)
    stream.take(3)
    first, ends = stream.take(4)
    assert (len(first), ends) == (4, 1)
    second, ends = stream.take(9, ends)
    assert (len(second), ends) == (3, 2)
    assert stream.take(9, ends) == ([], 2)
    # The next batch starts afresh.
    assert len(stream.take(2)[0]) == 2


@pytest.mark.parametrize("make", [numbers, streamed])
def test_no_rows_at_all(make: Any) -> None:
    assert PromptStream(make(0) if make is streamed else Dataset.from_dict({"n": []}), 3).take(
        4
    ) == ([], 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pass": -1}, "pass = -1"),
        ({"position": True}, "position = True"),
        ({"position": None, "pass": "x"}, "pass = 'x'.*position = None"),
        ({"rows": 9}, "rows = 9, but the training set has 10"),
    ],
)
def test_a_malformed_state_is_told(change: dict[str, Any], told: str) -> None:
    stream = PromptStream(numbers(10), 3)
    with pytest.raises(ValueError, match=told):
        stream.load_state_dict(stream.state_dict() | change)
