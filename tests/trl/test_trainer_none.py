"""prune_rule="none" is TRL: the same losses, gradients and weights."""

from __future__ import annotations

from typing import Any

import pytest
from rank_runs import plain_and_none
from tiny_runs import largest_difference, make_trainer, vision_rows, weights_of
from trl import GRPOTrainer

from process_runs import run_ranks


def same_run(model: str, out: str, **overrides: Any) -> None:
    plain = make_trainer(
        model, out + "/plain", trainer_class=GRPOTrainer, gradients=True, **overrides
    )
    plain.train()
    fast = make_trainer(model, out + "/fast", gradients=True, prune_rule="none", **overrides)
    fast.train()
    for name in ("loss", "grad_norm", "reward", "entropy", "kl"):
        assert fast.recorder.values(name) == pytest.approx(plain.recorder.values(name), abs=1e-6)
    assert max(plain.recorder.values("grad_norm")) > 1e-3
    for mine, theirs in zip(fast.recorder.gradients, plain.recorder.gradients, strict=True):
        assert largest_difference(mine, theirs) < 1e-6
    assert largest_difference(weights_of(fast), weights_of(plain)) < 1e-6
    assert fast.recorder.values("fastrl/kept") == fast.recorder.values("fastrl/generated")


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_text_is_plain_trl(text_model: str, out: str, beta: float) -> None:
    same_run(text_model, out, beta=beta)


def test_text_is_plain_trl_with_several_iterations(text_model: str, out: str) -> None:
    same_run(text_model, out, num_iterations=2, max_steps=6, loss_type="grpo")


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_vision_is_plain_trl(vision_model: str, out: str, beta: float) -> None:
    same_run(vision_model, out, beta=beta, dataset=vision_rows(4, pictures=(1, 2)))


@pytest.mark.slow
def test_two_processes_are_plain_trl(text_model: str, out: str) -> None:
    for told in run_ranks(
        2, plain_and_none, text_model, out, max_steps=2, beta=0.1, log_completions=True
    ):
        assert largest_difference(told["fast"], told["plain"]) == 0.0
        for record in told["records"]:
            assert len(record.completions) == len(record.reward_N) == 32
            assert record.reward_N.shape == record.advantages_N.shape
