"""Metrics and phase times of a run."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import (
    Recorder,
    largest_difference,
    make_trainer,
    text_rows,
    weights_of,
)

from fastrl.trl import GenerationRecord


def test_metrics_of_a_batch_worked_out_by_hand(text_model: str, out: str) -> None:
    """Groups: no contrast; 2 + 2; 1 + 3; 4 levels. Kept 1 + 2 + 2 + 4 = 9, refilled to 10."""
    rewards = [1.0] * 4 + [0.0, 1.0, 0.0, 1.0] + [0.0, 0.0, 0.0, 2.0] + [0.0, 1.0, 2.0, 3.0]
    trainer = make_trainer(
        text_model,
        out,
        reward=lambda completions, **kwargs: rewards,
        similarity_threshold=0.0,
        max_steps=2,
        logging_steps=2,
    )
    records: list[GenerationRecord] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    logged = trainer.recorder.logs[0]
    assert logged["fastrl/generated"] == 16
    assert logged["fastrl/kept_before_refill"] == 9
    assert logged["fastrl/kept"] == 10
    assert logged["fastrl/kept_per_prompt"] == 2.5
    assert logged["fastrl/max_kept_per_prompt"] == 4
    assert logged["fastrl/num_generations"] == 4
    assert logged["fastrl/groups_without_contrast"] == 0.25
    assert logged["fastrl/reward"] == pytest.approx(np.mean(rewards)) == logged["reward"]
    assert logged["fastrl/skipped_updates"] == 0
    (record,) = records
    assert record.reward_N.tolist() == rewards
    assert record.rewards["<lambda>"].tolist() == rewards
    assert record.step == record.generation_step == 0
    groups = np.array(rewards).reshape(4, 4)
    spread = groups.std(axis=1, ddof=1, keepdims=True)
    wanted = (groups - groups.mean(axis=1, keepdims=True)) / (spread + 1e-4)
    assert record.advantages_N == pytest.approx(wanted.ravel(), abs=1e-5)
    assert len(record.prompts) == len(record.completions) == 16
    assert record.prompts[0] == record.prompts[3] != record.prompts[4]
    seeds = [0, 4, 5, 8, 11, 12, 13, 14, 15]
    assert np.flatnonzero(record.selection.reason == "seed").tolist() == seeds
    assert record.kept_N.sum() == 10


class WallClock(Recorder):
    """The time from the beginning of training to the last log of a step."""

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.begin = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.end = time.perf_counter()


def test_phase_times_add_up_and_tell_evaluation_apart(text_model: str, out: str) -> None:
    def slow(completions: Any, **kwargs: Any) -> list[float]:
        time.sleep(0.05)
        return [float(i % 3) for i in range(len(completions))]

    wall = WallClock()
    trainer = make_trainer(
        text_model,
        out,
        reward=slow,
        callbacks=[wall],
        beta=0.1,
        eval_dataset=text_rows(4),
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=2,
        per_device_eval_batch_size=8,
        max_steps=6,
    )
    trainer.train()
    phases: dict[str, list[float]] = {}
    for entry in trainer.recorder.logs:
        for key, value in entry.items():
            if key.startswith("fastrl/time/"):
                phases.setdefault(key.removeprefix("fastrl/time/"), []).append(value)
    wanted = {"generate", "reward", "prune", "old_logps", "ref_logps", "update", "other"}
    assert phases.keys() == wanted | {"evaluate", "checkpoint"}
    assert min(value for values in phases.values() for value in values) >= 0
    assert len(phases["update"]) == 3  # one a generation batch
    assert 0.15 <= sum(phases["reward"]) < 0.4  # without the 10 batches of evaluations
    assert sum(phases["evaluate"]) > 10 * 0.05
    total = sum(sum(values) for values in phases.values())
    assert total == pytest.approx(wall.end - wall.begin, rel=0.02)


def test_evaluation_in_between_changes_nothing_but_chance(text_model: str, out: str) -> None:
    """Evaluation inside a generation batch leaves the buffered rows and their metrics alone."""
    trainer = make_trainer(
        text_model,
        out,
        eval_dataset=text_rows(2),
        eval_strategy="steps",
        eval_steps=1,
        max_steps=2,
    )
    trainer.train()
    alone = make_trainer(text_model, out, max_steps=2)
    alone.train()
    assert largest_difference(weights_of(trainer), weights_of(alone)) == 0.0
    evaluated = [entry for entry in trainer.recorder.logs if "eval_loss" in entry]
    assert len(evaluated) == 2
    assert not any(key.startswith("eval_fastrl/") for entry in evaluated for key in entry)


def test_rewards_alone_need_no_forward_pass(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, eval_dataset=text_rows(2), beta=0.1)
    asked = []
    forward = trainer._get_per_token_logps_and_entropies

    def counted(*args: Any, **kwargs: Any) -> Any:
        asked.append(trainer._deferring)
        return forward(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = counted
    scored = {}
    for alone in (False, True):
        torch.manual_seed(5)
        asked.clear()
        with trainer.rewards_alone() if alone else nullcontext():
            scored[alone] = trainer.evaluate()
        # Old and reference log-probs, and the loss; or the first two, put off for ever.
        assert asked == ([True, True] if alone else [False, False, False])
    assert scored[True]["eval_reward"] == scored[False]["eval_reward"]
    assert "eval_loss" in scored[False]
    assert "eval_loss" not in scored[True]


def test_rewards_that_cancel_are_no_contrast(text_model: str, out: str) -> None:
    """Each varies, their sum does not (TRL #3857): one row a group is kept, and the logs say so."""

    def one(completions: Any, **kwargs: Any) -> list[float]:
        return [float(index % 2) for index in range(len(completions))]

    def other(completions: Any, **kwargs: Any) -> list[float]:
        return [1.0 - float(index % 2) for index in range(len(completions))]

    given = {"reward": [one, other], "similarity_threshold": 0.0, "max_steps": 2}
    for drops, kept in ((False, 4.0), (True, 0.0)):
        trainer = make_trainer(
            text_model, out, weighting="exact", drop_uninformative=drops, **given
        )
        trainer.train()
        assert trainer.recorder.values("fastrl/kept") == [kept]
        assert trainer.recorder.values("fastrl/groups_without_contrast") == [1.0]
        assert trainer.recorder.values("frac_reward_zero_std") == [1.0]  # TRL's
        assert trainer.recorder.values("rewards/one/std")[0] > 0.4
        assert trainer.recorder.values("reward") == [1.0]
