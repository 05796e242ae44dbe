"""What pruning changes in a run, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from test_normalisation import random_batch, two_updates
from tiny_runs import (
    QUESTIONS,
    Recorder,
    largest_difference,
    make_trainer,
    weights_of,
)
from trl import GRPOTrainer

from fastrl.trl import FastGRPOTrainer, GenerationRecord
from fastrl.trl.weighting import SHARE_KEY


def count_forwards(patches: pytest.MonkeyPatch) -> dict[str, int]:
    """Rows that pass through the policy without and with gradients, and through the reference.

    Generation is left out: its forwards go through `generate`.
    """
    seen = {"no_grad": 0, "grad": 0, "ref": 0}
    original = GRPOTrainer._get_per_token_logps_and_entropies

    def counted(self: Any, model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        kind = "ref" if model is self.ref_model else "grad"
        if kind == "grad" and not torch.is_grad_enabled():
            kind = "no_grad"
        seen[kind] += len(input_ids)
        assert len(input_ids) <= self.args.per_device_train_batch_size
        return original(self, model, input_ids, *args, **kwargs)

    patches.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", counted)
    return seen


def watched(
    model: str, out: str, patches: pytest.MonkeyPatch, **overrides: Any
) -> tuple[Any, dict[str, int], list[GenerationRecord]]:
    # Rows that share a prefix go past the method that is counted.
    trainer = make_trainer(model, out, shared_prefix=False, **overrides)
    records: list[GenerationRecord] = []
    trainer.rollout_observers.append(records.append)
    return trainer, count_forwards(patches), records


@pytest.mark.parametrize("weighting", ["kept", "exact"])
def test_log_probs_are_computed_on_kept_rows_alone(
    text_model: str, out: str, weighting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, seen, records = watched(
        text_model, out, monkeypatch, beta=0.1, weighting=weighting, adaptive_rollouts=False
    )
    trainer.train()
    assert len(records) == 2  # 4 updates, 2 a generation
    kept = sum(len(record.selection.keep) for record in records)
    assert kept < sum(len(record.completions) for record in records) == 32
    assert seen == {"no_grad": kept, "grad": kept, "ref": kept}
    assert trainer.state.global_step == 4
    assert trainer.lr_scheduler.last_epoch == 4


def test_no_old_log_probs_where_trl_needs_none(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, seen, records = watched(
        text_model, out, monkeypatch, gradient_accumulation_steps=4, max_steps=2
    )
    trainer.train()
    kept = sum(len(record.selection.keep) for record in records)
    assert seen == {"no_grad": 0, "grad": kept, "ref": 0}


def test_iterations_reuse_the_kept_rows(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, seen, records = watched(
        text_model, out, monkeypatch, num_iterations=3, max_steps=6, adaptive_rollouts=False
    )
    trainer.train()
    assert len(records) == 1
    kept = len(records[0].selection.keep)
    assert seen == {"no_grad": kept, "grad": 3 * kept, "ref": 0}


def test_a_generation_may_be_smaller_than_an_update(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two generation batches feed one update."""
    trainer, seen, records = watched(
        text_model,
        out,
        monkeypatch,
        gradient_accumulation_steps=4,
        steps_per_generation=2,
        max_steps=2,
    )
    trainer.train()
    assert len(records) == 4
    assert seen["grad"] == sum(len(record.selection.keep) for record in records)
    assert trainer._generation_step == 4


def test_windows_that_straddle_iterations(text_model: str, out: str) -> None:
    """2 micro-batches used 3 times, updates of 4: generations and updates meet every 3 updates."""
    trainer = make_trainer(
        text_model,
        out,
        gradient_accumulation_steps=4,
        steps_per_generation=2,
        num_iterations=3,
        max_steps=3,
        save_strategy="steps",
        save_steps=1,
    )
    assert trainer._updates_per_generation == 3
    trainer.train()
    assert trainer.args.save_steps == 3
    assert trainer.at_generation_boundary


@pytest.mark.parametrize("windows", [1, 2, 4])
def test_updates_get_equal_shares(text_model: str, out: str, windows: int) -> None:
    trainer = make_trainer(
        text_model, out, gradient_accumulation_steps=4 // windows, max_steps=windows
    )
    batches: list[Any] = []
    original = trainer._new_micro_batches
    trainer._new_micro_batches = lambda batch: batches.append(original(batch)) or batches[-1]
    trainer.train()
    rows = [micro[SHARE_KEY].rows for micro in batches[0]]
    per_window = np.array(rows).reshape(windows, -1).sum(axis=1)
    assert len(set(per_window.tolist())) == 1  # refill makes them equal
    assert max(rows) <= 4
    tokens = [
        int(micro["completion_mask"].sum() + micro["prompt_mask"].sum()) if size else 0
        for micro, size in zip(batches[0], rows, strict=True)
    ]
    sums = np.array(tokens).reshape(windows, -1).sum(axis=1)
    # No row is longer than a prompt and a completion: that bounds how far shares can be apart.
    assert sums.max() - sums.min() <= 40


def test_nothing_left_leaves_the_weights_alone(text_model: str, out: str) -> None:
    calls = []

    def flat_at_first(completions: Any, **kwargs: Any) -> list[float]:
        calls.append(len(completions))
        return [1.0 if len(calls) == 1 else float(i % 2) for i in range(len(completions))]

    snapshots = []

    class Snapshot(Recorder):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            snapshots.append(
                {name: p.detach().clone() for name, p in kwargs["model"].named_parameters()}
            )

    trainer = make_trainer(
        text_model,
        out,
        reward=flat_at_first,
        callbacks=[Snapshot()],
        drop_uninformative=True,
        similarity_threshold=0.0,
        weight_decay=0.5,
        beta=0.1,
    )
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(snapshots[0], before) == 0.0
    assert largest_difference(snapshots[1], before) == 0.0
    assert largest_difference(snapshots[2], before) > 1e-3
    assert trainer.recorder.values("fastrl/skipped_updates") == [2.0, 0.0]
    assert trainer.recorder.values("fastrl/kept") == [0.0, 8.0]
    assert trainer.recorder.values("fastrl/groups_without_contrast") == [1.0, 0.0]
    assert trainer.state.global_step == 4


def test_the_same_question_twice_is_two_groups(text_model: str, out: str) -> None:
    dataset = Dataset.from_list([{"prompt": QUESTIONS[0]}] * 4)
    trainer = make_trainer(text_model, out, dataset=dataset, max_steps=2, similarity_threshold=0.0)
    records: list[GenerationRecord] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    assert len(set(records[0].prompts)) == 1
    assert len(records[0].selection.kept_per_group) == 4


def test_start_step(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, start_step=1, similarity_threshold=0.0)
    trainer.train()
    first, second = trainer.recorder.values("fastrl/kept")
    assert first == 16
    assert second < 16


def test_until_start_step_a_run_is_plain_trl(text_model: str, out: str) -> None:
    plain = make_trainer(text_model, out, trainer_class=GRPOTrainer)
    plain.train()
    fast = make_trainer(text_model, out, start_step=2)
    fast.train()
    assert largest_difference(weights_of(fast), weights_of(plain)) == 0.0


def test_masked_truncated_completions(text_model: str, out: str) -> None:
    """Every completion of a random model is truncated: no token counts, nothing moves."""
    trainer = make_trainer(
        text_model, out, mask_truncated_completions=True, max_completion_length=3, loss_type="bnpo"
    )
    records: list[GenerationRecord] = []
    trainer.rollout_observers.append(records.append)
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(weights_of(trainer), before) == 0.0
    # They are told apart by the tokens that were sampled, not by the mask.
    assert (records[0].selection.reason == "different").any()
    assert all(np.isfinite(trainer.recorder.values("loss")))


def test_the_same_seed_gives_the_same_run(text_model: str, out: str) -> None:
    runs = []
    for _ in range(2):
        trainer = make_trainer(text_model, out, weighting="exact", beta=0.1)
        trainer.train()
        runs.append(weights_of(trainer))
    assert largest_difference(*runs) == 0.0


def test_generation_is_as_without_pruning(text_model: str, out: str) -> None:
    """Pruning draws nothing from torch's generators: with a frozen policy the texts are TRL's."""
    texts = []
    for rule in ("none", "differential"):
        trainer = make_trainer(
            text_model,
            out,
            prune_rule=rule,
            learning_rate=0.0,
            adaptive_rollouts=False,
            max_steps=2,
        )
        records: list[GenerationRecord] = []
        trainer.rollout_observers.append(records.append)
        trainer.train()
        texts.append(records[0].completions)
    assert texts[0] == texts[1]


def test_row_order_does_not_matter(text_model: str, out: str) -> None:
    """The same rows in another order: the same kept rows, loss and gradient."""
    batch = random_batch()
    turned = random_batch()
    turned.texts = [group[::-1] for group in turned.texts]
    turned.rewards = [group[::-1] for group in turned.rewards]
    # One row a bucket, so that the choice of seeds does not depend on the order either.
    for fixed in (batch, turned):
        fixed.rewards = [[0.0, 1.0, 2.0, 3.0][:: (1 if fixed is batch else -1)]] * 4
    gradients = [
        two_updates(
            text_model,
            out,
            fixed,
            FastGRPOTrainer,
            steps_per_generation=4,
            gradient_accumulation_steps=4,
            per_device_train_batch_size=4,
            loss_type=loss_type,
        )
        for loss_type in ("grpo", "dapo")
        for fixed in (batch, turned)
    ]
    for left, right in (gradients[:2], gradients[2:]):
        assert largest_difference(left[0], right[0]) < 1e-5
        assert largest_difference(left[1], right[1]) < 1e-5
