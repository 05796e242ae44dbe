"""What the toy's policy reads and writes: chat prompts, worked answers, and its tokenizer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from fastrl.geometry.toy.figures import FAMILIES, Figure, draw_figure

READING_QUESTION = "Read the labels."
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_TOKEN, VIDEO_TOKEN = "<|image_pad|>", "<|video_pad|>"
SPECIAL_TOKENS = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    VISION_START,
    VISION_END,
    IMAGE_TOKEN,
    VIDEO_TOKEN,
)
FORMAT_TOKENS = ("<thinking>", "</thinking>", "\\boxed{")
VOCABULARY_SIZE = 384

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat(question: str) -> list[dict[str, Any]]:
    """The conversation of one picture and its question."""
    return [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]},
    ]


def reading_answer(figure: Figure) -> str:
    """The labels read aloud."""
    return ",".join(str(label) for label in figure.labels)


def worked_answer(
    figure: Figure, rng: random.Random, right_share: float, format_share: float
) -> str:
    """An answer as the starting policy gives it: sometimes a wrong procedure, never a slip.

    Args:
        right_share: probability of the correct procedure; the wrong ones share the rest equally.
        format_share: probability of the asked-for format; the rest forgets the thinking block or
            forgets to close it.
    """
    procedure = figure.right if rng.random() < right_share else rng.choice(figure.wrong)
    box = f"\\boxed{{{procedure.result}}}"
    if rng.random() < format_share:
        return f"<thinking>{procedure}</thinking>{box}"
    return rng.choice((f"{procedure}{box}", f"<thinking>{procedure}{box}"))


def _corpus() -> Iterator[str]:
    """Enough of every question and answer for the tokenizer to learn their words."""
    rng = random.Random(0)
    for index in range(2000):
        figure = draw_figure(f"corpus/{index}", list(FAMILIES)[index % len(FAMILIES)])
        yield figure.question
        yield worked_answer(figure, rng, 0.5, 0.5)
    yield from (READING_QUESTION, "user\n", "assistant\n", "system\n") * 500


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of under 400 tokens.

    All 256 bytes are in the vocabulary, so any text passes through it and back; digits stay
    single, since a model this small adds and multiplies digit by digit.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|[^\w\s]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(FORMAT_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in FORMAT_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        extra_special_tokens={"image_token": IMAGE_TOKEN, "video_token": VIDEO_TOKEN},
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
