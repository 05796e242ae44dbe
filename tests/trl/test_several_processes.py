"""Two and three processes train what one trains: the same kept rows, gradients and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from peft import LoraConfig
from rank_runs import completions, replay, replay_all, sampled
from tiny_runs import largest_difference, text_rows, vision_rows

from process_runs import run_ranks

# Largest difference of any weight after any of 5 AdamW updates, relative to the largest weight.
# Sums are taken in another order; AdamW's division magnifies that where a gradient is near zero
# (9e-5 was seen). Two more rows in an update make 2e-2.
TOLERANCE = 2e-4
# Of the gradient's norm: AdamW and clipping hide a gradient of the wrong size.
NORM_TOLERANCE = 1e-3

# 24 rollouts a generation batch, 2 updates each, whatever the number of processes.
COMMON: dict[str, Any] = {
    "recording": completions(3),
    "max_steps": 5,
    "weighting": "exact",
    "adaptive_rollouts": False,
    "similarity_threshold": 0.0,
    # Single rows move here; whole groups do in shared_prefix/test_prefix_ranks.py.
    "shared_prefix": False,
}
ALIKE = [60, 61]  # completions without contrast and without another path


def uneven_batches() -> list[list[list[int]]]:
    """Rows 0 to 11 are all alike: on the first of two processes every group is pruned to one."""
    return [[ALIKE] * 12 + batch[12:] for batch in completions(3, seed=1)]


def levels(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """Many levels, so that a rule keeps most of what differs."""
    return [0.0 if ids == ALIKE else float(sum(ids) % 7) for ids in completion_ids]


def all_but_one_alike(batches: int) -> list[list[list[int]]]:
    """One row of the generation batch differs: two are kept of all."""
    return [[ALIKE] * 20 + [[71]] + [ALIKE] * 3 for _ in range(batches)]


# By default a gradient that is mere rounding moves a weight as far as any other.
STEADY = {"adam_epsilon": 1e-6}


def cases(vision_model: str) -> dict[str, dict[str, Any]]:
    """Settings of the runs, but for the rows of a micro-batch, which hang on the processes."""
    return {
        "grpo": {"beta": 0.1, "loss_type": "grpo"},
        "kept": {"weighting": "kept", "loss_type": "dapo", "refill_multiple": 12},
        "uneven": {"recording": uneven_batches(), "reward": levels, "loss_type": "grpo"},
        "few": {
            "recording": all_but_one_alike(3),
            "reward": levels,
            "drop_uninformative": True,
            "loss_type": "grpo",
        },
        "nothing_at_first": {
            "recording": [[ALIKE] * 24, *completions(2, seed=3)],
            "drop_uninformative": True,
            "weight_decay": 0.5,
        },
        "refilled": {"weighting": "kept", "max_steps": 2},
        "straddling": {"num_generations": 8, "loss_type": "bnpo"},
        "iterations": {"loss_type": "dr_grpo", "num_iterations": 2},
        "small_generations": {
            "gradient_accumulation_steps": 4,
            "steps_per_generation": 2,
            "recording": completions(10, rows=12),
            "loss_type": "grpo",
        },
        # Gradients wait for the second batch of every update, which keeps no row.
        "last_batch_empty": {
            "gradient_accumulation_steps": 4,
            "steps_per_generation": 2,
            "recording": [
                batch for full in completions(5, rows=12) for batch in (full, [ALIKE] * 12)
            ],
            "drop_uninformative": True,
            "loss_type": "grpo",
        },
        "adaptive": ADAPTIVE,
        "adapter": {
            "peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"]),
            "beta": 0.1,
        },
        "pictures": {
            "model": vision_model,
            "dataset": vision_rows(6, pictures=(1, 2)),
            "recording": completions(3),
            **STEADY,
        },
        "some_without_pictures": {
            "model": vision_model,
            "dataset": vision_rows(6, pictures=(0, 0, 1)),
            "recording": completions(3, seed=2),
            **STEADY,
            "log_multimodal": False,  # TRL gathers pictures only where a process has some
        },
    }


# The first batch keeps much, later ones keep little: rollouts per prompt fall.
ADAPTIVE: dict[str, Any] = {
    "adaptive_rollouts": True,
    "weighting": "kept",
    "refill_multiple": 12,
    "reward": levels,
    "recording": [*completions(1, seed=5), *([[ALIKE] * 20 + completions(1)[0][:4]] * 3)],
    "max_steps": 8,
    "steps_per_epoch": 1,
    "save_strategy": "steps",
    "save_steps": 4,
}
ON_THREE = (
    "grpo",
    "kept",
    "uneven",
    "few",
    "nothing_at_first",
    "refilled",
    "last_batch_empty",
    "pictures",
)


def on(processes: int, run: dict[str, Any]) -> dict[str, Any]:
    steps = run.get("steps_per_generation", 4)
    rows = len(run.get("recording", COMMON["recording"])[0])
    return {**COMMON, **run, "per_device_train_batch_size": rows // steps // processes}


@pytest.fixture(scope="module")
def all_runs(
    text_model: str, vision_model: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """What each process of 1, 2 and 3 tells, by case; the folders stay for a resumed run."""
    out = str(tmp_path_factory.mktemp("ranks"))
    runs = cases(vision_model)
    told = {1: [replay_all(text_model, f"{out}/1", {n: on(1, run) for n, run in runs.items()})]}
    for world in (2, 3):
        names = runs if world == 2 else ON_THREE
        given = {name: on(world, runs[name]) for name in names}
        told[world] = run_ranks(world, replay_all, text_model, f"{out}/{world}", given)
    for one in told[1]:
        one["folder"] = out
    return told


def norms(told: dict[str, Any]) -> list[float]:
    return [entry["grad_norm"] for entry in told["logs"] if "grad_norm" in entry]


EQUAL = [(world, name) for name in cases("") for world in (2, 3) if world == 2 or name in ON_THREE]


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), EQUAL)
def test_the_same_as_on_one_process(all_runs: Any, world: int, name: str) -> None:
    one = all_runs[1][0][name]
    assert one["processes"] == 1
    for told in all_runs[world]:
        mine = told[name]
        assert (mine["processes"], mine["step"]) == (world, one["step"])
        for left, right in zip(mine["selections"], one["selections"], strict=True):
            assert left.num_before_refill == right.num_before_refill
            if name != "refilled":
                np.testing.assert_array_equal(left.keep, right.keep)
                np.testing.assert_array_equal(left.weights, right.weights)
        assert mine["schedule"] == one["schedule"]
        assert mine["rows"] == all_runs[world][0][name]["rows"]  # as many on every process
        if name != "refilled":
            for left, right in zip(mine["weights"], one["weights"], strict=True):
                assert largest_difference(left, right) < TOLERANCE
            assert norms(mine) == pytest.approx(norms(one), rel=NORM_TOLERANCE)
    moved = largest_difference(one["weights"][-1], one["weights"][0])
    assert moved > 20 * TOLERANCE  # there was something to compare


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_what_is_logged_is_of_all_processes(all_runs: Any, world: int) -> None:
    one = all_runs[1][0]["grpo"]["logs"]
    for told in all_runs[world]:
        for mine, theirs in zip(told["grpo"]["logs"], one, strict=True):
            for key, value in theirs.items():
                if key.startswith("fastrl/") and "/time/" not in key:
                    assert mine[key] == value, key
            # Entropy and KL are means over micro-batches, which other processes cut otherwise.
            for key, within in (("reward", 1e-6), ("grad_norm", 1e-4), ("entropy", 1e-2)):
                if key in theirs:
                    assert mine[key] == pytest.approx(theirs[key], rel=within), key


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_the_main_process_tells_observers_of_all_rows(all_runs: Any, world: int) -> None:
    one = all_runs[1][0]["grpo"]["records"]
    main, *others = (told["grpo"]["records"] for told in all_runs[world])
    assert all(records == [] for records in others)
    for mine, theirs in zip(main, one, strict=True):
        assert mine.prompts == theirs.prompts
        assert mine.completions == theirs.completions
        np.testing.assert_array_equal(mine.reward_N, theirs.reward_N)
        np.testing.assert_array_equal(mine.advantages_N, theirs.advantages_N)
        assert len(mine.completions) == 24


@pytest.mark.slow
def test_records_have_the_pictures_of_all_prompts(all_runs: Any) -> None:
    def sizes(told: dict[str, Any]) -> list[list[Any]]:
        records = told["pictures"]["records"]
        return [[p.size for p in pictures] for record in records for pictures in record.pictures_G]

    wanted = sizes(all_runs[1][0])
    assert len(wanted) == 3 * 6
    for world in (2, 3):
        assert sizes(all_runs[world][0]) == wanted


@pytest.mark.slow
def test_groups_pruned_to_one_take_over_rows(all_runs: Any) -> None:
    """The first process keeps 3 of its 12 rows, the second most: rows move, tokens are level."""
    told = [run["uneven"] for run in all_runs[2]]
    for batch, selection in enumerate(told[0]["selections"]):
        assert int((selection.keep < 12).sum()) == 3
        assert int((selection.keep >= 12).sum()) >= 8
        counts = [sum(map(len, run["lengths"][batch])) for run in told]
        assert sum(counts) == len(selection.keep)
        for window in (slice(0, 2), slice(2, 4)):
            rows = [sum(map(len, run["lengths"][batch][window])) for run in told]
            assert max(rows) - min(rows) <= 1
            sums = [sum(map(sum, run["lengths"][batch][window])) for run in told]
            assert max(sums) - min(sums) <= 19  # the longest row


@pytest.mark.slow
def test_fewer_rows_than_processes(all_runs: Any) -> None:
    """One row an update: it is on one process, the others pass a blank one."""
    told = [run["few"] for run in all_runs[3]]
    for batch in range(3):
        for micro in range(4):
            rows = [run["rows"][batch][micro] for run in told]
            real = [len(run["lengths"][batch][micro]) for run in told]
            assert (rows, sum(real)) == (([1, 1, 1], 1) if micro % 2 else ([0, 0, 0], 0))


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_an_update_without_rows_is_skipped_everywhere(all_runs: Any, world: int) -> None:
    for told in all_runs[world]:
        run = told["nothing_at_first"]
        assert run["rows"][0] == [0, 0, 0, 0]
        for step in (1, 2):
            assert largest_difference(run["weights"][step], run["weights"][0]) == 0.0
        skipped = [
            e["fastrl/skipped_updates"] for e in run["logs"] if "fastrl/skipped_updates" in e
        ]
        assert skipped == [2.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
def test_refill_fills_updates_on_every_process(all_runs: Any, world: int) -> None:
    for told in all_runs[world]:
        (selection,) = told["refilled"]["selections"]
        assert len(selection.keep) % (2 * world) == 0
        assert len(selection.keep) > selection.num_before_refill


@pytest.mark.slow
def test_rollouts_per_prompt_fall_alike(all_runs: Any) -> None:
    for told in (*all_runs[1], *all_runs[2]):
        logs = told["adaptive"]["logs"]
        used = [e["fastrl/num_generations"] for e in logs if "fastrl/num_generations" in e]
        assert used[0] == used[1] == 4
        assert used[-1] < 4


@pytest.mark.slow
def test_a_resumed_run_ends_where_the_whole_one_does(all_runs: Any, text_model: str) -> None:
    out = f"{all_runs[1][0]['folder']}/2/adaptive"
    resumed = run_ranks(2, replay, text_model, out, **on(2, ADAPTIVE), resume_at=4)
    for mine, told in zip(resumed, all_runs[2], strict=True):
        whole = told["adaptive"]
        assert mine["step"] == 8
        assert len(mine["selections"]) == 2
        assert mine["schedule"] == whole["schedule"]
        assert largest_difference(mine["weights"][-1], whole["weights"][-1]) == 0.0


@pytest.mark.slow
def test_sampling_and_evaluating_on_two(text_model: str, out: str) -> None:
    """No recording: each process samples for itself; the table has the rows of both."""
    given = {
        "eval_dataset": text_rows(4),
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_eval_batch_size": 8,
        "log_completions": True,
        "max_steps": 4,
    }
    first, second = run_ranks(2, sampled, text_model, out, **given)
    assert largest_difference(first["weights"], second["weights"]) == 0.0
    assert sum("eval_reward" in entry for entry in first["logs"]) == 2
    table = pd.read_parquet(f"{out}/completions/completions_00001.parquet")
    assert len(table) == 32
    assert table["kept"].sum() == first["logs"][0]["fastrl/kept"]
    assert set(table["reason"]) <= {"seed", "different", "duplicate", "refill"}
