"""Supervised training of the toy's starting policy: it sees well and chooses badly.

Three stages. Sight: the vision tower alone learns to name the number under each of its tokens.
Reading: the whole model reads the labels aloud. Working: reading goes on, mixed with worked answers
in which right and wrong procedures are shuffled. Without the first stage a model of this size
spends most of its training blind.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

from fastrl.geometry.toy.figures import LABEL_NUMBERS, PICTURE_SIZE, Figure, draw_figure
from fastrl.geometry.toy.policy import (
    HIDDEN_SIZE,
    MERGE_SIZE,
    PATCH_SIZE,
    build_model,
    build_processor,
)
from fastrl.geometry.toy.text import (
    READING_QUESTION,
    TURN_END,
    chat,
    reading_answer,
    worked_answer,
)

IGNORED_LABEL = -100
CELL = PATCH_SIZE * MERGE_SIZE  # pixels a side of what one image token covers
CELLS_A_SIDE = PICTURE_SIZE // CELL
NO_NUMBER_WEIGHT = 0.1  # most cells hold no label; they must not drown those that do


@dataclass(frozen=True)
class PretrainRecipe:
    """Everything the starting policy is made of.

    Attributes:
        sight_steps: batches for the vision tower alone.
        reading_steps: batches of reading aloud only.
        working_steps: batches of reading and worked answers mixed.
        batch_size: pictures a batch.
        peak_lr: the learning rate after warm-up (AdamW), in every stage.
        reading_share: share of reading among the examples of the last stage.
        right_share: probability of the correct procedure in a worked answer.
        format_share: probability of the asked-for format in a worked answer.
        seed: of the weights and of every picture.
    """

    sight_steps: int = 600
    reading_steps: int = 500
    working_steps: int = 2000
    batch_size: int = 64
    peak_lr: float = 3e-3
    reading_share: float = 0.3
    right_share: float = 0.42
    format_share: float = 0.5
    seed: int = 0


class _Batches(IterableDataset):  # type: ignore[type-arg]
    """The batches of one stage, drawn and tokenised in a data worker beside the training."""

    def __init__(self, steps: int, make: Callable[[int], dict[str, torch.Tensor]]) -> None:
        self.steps = steps
        self.make = make

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        torch.set_num_threads(1)
        for step in range(self.steps):
            yield self.make(step)


class Pretraining:
    """The three stages over one model; `log` receives a dictionary every `report_every` batches."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        log: Callable[[dict[str, Any]], None],
        report_every: int = 100,
    ) -> None:
        self.recipe = recipe
        self.log = log
        self.report_every = report_every
        torch.manual_seed(recipe.seed)
        self.processor: Qwen2_5_VLProcessor = build_processor()
        self.model: Qwen2_5_VLForConditionalGeneration = build_model(self.processor, recipe.seed)
        self.model.train()
        self.started = time.perf_counter()

    def run(self) -> None:
        """Sight, then reading, then working."""
        recipe = self.recipe
        head = torch.nn.Linear(HIDDEN_SIZE, len(LABEL_NUMBERS) + 1)
        tower = self.model.model.visual

        def sight_loss(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            seen = tower(batch["pixel_values"], grid_thw=batch["image_grid_thw"]).pooler_output
            weight = torch.ones(len(LABEL_NUMBERS) + 1)
            weight[0] = NO_NUMBER_WEIGHT
            return torch.nn.functional.cross_entropy(head(seen), batch["numbers"], weight=weight)

        everything = list(self.model.parameters())
        self._stage(
            "sight",
            recipe.sight_steps,
            self._sight_batch,
            sight_loss,
            [*tower.parameters(), *head.parameters()],
        )
        reading = recipe.reading_steps
        self._stage("reading", reading, self._reading_batch, self._text_loss, everything)
        self.work_on(self.model)

    def work_on(self, model: Qwen2_5_VLForConditionalGeneration) -> None:
        """The last stage alone, over a model that reads already."""
        self.model = model.train()
        everything = list(self.model.parameters())
        steps = self.recipe.working_steps
        self._stage("working", steps, self._working_batch, self._text_loss, everything)

    def store(self, folder: Path) -> None:
        """Write policy (bf16) and processor."""
        self.model.to(torch.bfloat16).save_pretrained(folder)
        self.processor.save_pretrained(folder)

    def _text_loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch).loss
        return loss

    def _stage(
        self,
        name: str,
        steps: int,
        make: Callable[[int], dict[str, torch.Tensor]],
        loss_of: Callable[[dict[str, torch.Tensor]], torch.Tensor],
        parameters: list[torch.nn.Parameter],
    ) -> None:
        optimizer = torch.optim.AdamW(
            parameters, lr=self.recipe.peak_lr, weight_decay=0.01, betas=(0.9, 0.95)
        )
        loader = DataLoader(_Batches(steps, make), batch_size=None, num_workers=1)
        running = 0.0
        for step, batch in enumerate(loader):
            for group in optimizer.param_groups:
                group["lr"] = self.recipe.peak_lr * schedule(step, steps)
            loss = loss_of(batch)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.item()
            if (step + 1) % self.report_every == 0:
                self.log(
                    {
                        "stage": name,
                        "step": step + 1,
                        "loss": round(running / self.report_every, 4),
                        "seconds": round(time.perf_counter() - self.started, 1),
                    }
                )
                running = 0.0

    def _figures(self, stage: str, step: int) -> list[Figure]:
        seed = f"pretrain/{self.recipe.seed}/{stage}/{step}"
        return [draw_figure(f"{seed}/{index}") for index in range(self.recipe.batch_size)]

    def _sight_batch(self, step: int) -> dict[str, torch.Tensor]:
        figures = self._figures("sight", step)
        pictures = [figure.picture for figure in figures]
        batch = self.processor.image_processor(images=pictures, return_tensors="pt")
        numbers = torch.zeros(len(figures), CELLS_A_SIDE, CELLS_A_SIDE, dtype=torch.long)
        for row, figure in enumerate(figures):
            for label, (x, y) in zip(figure.labels, figure.label_centres, strict=True):
                numbers[row, y // CELL, x // CELL] = 1 + LABEL_NUMBERS.index(label)
        return {**batch, "numbers": numbers.view(-1)}

    def _reading_batch(self, step: int) -> dict[str, torch.Tensor]:
        figures = self._figures("reading", step)
        return self._encode(figures, [(READING_QUESTION, reading_answer(f)) for f in figures])

    def _working_batch(self, step: int) -> dict[str, torch.Tensor]:
        recipe = self.recipe
        figures = self._figures("working", step)
        rng = random.Random(f"pretrain/{recipe.seed}/working/{step}")
        turns = []
        for figure in figures:
            if rng.random() < recipe.reading_share:
                turns.append((READING_QUESTION, reading_answer(figure)))
            else:
                answer = worked_answer(figure, rng, recipe.right_share, recipe.format_share)
                turns.append((figure.question, answer))
        return self._encode(figures, turns)

    def _encode(
        self, figures: list[Figure], turns: list[tuple[str, str]]
    ) -> dict[str, torch.Tensor]:
        """Model inputs with labels on the answers only."""
        prompts = [
            self.processor.apply_chat_template(chat(question), add_generation_prompt=True)
            for question, _ in turns
        ]
        answers = [answer + TURN_END for _, answer in turns]
        batch = self.processor(
            images=[figure.picture for figure in figures],
            text=[prompt + answer for prompt, answer in zip(prompts, answers, strict=True)],
            padding=True,
            return_tensors="pt",
        )
        labels = batch["input_ids"].clone()
        # Padding is on the left, so an answer is the last tokens of its row.
        for row, answer in enumerate(answers):
            labels[row, : -len(self.processor.tokenizer(answer)["input_ids"])] = IGNORED_LABEL
        return {**batch, "labels": labels}


def schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate: warm-up over 50 batches, linear down from the middle on."""
    warmup = min(1.0, (step + 1) / 50)
    return warmup * max(0.02, min(1.0, 2 * (1 - step / steps)))


def change_skill(
    start: Path, right_share: float, folder: Path, steps: int = 400, batch_size: int = 64
) -> None:
    """A policy that is right as often as asked, from one that sees and reads well.

    Args:
        start: folder of a policy that `pretrain` made.
        right_share: probability of the correct procedure in the worked answers it goes on with.
        folder: where the new policy is stored (bf16).
        steps: batches of reading and worked answers.
        batch_size: pictures a batch.
    """
    recipe = PretrainRecipe(
        working_steps=steps, right_share=right_share, peak_lr=1e-3, batch_size=batch_size
    )
    training = Pretraining(recipe, lambda entry: None)
    training.work_on(Qwen2_5_VLForConditionalGeneration.from_pretrained(start, dtype=torch.float32))
    training.store(folder)


def pretrain(
    recipe: PretrainRecipe,
    folder: Path,
    on_report: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> None:
    """Train a starting policy and store it in `folder` (bf16), with its log `pretrain.jsonl`.

    Args:
        on_report: told every line of the log, for progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "pretrain.jsonl").open("w") as file:

        def log(entry: dict[str, Any]) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            on_report(entry)

        log({"recipe": asdict(recipe)})
        training = Pretraining(recipe, log)
        training.run()
    training.store(folder)
