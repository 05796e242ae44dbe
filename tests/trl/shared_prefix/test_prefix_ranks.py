"""Two processes that share prefixes train what one without them trains."""

from __future__ import annotations

from typing import Any

import pytest
from rank_runs import completions, replay, replay_all
from tiny_runs import largest_difference, make_trainer, text_rows, vision_rows

from process_runs import run_ranks

ALIKE = [60, 61]


def levels(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """Many levels, so that a rule keeps most of what differs."""
    return [0.0 if ids == ALIKE else float(sum(ids) % 7) for ids in completion_ids]


def uneven_batch(seed: int) -> list[list[int]]:
    """The first half is all alike: there every group is pruned to one row."""
    (batch,) = completions(1, rows=24, seed=seed)
    return [ALIKE] * 12 + batch[12:]


def runs(vision_model: str) -> dict[str, dict[str, Any]]:
    """24 rows in 6 groups, one update a generation batch: its rows are the same without sharing."""
    common = {
        "recording": [uneven_batch(seed) for seed in (1, 2)],
        "reward": levels,
        "max_steps": 2,
        "steps_per_generation": 3,
        "gradient_accumulation_steps": 3,
        "beta": 0.1,
        "weighting": "exact",
        "adaptive_rollouts": False,
        "similarity_threshold": 0.0,
        "optim": "sgd",
        "dataset": text_rows(12),
    }
    pictures = {"model": vision_model, "dataset": vision_rows(12, pictures=(1, 2))}
    return {"text": common, "pictures": common | pictures | {"max_steps": 1}}


def given(vision_model: str, processes: int, shared: bool) -> dict[str, dict[str, Any]]:
    size = 8 // processes
    return {
        name: {**run, "per_device_train_batch_size": size, "shared_prefix": shared}
        for name, run in runs(vision_model).items()
    }


@pytest.mark.slow
def test_two_processes_share_as_one_does(text_model: str, vision_model: str, out: str) -> None:
    host = {
        name: replay(**{"model": text_model, "out": f"{out}/host/{name}", **run})
        for name, run in given(vision_model, 1, shared=False).items()
    }
    told = run_ranks(2, replay_all, text_model, out, given(vision_model, 2, shared=True))
    for name, wanted in host.items():
        first, second = (run[name] for run in told)
        for mine in (first, second):
            assert mine["processes"] == 2
            for left, right in zip(mine["weights"], wanted["weights"], strict=True):
                assert largest_difference(left, right) < 1e-5
            norms = [
                [e["grad_norm"] for e in run["logs"] if "grad_norm" in e] for run in (mine, wanted)
            ]
            assert norms[0] == pytest.approx(norms[1], rel=1e-4)
            assert {
                e["fastrl/shared_prefix"] for e in mine["logs"] if "fastrl/shared_prefix" in e
            } == {1.0}
        assert first["rows"] == second["rows"]
        # Rows were unequal, and blank ones filled up.
        real = [[sum(map(len, batch)) for batch in run["lengths"]] for run in (first, second)]
        assert real[0] != real[1]
        assert largest_difference(wanted["weights"][-1], wanted["weights"][0]) > 1e-5


def tallied(model: str, out: str) -> dict[str, list[float]]:
    """What is logged where the first process shares four chunks, and the second one of four."""
    trainer = make_trainer(model, out, shared_prefix=True)
    trainer.model.train()
    tally = trainer._tally
    if trainer.accelerator.is_main_process:
        for _ in range(4):
            tally.add_shared(host_tokens=30, packed_tokens=10)
    else:
        tally.add_shared(host_tokens=40, packed_tokens=30)
        tally.add_unpaid()
        tally.add_fallback(2)
    for _ in range(2):  # the second time there is nothing left
        trainer.log_generation_end()
    names = (name for name in trainer._metrics["train"] if "shared_prefix" in name)
    return {name: trainer._metrics["train"][name] for name in names}


@pytest.mark.slow
def test_chunks_of_all_processes_are_counted(text_model: str, out: str) -> None:
    expected = {
        "fastrl/shared_prefix": [5 / 8, 0.0],
        "fastrl/shared_prefix_fallback": [2.0, 0.0],
        "fastrl/shared_prefix_ratio": [160 / 70],
    }
    assert run_ranks(2, tallied, text_model, out) == [expected, expected]
