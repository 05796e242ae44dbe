"""What FastRL cannot do is refused before any work starts, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import IterableDataset
from tiny_runs import PUBLISHED, make_trainer, settings, text_rows, token_reward, vision_rows
from transformers import AutoProcessor, TrainingArguments
from trl import GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer
from fastrl.trl.validation import given_argument, run_problems


def config(out: str, **overrides: Any) -> FastGRPOConfig:
    return FastGRPOConfig(**{**PUBLISHED, **settings(out, **overrides)})


def stream() -> IterableDataset:
    rows = list(text_rows(8))
    return IterableDataset.from_generator(lambda: iter(rows))


def test_an_ordinary_run_has_no_problems(out: str) -> None:
    assert run_problems(config(out), text_rows()) == []


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"use_vllm": True}, "use_vllm = True"),
        ({"entropy_coef": 0.1}, "entropy bonus"),
        ({"use_adaptive_entropy": True}, "entropy bonus"),
        ({"weighting": "exact", "top_entropy_quantile": 0.5}, "top_entropy_quantile = 0.5"),
        ({"fp16": True, "drop_uninformative": True}, "fp16 = True"),
        ({"fp16": True, "weighting": "exact"}, "fp16 = True"),
        (
            {"gradient_accumulation_steps": 3, "steps_per_generation": 4},
            "steps_per_generation = 4 and gradient_accumulation_steps = 3",
        ),
        (
            {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "best"}
            | {"metric_for_best_model": "reward"},
            "eval_steps = 3 with a best checkpoint",
        ),
    ],
)
def test_each_problem_is_told_with_a_remedy(out: str, overrides: dict[str, Any], told: str) -> None:
    (problem,) = run_problems(config(out, **overrides), text_rows())
    assert told in problem
    assert any(word in problem for word in ("set ", "use ", "make ", "multiple", "switch"))


@pytest.mark.parametrize("name", ["deepspeed", "fsdp"])
def test_sharded_training_is_refused(out: str, name: str) -> None:
    args = config(out)
    setattr(args, name, "something")
    (problem,) = run_problems(args, text_rows())
    assert "deepspeed or fsdp" in problem


def test_an_unknown_loss(out: str) -> None:
    args = config(out)
    args.loss_type = "brand_new"
    (problem,) = run_problems(args, text_rows())
    assert "loss_type = 'brand_new'" in problem
    assert "grpo, dr_grpo, sapo, luspo, bnpo, dapo, cispo, vespo" in problem


def test_a_stream_needs_its_epoch_for_adaptive_rollouts(out: str) -> None:
    (problem,) = run_problems(config(out), stream())
    assert "give steps_per_epoch" in problem
    assert run_problems(config(out, steps_per_epoch=3), stream()) == []
    assert run_problems(config(out, adaptive_rollouts=False), stream()) == []


def test_everything_is_listed_at_once(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: 2))
    given: dict[str, Any] = {
        "use_vllm": True,
        "entropy_coef": 0.1,
        "gradient_accumulation_steps": 3,
        "dataset": stream(),
    }
    with pytest.raises(ValueError, match="FastRL cannot prune this run") as caught:
        make_trainer(text_model, out, **given)
    message = str(caught.value)
    for told in ("2 processes", "use_vllm", "entropy_coef", "steps_per_generation", "iterable"):
        assert told in message
    assert "groups of num_generations" not in message  # 2 ranks of 16 rows hold whole groups


def test_rule_none_refuses_nothing(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, prune_rule="none", entropy_coef=0.1, max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_a_mixture_of_experts_loss_is_refused(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GRPOTrainer.__init__

    def as_if_mixture(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.aux_loss_enabled = True

    monkeypatch.setattr(GRPOTrainer, "__init__", as_if_mixture)
    with pytest.raises(ValueError, match="auxiliary loss"):
        make_trainer(text_model, out)


def test_a_processor_that_pads_on_the_right_is_refused(vision_model: str, out: str) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    processor.tokenizer.padding_side = "right"
    with pytest.raises(ValueError, match="pads on the right"):
        FastGRPOTrainer(
            model=vision_model,
            reward_funcs=token_reward,
            args=config(out),
            train_dataset=vision_rows(4),
            processing_class=processor,
        )


class Named:
    def __init__(self, first: Any, args: Any = None, *rest: Any, **others: Any) -> None: ...


class PassesOn(Named):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("owner", [Named, PassesOn])
def test_given_argument(owner: type) -> None:
    classes = owner.__mro__
    assert given_argument(classes, "args", (1, 2), {}) == 2
    assert given_argument(classes, "args", (1,), {"args": 3}) == 3
    assert given_argument(classes, "args", (1,), {}) is None
    assert given_argument(classes, "third", (1,), {"third": 4}) == 4
    assert given_argument(classes, "third", (1, 2, 3), {}) is None
