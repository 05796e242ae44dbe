"""TRL's other settings under pruning: adapters, precision, compilation, options of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_normalisation import OnlyKept, assert_same, kept_rows, random_batch, two_updates
from tiny_runs import (
    PUBLISHED,
    largest_difference,
    make_trainer,
    settings,
    text_rows,
    token_reward,
    weights_of,
)
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, GenerationRecord
from fastrl.trl.weighting import SHARE_KEY


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


def test_bf16(text_model: str, out: str) -> None:
    for weighting in ("kept", "exact"):
        trainer = make_trainer(text_model, out, bf16=True, beta=0.1, weighting=weighting)
        before = weights_of(trainer)
        trainer.train()
        assert all(np.isfinite(trainer.recorder.values("loss")))
        assert largest_difference(weights_of(trainer), before) > 1e-4


@pytest.mark.slow
def test_torch_compile(text_model: str, out: str) -> None:
    # A compiled model shares no prefixes; so that both deal their rows alike, neither does here.
    short = {"max_steps": 2, "max_completion_length": 4, "shared_prefix": False}
    eager = make_trainer(text_model, out, **short)
    eager.train()
    # The graphs are traced and cut as for any backend; building machine code takes a minute.
    compiled = make_trainer(text_model, out, **short, torch_compile_backend="eager")
    assert compiled.args.torch_compile
    compiled.train()
    assert compiled.recorder.values("loss") == pytest.approx(
        eager.recorder.values("loss"), abs=1e-4
    )


@pytest.mark.parametrize("rule", ["top_advantage", "max_variance", "random"])
def test_other_rules_keep_their_fraction(text_model: str, out: str, rule: str) -> None:
    trainer = make_trainer(text_model, out, prune_rule=rule, keep_fraction=0.5, max_steps=2)
    trainer.train()
    assert trainer.recorder.values("fastrl/kept") == [8.0]


def test_an_adapter_trained_before_is_its_own_reference(text_model: str, out: str) -> None:
    """TRL keeps a copy of it under the name "ref"."""
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(text_model), lora)
    trainer = FastGRPOTrainer(
        model=model,
        reward_funcs=token_reward,
        args=FastGRPOConfig(**PUBLISHED, **settings(out, beta=0.1, max_steps=2)),
        train_dataset=text_rows(),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    assert "ref" in trainer.accelerator.unwrap_model(trainer.model).peft_config
    batches: list[Any] = []
    original = trainer._new_micro_batches
    trainer._new_micro_batches = lambda batch: batches.append(original(batch)) or batches[-1]
    trainer.train()
    for micro in batches[0]:
        if micro[SHARE_KEY].rows:
            # Before the first update the policy is its reference.
            gap = micro["ref_per_token_logps"] - micro["old_per_token_logps"]
            assert float((gap * micro["completion_mask"]).abs().max()) < 1e-6


OPTIONS: list[dict[str, Any]] = [
    {},
    {"scale_rewards": "batch"},
    {"scale_rewards": "none", "loss_type": "dr_grpo"},
    {"multi_objective_aggregation": "normalize_then_sum"},
    {"delta": 1.3, "epsilon_high": 0.28, "loss_type": "dapo"},
    {"use_bias_correction_kl": True, "importance_sampling_level": "sequence", "loss_type": "grpo"},
    {"off_policy_mask_threshold": 1e-4},
    # One prompt's answers share the entropy of their first token, up to rounding. At 0.5 the
    # threshold would fall among four of them, and rounding would choose; at 0.46 it is in a gap.
    {"top_entropy_quantile": 0.46, "per_device_train_batch_size": 16, "micro_batches": 1},
    {"pad_to_multiple_of": 8},
    {"mask_truncated_completions": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "defaults")
def test_keeping_everything_through_the_pruned_path_is_plain_trl(
    text_model: str, out: str, options: dict[str, Any]
) -> None:
    """Deferred log-probs, our split and our factors, on all rows: the host's own gradients."""
    given = {"beta": 0.3, "per_device_train_batch_size": 4, "micro_batches": 4, **options}
    micro_batches = given.pop("micro_batches")
    given |= {"gradient_accumulation_steps": micro_batches, "steps_per_generation": micro_batches}
    batch = random_batch(seed=5)
    # One token ends two of the completions: not all are truncated.
    end = AutoTokenizer.from_pretrained(text_model).eos_token_id
    for group in batch.texts:
        group[1][-1] = group[2][-1] = end
    wanted = two_updates(text_model, out, batch, GRPOTrainer, **given)
    for weighting in ("kept", "exact"):
        if weighting == "exact" and "top_entropy_quantile" in options:
            continue
        found = two_updates(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            prune_rule="random",
            keep_fraction=1.0,
            weighting=weighting,
            **given,
        )
        assert_same(found, wanted)


def test_a_rollout_function_of_the_users_own(text_model: str, out: str) -> None:
    """It returns the tokens and log-probs that it sampled with, and fields for the reward."""

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [[20 + index % 5, 30, 31] for index in range(len(prompts))]
        return {
            "prompt_ids": [[40, 41]] * len(prompts),
            "completion_ids": ids,
            "logprobs": [[-1.0, -1.0, -1.0]] * len(prompts),
            "score": [float(index % 3) for index in range(len(prompts))],
        }

    def reward(completions: Any, score: list[float], **kwargs: Any) -> list[float]:
        return score

    trainer = FastGRPOTrainer(
        model=text_model,
        reward_funcs=reward,
        args=FastGRPOConfig(**PUBLISHED, **settings(out, max_steps=2)),
        train_dataset=text_rows(),
        processing_class=AutoTokenizer.from_pretrained(text_model),
        rollout_func=rollout,
    )
    records: list[GenerationRecord] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    assert records[0].reward_N.tolist() == [float(index % 3) for index in range(16)]
    assert 8 <= len(records[0].selection.keep) < 16


def test_a_rollout_functions_mask_is_plain_trls(text_model: str, out: str) -> None:
    """Under rule "none", and with everything kept; tokens of `env_mask` 0 do not count."""

    def rollout(prompts: list[str], trainer: Any, masks: bool = True) -> dict[str, Any]:
        told = {
            "prompt_ids": [[40, 41]] * len(prompts),
            "completion_ids": [[20 + index % 5, 30 + index, 31] for index in range(len(prompts))],
            "logprobs": [[-1.0, -1.0, -1.0]] * len(prompts),
        }
        return told | ({"env_mask": [[1, 0, 1]] * len(prompts)} if masks else {})

    def unmasked(prompts: list[str], trainer: Any) -> dict[str, Any]:
        return rollout(prompts, trainer, masks=False)

    def trained(host: type, function: Any, **fields: Any) -> dict[str, torch.Tensor]:
        config = GRPOConfig if host is GRPOTrainer else FastGRPOConfig
        trainer = host(
            model=text_model,
            reward_funcs=token_reward,
            args=config(**settings(out, max_steps=1, gradient_accumulation_steps=4, **fields)),
            train_dataset=text_rows(),
            processing_class=AutoTokenizer.from_pretrained(text_model),
            rollout_func=function,
        )
        trainer.train()
        return weights_of(trainer)

    plain = trained(GRPOTrainer, rollout)
    assert largest_difference(trained(FastGRPOTrainer, rollout, prune_rule="none"), plain) == 0.0
    everything = {"prune_rule": "random", "keep_fraction": 1.0, "weighting": "kept"}
    found = trained(FastGRPOTrainer, rollout, **everything)
    assert largest_difference(found, plain) < 1e-3  # AdamW magnifies rounding
    assert largest_difference(trained(GRPOTrainer, unmasked), plain) > 1e-2


def test_the_quantile_of_entropy_is_that_of_the_kept_tokens(text_model: str, out: str) -> None:
    batch = random_batch(seed=5)
    OnlyKept.rows = kept_rows(batch)
    given = {"beta": 0.3, "top_entropy_quantile": 0.46}
    wanted = two_updates(text_model, out, batch, OnlyKept, **given)
    found = two_updates(text_model, out, batch, FastGRPOTrainer, similarity_threshold=0.0, **given)
    assert_same(found, wanted)


def test_tokens_chosen_by_entropy_count_alike_in_several_micro_batches(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL takes the quantile of each micro-batch; with one threshold for all, so is the gradient.

    One micro-batch of the kept rows in plain TRL against 2 and 4 pruned ones.
    """
    chosen: list[float] = []

    def above(self: Any, entropies: torch.Tensor, mask: torch.Tensor, quantile: float) -> Any:
        assert quantile == pytest.approx(0.54)
        picked = (entropies > 5.25) & mask.bool()
        chosen.append(float(picked.sum() / mask.sum()))
        return picked

    monkeypatch.setattr(GRPOTrainer, "get_high_entropy_mask", above)
    batch = random_batch(seed=5)
    OnlyKept.rows = kept_rows(batch)
    given = {"beta": 0.3, "top_entropy_quantile": 0.46}
    wanted = two_updates(text_model, out, batch, OnlyKept, **given)
    assert 0.05 < chosen[0] < 0.95
    for accumulation in (2, 4):
        found = two_updates(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            similarity_threshold=0.0,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            per_device_train_batch_size=16 // accumulation,
            **given,
        )
        assert_same(found, wanted)
