"""prune_rule="none" is TRL: the same losses, gradients and weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import largest_difference, make_trainer, vision_rows, weights_of
from trl import GRPOTrainer


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


TWO_PROCESSES = """
import sys
import torch
from tiny_runs import make_trainer, largest_difference, weights_of
from trl import GRPOTrainer

model, out = sys.argv[1:]
torch.set_num_threads(1)
runs = []
for trainer_class, given in ((GRPOTrainer, {}), (None, {"prune_rule": "none"})):
    trainer = make_trainer(
        model, out, trainer_class=trainer_class, log_completions=True, max_steps=2, **given
    )
    records = []
    if trainer_class is None:
        trainer.rollout_observers.append(records.append)
    trainer.train()
    runs.append(weights_of(trainer))
assert trainer.accelerator.num_processes == 2
assert largest_difference(*runs) == 0.0
(record,) = records
assert len(record.completions) == len(record.reward_N) == 16
assert record.reward_N.shape == record.advantages_N.shape
print("the same on two", flush=True)
"""


@pytest.mark.slow
def test_two_processes_are_plain_trl(text_model: str, out: str, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"),
            *("--master_port=29731", str(script), text_model, out),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([here, *sys.path]), "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.count("the same on two") == 2, done.stderr[-3000:]
