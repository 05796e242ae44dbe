"""Tiny GRPO runs: models, data with contrast, and a trainer that keeps what it logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from PIL import Image
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from fastrl.geometry.toy.policy import build_model, build_processor
from fastrl.geometry.toy.text import build_tokenizer
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, FastRLArguments

QUESTIONS = [f"What is {number} plus {number % 3}?" for number in range(64)]

PUBLISHED = {"weighting": "kept", "adaptive_rollouts": True}


def save_text_model(folder: Path) -> str:
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            initializer_range=0.2,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_vision_model(folder: Path) -> str:
    processor = build_processor()
    build_model(processor, layers=1).save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def text_rows(count: int = 8) -> Dataset:
    return Dataset.from_list([{"prompt": question} for question in QUESTIONS[:count]])


def picture(index: int, size: tuple[int, int] = (56, 56)) -> Image.Image:
    """A picture of one shade, different for every index."""
    return Image.new("RGB", size, (index * 37 % 256, index * 91 % 256, index * 13 % 256))


def vision_rows(count: int = 4, pictures: tuple[int, ...] = (1,)) -> Dataset:
    """Conversations; row i has `pictures[i % len(pictures)]` pictures, of varying sizes."""
    rows = []
    for index in range(count):
        number = pictures[index % len(pictures)]
        images = [picture(10 * index + k, (56, 28 * (1 + (index + k) % 3))) for k in range(number)]
        content = QUESTIONS[index]
        rows.append({"prompt": [{"role": "user", "content": content}], "images": images})
    return Dataset.from_list(rows)


def token_reward(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """A reward with contrast in a random model's groups: a few levels, from the tokens alone."""
    return [float(sum(ids) % 3) for ids in completion_ids]


class Recorder(TrainerCallback):
    """Keeps what was logged, and the gradients before every optimiser step."""

    def __init__(self, gradients: bool = False) -> None:
        self.logs: list[dict[str, Any]] = []
        self.gradients: list[dict[str, torch.Tensor | None]] = []
        self.keeps_gradients = gradients

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append({"step": state.global_step, **(logs or {})})

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.keeps_gradients:
            self.gradients.append(
                {
                    name: None if p.grad is None else p.grad.detach().clone()
                    for name, p in kwargs["model"].named_parameters()
                }
            )

    def values(self, name: str) -> list[Any]:
        return [entry[name] for entry in self.logs if name in entry]


def settings(out: str, **overrides: Any) -> dict[str, Any]:
    """16 rollouts a generation batch in 4 groups, 2 updates of 2 micro-batches of 4 rows."""
    return {
        "output_dir": out,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "bf16": False,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 7,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        **overrides,
    }


def make_trainer(
    model: str,
    out: str,
    *,
    trainer_class: type | None = None,
    dataset: Any = None,
    reward: Any = token_reward,
    callbacks: list[TrainerCallback] | None = None,
    peft_config: Any = None,
    eval_dataset: Any = None,
    **overrides: Any,
) -> Any:
    """A trainer of `FastGRPOTrainer` (or `trainer_class`), with a Recorder as `.recorder`."""
    trainer_class = trainer_class or FastGRPOTrainer
    given = settings(out, **overrides)
    config_class = given.pop("config_class", None)
    if config_class is None:
        config_class = GRPOConfig if trainer_class is GRPOTrainer else FastGRPOConfig
    recorder = Recorder(gradients=given.pop("gradients", False))
    is_vision = (Path(model) / "preprocessor_config.json").exists() or (
        Path(model) / "processor_config.json"
    ).exists()
    loader = AutoProcessor if is_vision else AutoTokenizer
    if issubclass(config_class, FastRLArguments):
        # Said here, so that the tests do not hang on the library's defaults.
        given = {**PUBLISHED, **given}
    config = config_class(**given)
    trainer = trainer_class(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=text_rows() if dataset is None else dataset,
        eval_dataset=eval_dataset,
        processing_class=loader.from_pretrained(model),
        callbacks=[recorder, *(callbacks or [])],
        peft_config=peft_config,
    )
    trainer.recorder = recorder
    return trainer


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def largest_difference(
    left: dict[str, torch.Tensor | None], right: dict[str, torch.Tensor | None]
) -> float:
    """The largest difference of two sets of tensors, relative to the largest value of the right."""
    assert left.keys() == right.keys()
    scale = max(float(v.abs().max()) for v in right.values() if v is not None)
    gap = 0.0
    for name, value in left.items():
        other = right[name]
        if value is None or other is None:
            assert value is other, name
            continue
        gap = max(gap, float((value - other).abs().max()))
    return gap / scale
