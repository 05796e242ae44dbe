"""The speed that docs/grading.md promises: a run grades millions of answers."""

from __future__ import annotations

import time

import pytest

from fastrl.geometry.grading import Grader, GradingCounts

COUNT = 5000


@pytest.mark.slow
@pytest.mark.parametrize("thought", ["", "<thinking>" + "180 degrees. " * 150 + "</thinking>"])
def test_plain_numbers_are_graded_at_2000_a_second_in_one_process(thought: str) -> None:
    rates = []
    with Grader() as grader:
        for repeat in range(3):
            # New answers and golds each time, half of them right: no cache answers for the grader.
            first = 2 * (repeat + 3 * bool(thought)) * COUNT
            numbers = range(first, first + COUNT)
            completions = [(rf"{thought}\boxed{{{i + i % 2}}}", str(i)) for i in numbers]
            start = time.perf_counter()
            right = sum(grader.is_correct(*pair) for pair in completions)
            rates.append(COUNT / (time.perf_counter() - start))
            assert right == COUNT / 2
        assert grader.counts == GradingCounts(graded=3 * COUNT)
        assert grader.worker_ids() == []
    # The best of three: whatever else runs on the machine only takes away.
    assert max(rates) >= 2000, rates
