"""What a recipe says beside the trainer's config."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fastrl.geometry.datasets import FORMAT_INSTRUCTION
from fastrl.geometry.datasets.rows import CHOICES_AS, EXAMPLES_EXAMPLE, are_examples
from fastrl.geometry.rewards import ACCURACY_WEIGHT, FORMAT_WEIGHT

TOY = "toy"
# The least of each count; None, where a field allows it, is left alone.
LEAST = {
    "train_pictures": 1,
    "eval_pictures": 0,
    "eval_samples": 1,
    "score_every": 0,
    "score_pictures": 1,
    "eval_rows": 1,
    "max_rows": 1,
    "max_prompt_length": 1,
    "min_pixels": 1,
    "max_pixels": 1,
    "lora_r": 1,
    "lora_alpha": 1,
}


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class RunArguments:
    """The policy, the prompts, the rewards, and what is written down.

    `problems()` tells what is wrong with the values; constructing checks nothing. (JSON text of
    `examples` becomes the mapping that it stands for.)
    """

    model: str = _setting(TOY, "The policy: 'toy' (ships with FastRL), a hub name, or a folder.")
    dataset: str = _setting(
        TOY,
        "The prompts: 'toy' (pictures drawn on the fly), 'geometry3k', 'geoqa8k', a hub name, or a "
        "local .parquet or .jsonl file, a folder of them, or a saved data set.",
    )
    dataset_split: str | None = _setting(None, "The split to train on ('train' by default).")
    max_rows: int | None = _setting(None, "Use the first so many rows of the data set.")
    choices_as: str = _setting(
        "letter", "Of multiple-choice problems: ask for the 'letter', or for the 'text'."
    )
    skip_broken: bool = _setting(
        False, "Leave out rows with a broken picture or no gold answer, instead of stopping."
    )
    max_prompt_length: int | None = _setting(
        None, "The most tokens of a prompt, its pictures' included; prompts are never cut."
    )
    skip_long: bool = _setting(False, "Leave out longer prompts, instead of stopping.")
    min_pixels: int | None = _setting(
        None, "Smaller pictures are enlarged to so many pixels, aspect kept."
    )
    max_pixels: int | None = _setting(
        None, "Larger pictures are reduced to so many pixels, aspect kept."
    )
    format_instruction: str = _setting(
        FORMAT_INSTRUCTION, "Follows each question of a data set (not the toy's); '' for none."
    )
    system_prompt: str | None = _setting(None, "The first message of each prompt (not the toy's).")
    examples: dict[str, str] | str | None = field(
        default=None,
        metadata={
            "help": "Worked examples, question to reply (a mapping; JSON on the command line), "
            "shown as earlier turns of the chat before each question (not the toy's)."
        },
    )
    accuracy_weight: float = _setting(
        ACCURACY_WEIGHT, "The reward for a right answer (the toy's is fixed)."
    )
    format_weight: float = _setting(
        FORMAT_WEIGHT, "The reward for the format (the toy's is fixed)."
    )
    train_pictures: int = _setting(2048, "Pictures in the toy's training set.")
    eval_pictures: int = _setting(
        256, "The toy's held-out pictures scored before and after; 0 for none."
    )
    eval_samples: int = _setting(
        4, "Completions of each of the toy's held-out pictures at temperature 1."
    )
    score_every: int = _setting(
        0,
        "Updates between scorings of what is held out (the toy's pictures, or eval_split) while "
        "training; 0: none.",
    )
    score_pictures: int = _setting(
        128, "The toy's held-out pictures of each of these scorings, and of the first."
    )
    eval_split: str | None = _setting(
        None,
        "A split of the data set to score before and after, with num_generations_eval completions "
        "of each row sampled as in training; none by default.",
    )
    eval_rows: int | None = _setting(None, "Score the first so many rows of eval_split.")
    lora_r: int | None = _setting(
        None, "Train LoRA adapters of this rank (needs PEFT); all weights by default."
    )
    lora_alpha: int = _setting(32, "What LoRA's adapters add counts lora_alpha / lora_r.")
    lora_dropout: float = _setting(0.0, "LoRA's dropout.")
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["all-linear"],
        metadata={
            "help": "The modules with adapters: ends of their names, or one pattern that a whole "
            "name must match, or 'all-linear'."
        },
    )
    log_rollouts: bool = _setting(True, "Write every rollout, kept or not, to rollouts/.")
    log_pictures: bool = _setting(False, "Write each prompt's first picture to rollouts/, small.")

    def __post_init__(self) -> None:
        if isinstance(self.examples, str):
            # The command line has text; what is no JSON stays text, and is a problem.
            with suppress(json.JSONDecodeError):
                self.examples = json.loads(self.examples)

    def problems(self) -> list[str]:
        """Every value that cannot be used, in words: field, value, remedy."""
        problems = [
            f"{name} = {getattr(self, name)!r}: expected at least {least}"
            for name, least in LEAST.items()
            if getattr(self, name) is not None and getattr(self, name) < least
        ]
        if self.choices_as not in CHOICES_AS:
            problems.append(f"choices_as = {self.choices_as!r}: expected 'letter' or 'text'")
        if self.min_pixels and self.max_pixels and self.min_pixels > self.max_pixels:
            problems.append(
                f"min_pixels = {self.min_pixels}: more than max_pixels = {self.max_pixels}"
            )
        for name in ("accuracy_weight", "format_weight"):
            if getattr(self, name) < 0:
                problems.append(f"{name} = {getattr(self, name)!r}: expected at least 0")
        if self.accuracy_weight == self.format_weight == 0:
            problems.append("accuracy_weight and format_weight are both 0: nothing is rewarded")
        if not 0 <= self.lora_dropout < 1:
            problems.append(f"lora_dropout = {self.lora_dropout!r}: expected at least 0, below 1")
        if self.eval_rows is not None and self.eval_split is None:
            problems.append(f"eval_rows = {self.eval_rows}: needs eval_split")
        if self.score_every > 0 and self.dataset != TOY and self.eval_split is None:
            problems.append(
                f"score_every = {self.score_every}: nothing is held out; for other data than the "
                "toy's give eval_split"
            )
        if self.examples is not None and not are_examples(self.examples):
            problems.append(
                f"examples = {self.examples!r}: expected questions and their replies, such as "
                f"{EXAMPLES_EXAMPLE}"
            )
        return problems
