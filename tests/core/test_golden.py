"""Every shared reference case, run where the files lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastrl.core import AdaptiveRollouts, DifferentialPruning, Rollouts, prune

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


def golden_cases(name: str) -> list[Any]:
    path = GOLDEN / name
    if not path.exists():
        absent = pytest.mark.skip(reason=f"{path} is absent: shared reference cases not mounted")
        return [pytest.param(None, marks=absent, id="absent")]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [pytest.param(json.loads(line), id=f"{i}") for i, line in enumerate(lines)]


@pytest.mark.parametrize("case", golden_cases("pruning.jsonl"))
def test_pruning_reproduces_the_reference(case: dict[str, Any]) -> None:
    rollouts = Rollouts(case["group_ids"], case["advantages"], case["token_ids"])
    rule = DifferentialPruning(case["similarity_threshold"], case["decimals"])
    selection = prune(rollouts, rule, multiple_of=case["multiple_of"])
    assert selection.keep.tolist() == case["keep"]
    assert selection.num_before_refill == case["num_before_refill"]
    assert selection.kept_per_group.tolist() == case["kept_per_group"]
    assert selection.weights.tolist() == [1.0] * len(case["keep"])


@pytest.mark.parametrize("case", golden_cases("schedule.jsonl"))
def test_schedule_reproduces_the_reference(case: dict[str, Any]) -> None:
    schedule = AdaptiveRollouts(
        num_generations=case["num_generations"],
        min_generations=case["min_generations"],
        steps_per_epoch=case["steps_per_epoch"],
        total_steps=case["total_steps"],
    )
    used = []
    for kept_per_group in case["kept_per_group"]:
        used.append(schedule.num_generations)
        schedule.record(kept_per_group)
    assert used == case["generations_used"]
