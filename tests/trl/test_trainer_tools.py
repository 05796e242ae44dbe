"""Tools and environments: turns of other speakers inside a completion, and their masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from datasets import Dataset
from test_normalisation import moved_policy
from tiny_runs import QUESTIONS, Recorder, largest_difference, settings
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from fastrl.geometry.toy.text import build_tokenizer
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, GenerationRecord
from fastrl.trl.splitting import SHARE_KEY

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>'


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.

    Returns:
        Their sum.
    """
    return a + b


class Sums:
    """An environment that counts how often it was asked to add."""

    def reset(self, **kwargs: Any) -> None:
        self.calls = 0

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first.
            b: the second.

        Returns:
            Their sum.
        """
        self.calls += 1
        return a + b

    def get_reward(self) -> float:
        return float(self.calls)


def with_turns(trainer_class: type, caller: Any) -> type:
    """First turns of rows for which `caller(row)` call the tool, the others answer at once."""

    class Turns(trainer_class):  # type: ignore[misc, valid-type]
        def _generate_single_turn(
            self, prompt_ids: Any, images: Any, fields: Any, num_generations: int, **kwargs: Any
        ) -> Any:
            def ids(text: str) -> list[int]:
                tokenizer = self._tokenizer
                return [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]

            if num_generations == 1:  # after the tool
                return [ids("the sum is 7") for _ in prompt_ids], None
            return [ids(CALL if caller(row) else "no") for row in range(len(prompt_ids))], None

    return Turns


def run(
    out: str, host: type, caller: Any, rows: int = 4, **overrides: Any
) -> tuple[Any, list[Any], list[GenerationRecord]]:
    """One update on 4 groups of 4 of a model with room for the tool's description."""
    tokenizer = build_tokenizer()
    tokenizer.chat_template = qwen3_chat_template
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    folder = f"{out}/model"
    Qwen2ForCausalLM(config).save_pretrained(folder)
    fast = issubclass(host, FastGRPOTrainer)
    given: dict[str, Any] = {"max_completion_length": 400, "max_steps": 1, "optim": "sgd"}
    given |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    given |= {"max_grad_norm": 0.0, "beta": 0.2}
    reward_funcs = overrides.pop("reward_funcs", [rewards_of_the_call])
    extra = {
        key: overrides.pop(key) for key in ("tools", "environment_factory") if key in overrides
    }
    questions = [{"role": "user", "content": question} for question in QUESTIONS[:rows]]
    recorder = Recorder(gradients=True)
    trainer = with_turns(host, caller)(
        model=folder,
        args=(FastGRPOConfig if fast else GRPOConfig)(**settings(out, **given, **overrides)),
        train_dataset=Dataset.from_list([{"prompt": [question]} for question in questions]),
        processing_class=tokenizer,
        callbacks=[recorder],
        reward_funcs=reward_funcs,
        **extra,
    )
    trainer.recorder = recorder
    micro_batches: list[Any] = []
    records: list[GenerationRecord] = []
    if fast:
        original = trainer._new_micro_batches
        trainer._new_micro_batches = lambda batch: (
            micro_batches.extend(original(batch)) or micro_batches
        )
        trainer.rollout_observers.append(records.append)
    moved_policy(trainer)
    trainer.train()
    return trainer, micro_batches, records


def rewards_of_the_call(completions: Any, **kwargs: Any) -> list[float]:
    """1 for completions in which the tool has answered."""
    return [
        float(any(message["role"] == "tool" for message in completion))
        for completion in completions
    ]


@pytest.mark.parametrize(
    ("loss_type", "rule"),
    [
        ("dapo", {"prune_rule": "differential"}),
        ("grpo", {"prune_rule": "random", "keep_fraction": 1.0}),
    ],
)
def test_the_gradient_with_tools_is_plain_trls(
    out: str, loss_type: str, rule: dict[str, Any]
) -> None:
    """Rows of equal reward are equal, so that "exact" has the full batch's gradient at once."""

    def calls(row: int) -> bool:
        return row % 4 == 1 or row % 8 == 6

    given: dict[str, Any] = {"tools": [add], "loss_type": loss_type}
    plain, _, _ = run(out, GRPOTrainer, calls, **given)
    fast, micro_batches, (record,) = run(out, FastGRPOTrainer, calls, **given, **rule)
    assert largest_difference(fast.recorder.gradients[0], plain.recorder.gradients[0]) < 1e-5
    kept = record.kept_N.sum()
    assert kept == (16 if rule["prune_rule"] == "random" else 8)
    assert record.reward_N.tolist() == [float(calls(row)) for row in range(16)]
    masked = [
        int((micro["completion_mask"] * (1 - micro["tool_mask"])).sum())
        for micro in micro_batches
        if micro[SHARE_KEY].rows
    ]
    # Every kept row that called has the tool's turn in it, which the loss does not count.
    callers = sum(calls(int(row)) for row in record.selection.keep)
    assert sum(masked) == callers * (sum(masked) // callers) > 0
    assert fast.recorder.values("tools/call_frequency") == [6 / 16]


def test_environments_give_the_reward_under_dynamic_sampling(out: str) -> None:
    """Their instances are reset for every round; the reward is that of a row's own instance."""
    batches = []

    def calls(row: int) -> bool:
        batches.append(row)
        # In the first round the second and fourth groups call throughout: no contrast.
        in_first = len(batches) <= 16
        return (row // 4) % 2 == 1 or row % 2 == 1 if in_first else row % 2 == 1

    trainer, _, (record,) = run(
        out,
        FastGRPOTrainer,
        calls,
        rows=8,
        environment_factory=Sums,
        reward_funcs=[],
        dynamic_sampling=True,
        prune_rule="none",
    )
    assert record.reward_N[:16].tolist() == [0.0, 1.0] * 8
    assert record.reward_N[16:].tolist() == [1.0] * 8
    assert record.selection.reason.tolist() == ["rule"] * 16 + ["resampled"] * 8
    assert trainer.recorder.values("fastrl/resample_rounds") == [1.0]
