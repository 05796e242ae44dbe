"""What FastRL cannot do is refused before any work starts, all of it at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from accelerate.utils import DistributedType
from datasets import IterableDataset
from tiny_runs import PUBLISHED, make_trainer, settings, text_rows, token_reward, vision_rows
from transformers import AutoProcessor
from trl import GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer
from fastrl.trl.validation import given_argument, model_problems, run_problems


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
        ({"entropy_coef": 0.1}, "entropy bonus"),
        ({"use_adaptive_entropy": True}, "entropy bonus"),
        ({"weighting": "exact", "top_entropy_quantile": 0.5}, "top_entropy_quantile = 0.5"),
        ({"fp16": True, "drop_uninformative": True}, "fp16 = True"),
        ({"fp16": True, "weighting": "exact"}, "fp16 = True"),
        ({"fp16": True, "dynamic_sampling": True}, "fp16 = True"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
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


def launched(out: str, processes: int = 2, **given: Any) -> Any:
    """What the checks look at of a trainer that has been launched some way."""
    settable = ("drop_uninformative", "dynamic_sampling")
    overrides = {name: given.pop(name) for name in settable if name in given}
    return SimpleNamespace(
        args=config(out, **overrides),
        aux_loss_enabled=False,
        _is_vlm=False,
        reward_func_names=["token_reward"],
        is_deepspeed_enabled=given.pop("deepspeed", False),
        accelerator=SimpleNamespace(
            num_processes=processes,
            distributed_type=given.pop("kind", DistributedType.MULTI_GPU),
            parallelism_config=SimpleNamespace(**given) if given else None,
        ),
    )


@pytest.mark.parametrize("kind", ["MULTI_GPU", "MULTI_CPU", "MULTI_XPU", "FSDP", "DEEPSPEED"])
def test_processes_are_welcome(out: str, kind: str) -> None:
    given = {"kind": DistributedType[kind], "deepspeed": kind == "DEEPSPEED"}
    assert model_problems(launched(out, **given)) == []


@pytest.mark.parametrize("kind", [DistributedType.XLA, DistributedType.MEGATRON_LM])
def test_processes_without_torch_distributed_are_refused(out: str, kind: Any) -> None:
    (problem,) = model_problems(launched(out, kind=kind))
    assert f"{kind.value}: rows move" in problem
    assert model_problems(launched(out, processes=1, kind=kind)) == []


def test_processes_that_share_rows_are_refused(out: str) -> None:
    (problem,) = model_problems(launched(out, tp_size=2, cp_size=1, sp_size=4))
    assert "tp_size = 2, sp_size = 4" in problem
    assert model_problems(launched(out, tp_size=1, dp_shard_size=2)) == []


def test_deepspeed_cannot_skip_an_update(out: str) -> None:
    (problem,) = model_problems(launched(out, deepspeed=True, drop_uninformative=True))
    assert "deepspeed with drop_uninformative = True" in problem
    (problem,) = model_problems(launched(out, deepspeed=True, dynamic_sampling=True))
    assert "deepspeed with dynamic_sampling: a batch may be left without rows" in problem
    assert model_problems(launched(out, dynamic_sampling=True)) == []
    few = launched(out, deepspeed=True)
    few.args.num_generations = 16  # one prompt for two updates
    (problem,) = model_problems(few)
    assert "1 prompts for 2 updates" in problem
    few.is_deepspeed_enabled = False
    assert model_problems(few) == []


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


def test_adaptive_rollouts_need_whole_groups_on_a_process(out: str) -> None:
    args = config(out)
    args.num_generations = 32  # TRL allows it on two processes: each holds half a group
    (problem,) = run_problems(args, text_rows())
    assert "per_device_train_batch_size x steps_per_generation = 16 must hold whole" in problem
    assert "num_generations = 32" in problem
    args.adaptive_rollouts = False
    assert run_problems(args, text_rows()) == []


def test_everything_is_listed_at_once(text_model: str, out: str) -> None:
    given: dict[str, Any] = {
        "entropy_coef": 0.1,
        "gradient_accumulation_steps": 3,
        "dataset": stream(),
    }
    with pytest.raises(ValueError, match="FastRL cannot prune this run") as caught:
        make_trainer(text_model, out, **given)
    message = str(caught.value)
    for told in ("entropy_coef", "steps_per_generation", "iterable"):
        assert told in message


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
