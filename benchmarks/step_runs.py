"""Training runs whose amount of work is known exactly, for benchmarks of time and memory.

Completion lengths are forced, rewards follow from a rollout's place in its group, and pruning keeps
one rollout of each reward: so many rows of so many tokens go through every phase, whatever the
policy says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

ARMS = ("trl", "none", "exact")


@dataclass(frozen=True)
class Work:
    """What a run does in each generation batch.

    Attributes:
        policy: "toy" (pictures) or the folder of a language model (sums in words).
        arm: "trl" (plain GRPOTrainer), "none" (FastRL that keeps all) or "exact" (FastRL).
        prompts, rollouts: of a generation batch, and of each prompt.
        tokens: completion tokens of every rollout.
        levels: distinct rewards in a group: "exact" keeps one rollout of each.
        updates: optimiser updates of a generation batch.
        replayed: completions are given instead of generated.
        shared_prefix: FastRL's setting.
    """

    policy: str = "toy"
    arm: str = "trl"
    prompts: int = 8
    rollouts: int = 8
    tokens: int = 32
    levels: int = 2
    updates: int = 4
    replayed: bool = False
    shared_prefix: str | bool = "auto"

    def __post_init__(self) -> None:
        problems = [
            f"{name} = {getattr(self, name)}: expected at least {least}"
            for name, least in (
                ("prompts", 1),
                ("rollouts", 2),
                ("tokens", 1),
                ("levels", 2),
                ("updates", 1),
            )
            if getattr(self, name) < least
        ]
        if self.arm not in ARMS:
            problems.append(f"arm = {self.arm!r}: expected one of {', '.join(ARMS)}")
        if not problems and self.rollouts % self.levels:
            problems.append(f"rollouts = {self.rollouts}: no multiple of levels = {self.levels}")
        if not problems and self.rows % self.updates:
            problems.append(f"{self.rows} rows of a batch: no multiple of updates = {self.updates}")
        if problems:
            raise ValueError("; ".join(problems))

    @classmethod
    def of(cls, options: argparse.Namespace) -> Work:
        """The work of plain TRL that a command line asks for, in options of the same names."""
        names = ("policy", "prompts", "rollouts", "tokens", "levels", "updates")
        return cls(**{name: getattr(options, name) for name in names})

    @property
    def rows(self) -> int:
        """Rollouts of a generation batch."""
        return self.prompts * self.rollouts

    @property
    def kept_share(self) -> float:
        """Share of the rollouts that reach log-probs and updates."""
        return self.levels / self.rollouts if self.arm == "exact" else 1.0

    def kept_alone(self) -> Work:
        """Plain TRL with the rows alone that this work keeps."""
        return Work(**{**asdict(self), "arm": "trl", "rollouts": self.levels})


def reward_by_place(levels: int) -> Callable[..., list[float]]:
    """A reward with so many levels in every group, from a rollout's place alone."""

    def place(completions: list[Any], **columns: Any) -> list[float]:
        return [float(index % levels) for index in range(len(completions))]

    return place


def build_trainer(work: Work, batches: int, callbacks: list[Any]) -> Any:
    """A trainer that does so many generation batches of the work, and saves and tells nothing."""
    import torch
    from trl import GRPOConfig, GRPOTrainer

    from fastrl.trl import FastGRPOConfig, FastGRPOTrainer

    trainer_class = GRPOTrainer if work.arm == "trl" else FastGRPOTrainer
    config: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(prefix="fastrl-benchmark-"),
        "per_device_train_batch_size": work.rows // work.updates,
        "steps_per_generation": work.updates,
        "gradient_accumulation_steps": 1,
        "num_generations": work.rollouts,
        "max_completion_length": work.tokens,
        "generation_kwargs": {"min_new_tokens": work.tokens},
        "max_steps": batches * work.updates,
        "learning_rate": 1e-6,
        "beta": 0.01,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "bf16": False,
        "use_cpu": not torch.accelerator.is_available(),
        "seed": 1,
    }
    if work.arm == "trl":
        arguments = GRPOConfig(**config)
    else:
        rule = "none" if work.arm == "none" else "differential"
        # At 0 no path counts as another one: exactly one rollout of each reward stays.
        fields = {"prune_rule": rule, "weighting": "exact", "similarity_threshold": 0.0}
        fields["shared_prefix"] = work.shared_prefix
        arguments = FastGRPOConfig(**config, **fields)
    model, processor, dataset = _policy(work, batches)
    trainer = (with_replay(trainer_class, work.tokens) if work.replayed else trainer_class)(
        model=model,
        reward_funcs=reward_by_place(work.levels),
        args=arguments,
        train_dataset=dataset,
        processing_class=processor,
        callbacks=callbacks,
    )
    _silence(trainer)
    return trainer


def with_replay(trainer_class: type, tokens: int) -> type:
    """The trainer with completions drawn from ordinary tokens instead of the policy."""
    import torch

    class Replaying(trainer_class):  # type: ignore[misc, valid-type]
        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            tokenizer = getattr(self.processing_class, "tokenizer", self.processing_class)
            special = set(tokenizer.all_special_ids)
            ordinary = [token for token in range(min(len(tokenizer), 1000)) if token not in special]
            drawn = torch.randint(len(ordinary), (len(prompt_ids), tokens))
            return [[ordinary[index] for index in row] for row in drawn.tolist()], None

    return Replaying


def _policy(work: Work, batches: int) -> tuple[str, Any, Any]:
    """Model, processor and as many prompts as are asked for once."""
    count = work.prompts * batches
    if work.policy == "toy":
        from transformers import AutoProcessor

        from fastrl.geometry.toy import STARTING_POLICY, toy_dataset

        processor = AutoProcessor.from_pretrained(STARTING_POLICY)
        processor.tokenizer.padding_side = "left"
        return str(STARTING_POLICY), processor, toy_dataset(count)
    from datasets import Dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(work.policy, padding_side="left")
    questions = [f"What is {10 + number % 80} plus {number % 9}?" for number in range(count)]
    rows = [{"prompt": [{"role": "user", "content": question}]} for question in questions]
    return work.policy, tokenizer, Dataset.from_list(rows)


def _silence(trainer: Any) -> None:
    from transformers import ProgressCallback
    from transformers.trainer_callback import PrinterCallback

    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
