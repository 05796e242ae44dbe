"""How good a policy is on held-out pictures: sampled, greedy, in format, and as a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from fastrl.geometry.toy.figures import Figure, figures
from fastrl.geometry.toy.rewards import has_format, is_right
from fastrl.geometry.toy.text import READING_QUESTION, chat, reading_answer

MAX_NEW_TOKENS = 32


@dataclass(frozen=True)
class ToyScore:
    """Shares of held-out pictures, each between 0 and 1.

    Attributes:
        sampled: right answers at temperature 1, the mean over all samples of all pictures.
        greedy: right answers without sampling; None where it was not asked for.
        in_format: samples at temperature 1 in the asked-for format.
        pictures: how many held-out pictures; samples: how many completions of each.
    """

    sampled: float
    greedy: float | None
    in_format: float
    pictures: int
    samples: int

    def as_dict(self) -> dict[str, float | None]:
        """As a plain dictionary."""
        return asdict(self)


def evaluate_policy(
    model: Any,
    processor: Any,
    pictures: int = 256,
    samples: int = 4,
    batch_size: int = 64,
    seed: int = 0,
    with_greedy: bool = True,
    on_batch: Callable[[int, int], None] | None = None,
) -> ToyScore:
    """Score a policy on the held-out stream of a seed; the global random state is left alone.

    Args:
        model: a vision-language model with `generate`, on the CPU.
        processor: its processor.
        pictures: held-out pictures; samples: completions of each at temperature 1.
        batch_size: pictures per call of `generate` (times `samples`).
        seed: of the held-out stream, and of the sampling.
        with_greedy: whether to complete each picture greedily, too.
        on_batch: told how many pictures are done, and of how many.
    """
    right = formatted = greedy = done = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for batch in _batches(list(figures(pictures, seed, held_out=True)), batch_size):
            questions = [figure.question for figure in batch]
            sampled = complete(model, processor, batch, questions, samples)
            for figure, completions in zip(batch, sampled, strict=True):
                right += sum(is_right(text, figure.answer) for text in completions)
                formatted += sum(has_format(text) for text in completions)
            if with_greedy:
                best = complete(model, processor, batch, questions, samples=0)
                for figure, (text,) in zip(batch, best, strict=True):
                    greedy += is_right(text, figure.answer)
            done += len(batch)
            if on_batch is not None:
                on_batch(done, pictures)
    total = pictures * samples
    share = greedy / pictures if with_greedy else None
    return ToyScore(right / total, share, formatted / total, pictures, samples)


def reading_accuracy(model: Any, processor: Any, pictures: int = 512, seed: int = 0) -> float:
    """Share of labels read right, aloud and greedily, on held-out pictures."""
    right = labels = 0
    for batch in _batches(list(figures(pictures, seed, held_out=True)), 64):
        questions = [READING_QUESTION] * len(batch)
        answers = complete(model, processor, batch, questions, samples=0)
        for figure, (text,) in zip(batch, answers, strict=True):
            read = text.split(",")
            expected = reading_answer(figure).split(",")
            labels += len(expected)
            right += sum(a == b for a, b in zip(read, expected, strict=False))
    return right / labels


def complete(
    model: Any, processor: Any, batch: Sequence[Figure], questions: Sequence[str], samples: int
) -> list[list[str]]:
    """Completions for each picture: `samples` at temperature 1, or one greedy one for 0."""
    prompts = [
        processor.apply_chat_template(chat(question), add_generation_prompt=True)
        for question in questions
    ]
    inputs = processor(
        images=[figure.picture for figure in batch],
        text=prompts,
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    settings: dict[str, Any] = {"do_sample": False}
    if samples:
        settings = {
            "do_sample": True,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "num_return_sequences": samples,
        }
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, **settings)
    model.train(was_training)
    texts = processor.tokenizer.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    each = max(1, samples)
    return [texts[start : start + each] for start in range(0, len(texts), each)]


def _batches(items: list[Figure], size: int) -> Iterator[list[Figure]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
