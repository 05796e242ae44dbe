"""The benchmark of verl's driver counts what it says, on a real TransferQueue."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import verl  # noqa: F401  first: verl loads its own parts in its own order

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import verl_driver

pytestmark = pytest.mark.slow

COUNT, TOKENS = 64, 16


@pytest.fixture(scope="module")
def step() -> dict[str, Any]:
    """A step of 64 rollouts, and how many keys lie in the queue before and after it is cleared."""
    with verl_driver.running_queue(units=2) as queue:
        found = verl_driver.measure(queue, COUNT, TOKENS, seed=1, multiple_of=3)
        left = [len(queue.kv_list(verl_driver.PARTITION)[verl_driver.PARTITION])]
        verl_driver.clear(queue)
        left.append(len(queue.kv_list(verl_driver.PARTITION).get(verl_driver.PARTITION, {})))
        return {**found, "left": left[0], "cleared": left[1]}


def lengths(count: int) -> int:
    """Tokens of all answers."""
    _, _, tags = verl_driver.rollouts(range(count // verl_driver.GROUP), TOKENS, seed=1)
    return sum(tag["seq_len"] for tag in tags)


def test_bytes_are_those_of_the_fields(step: dict[str, Any]) -> None:
    # Ids and mask of 8 bytes, the reward of 4; verl reads the mask, the reward and two log-probs.
    assert step["fetch_bytes"] == 20 * lengths(COUNT)
    assert step["verl_bytes"] == 20 * lengths(COUNT)
    # Advantages and returns of 4 bytes each, of the kept rows alone; advantages are read again.
    assert 0 < step["write_bytes"] < 8 * lengths(COUNT)
    assert step["check_bytes"] * 2 == step["write_bytes"]


def test_dropped_rows_leave_the_queue(step: dict[str, Any]) -> None:
    # One rollout of each of four rewards, and what makes 32 a multiple of 3.
    assert step["kept"] == step["left"] == 33
    assert step["cleared"] == 0


def test_every_phase_is_timed_and_told(step: dict[str, Any]) -> None:
    names = verl_driver.PHASES.values()
    assert all(step[f"{name}_ms"] > 0 for name in names)
    slower = {**step, **{f"{name}_ms": 9 * step[f"{name}_ms"] for name in names}}
    lines = verl_driver.table([slower, step]).splitlines()
    assert lines[0] == "| rollouts x tokens | 64 x 16 |"
    assert {len(line.split("|")) for line in lines} == {4}
    (whole,) = [line for line in lines if line.startswith("| all of it")]
    assert f" {sum(step[f'{name}_ms'] for name in names):,.0f} ms" in whole
