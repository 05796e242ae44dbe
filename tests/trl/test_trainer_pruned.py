"""What pruning changes in a run, and what it leaves alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from test_normalisation import random_batch, two_updates
from tiny_runs import (
    QUESTIONS,
    Recorder,
    largest_difference,
    make_trainer,
    text_rows,
    vision_rows,
    weights_of,
)

from fastrl.trl import FastGRPOTrainer, GenerationRecord
from fastrl.trl.splitting import SHARE_KEY
from trl import GRPOTrainer


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
    trainer = make_trainer(model, out, **overrides)
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


@pytest.mark.parametrize("pictures", [(1, 0, 2, 0), (0, 0, 0, 1)])
@pytest.mark.parametrize("weighting", ["kept", "exact"])
def test_vision_rows_keep_their_own_pixels(
    vision_model: str, out: str, pictures: tuple[int, ...], weighting: str
) -> None:
    """The log-probs of pruned micro-batches equal those of the same rows in the whole batch."""
    trainer = make_trainer(
        vision_model,
        out,
        dataset=vision_rows(8, pictures),
        beta=0.1,
        weighting=weighting,
        learning_rate=1e-3,
        shuffle_dataset=False,
        max_steps=6,
    )
    checked = []
    original_score = trainer._generate_and_score_completions
    original_split = trainer._new_micro_batches
    whole: dict[str, Any] = {}

    def score(inputs: Any) -> Any:
        output = original_score(inputs)
        with torch.no_grad():
            logps, _, _ = GRPOTrainer._get_per_token_logps_and_entropies(
                trainer,
                trainer.model,
                torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
                torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
                output["completion_ids"].shape[1],
                **{
                    key: output[key]
                    for key in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
                    if key in output
                },
            )
        whole["logps"], whole["batch"] = logps, output
        return output

    def split(batch: Any) -> Any:
        micro_batches = original_split(batch)
        for micro in micro_batches:
            if not micro[SHARE_KEY].rows:
                continue
            for row, logps in enumerate(micro["old_per_token_logps"]):
                mask = micro["completion_mask"][row].bool()
                candidates = [
                    whole["logps"][index][: len(logps)][mask]
                    for index in range(len(whole["logps"]))
                    if whole["batch"]["completion_ids"][index][: len(logps)][mask].tolist()
                    == micro["completion_ids"][row][mask].tolist()
                ]
                gaps = [float((logps[mask] - c).abs().max()) for c in candidates]
                checked.append(min(gaps))
        return micro_batches

    trainer._generate_and_score_completions = score
    trainer._new_micro_batches = split
    trainer.train()
    assert len(checked) > 10
    assert max(checked) < 1e-4
    assert all(np.isfinite(trainer.recorder.values("loss")))


def test_vision_with_nothing_left(vision_model: str, out: str) -> None:
    trainer = make_trainer(
        vision_model,
        out,
        dataset=vision_rows(4),
        reward=lambda completions, **kwargs: [1.0] * len(completions),
        drop_uninformative=True,
        max_steps=2,
    )
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(weights_of(trainer), before) == 0.0


def test_lora_reference_is_the_policy_without_its_adapter(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deferred equals what TRL computes at the same moment on the full batch."""
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    trainer = make_trainer(text_model, out, beta=0.1, peft_config=lora, max_steps=2)
    assert trainer.ref_model is None
    batches: list[Any] = []
    original = trainer._new_micro_batches
    trainer._new_micro_batches = lambda batch: batches.append(original(batch)) or batches[-1]
    trainer.train()
    checked = 0
    model = trainer.accelerator.unwrap_model(trainer.model)
    for micro in batches[0]:
        if not micro[SHARE_KEY].rows:
            continue
        ids = torch.cat([micro["prompt_ids"], micro["completion_ids"]], dim=1)
        mask = torch.cat([micro["prompt_mask"], micro["completion_mask"]], dim=1)
        with torch.no_grad(), model.disable_adapter():
            wanted, _, _ = GRPOTrainer._get_per_token_logps_and_entropies(
                trainer, model, ids, mask, micro["completion_ids"].shape[1]
            )
        used = micro["completion_mask"].bool()
        assert torch.allclose(micro["ref_per_token_logps"][used], wanted[used], atol=1e-6)
        gap = (micro["old_per_token_logps"] - micro["ref_per_token_logps"])[used].abs().max()
        assert gap > 1e-4  # the adapter does something
        checked += micro[SHARE_KEY].rows
    assert checked
    assert sum(trainer.recorder.values("fastrl/time/ref_logps")) > 0


def test_gradient_checkpointing_changes_nothing(text_model: str, out: str) -> None:
    runs = []
    for checkpointing in (False, True):
        trainer = make_trainer(
            text_model, out, beta=0.1, weighting="exact", gradient_checkpointing=checkpointing
        )
        trainer.train()
        runs.append(weights_of(trainer))
    assert largest_difference(*runs) < 1e-6


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


def test_bf16(text_model: str, out: str) -> None:
    for weighting in ("kept", "exact"):
        trainer = make_trainer(text_model, out, bf16=True, beta=0.1, weighting=weighting)
        before = weights_of(trainer)
        trainer.train()
        assert all(np.isfinite(trainer.recorder.values("loss")))
        assert largest_difference(weights_of(trainer), before) > 1e-4


@pytest.mark.slow
def test_torch_compile(text_model: str, out: str) -> None:
    eager = make_trainer(text_model, out, max_steps=2, max_completion_length=4)
    eager.train()
    compiled = make_trainer(
        text_model, out, max_steps=2, max_completion_length=4, torch_compile=True
    )
    compiled.train()
    assert compiled.recorder.values("loss") == pytest.approx(
        eager.recorder.values("loss"), abs=1e-4
    )


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


@pytest.mark.parametrize("rule", ["top_advantage", "max_variance", "random"])
def test_other_rules_keep_their_fraction(text_model: str, out: str, rule: str) -> None:
    trainer = make_trainer(text_model, out, prune_rule=rule, keep_fraction=0.5, max_steps=2)
    trainer.train()
    assert trainer.recorder.values("fastrl/kept") == [8.0]


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
