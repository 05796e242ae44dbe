"""Prompts processed once: the same outputs to the bit, with less work."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_runs import make_trainer, picture, vision_rows, weights_of
from tiny_vision import build_layout
from transformers import AutoProcessor, AutoTokenizer

from fastrl.trl.prompting import OncePerPrompt


class Counting:
    """An image processor that notes how many pictures it was given at each call."""

    def __init__(self, image_processor: Any) -> None:
        self.image_processor = image_processor
        self.given: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.image_processor, name)

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        rows = [row if isinstance(row, list) else [row] for row in images]
        self.given.append(sum(len(row) for row in rows))
        return self.image_processor(images, *args, **kwargs)


def pictures_of_a_batch() -> list[list[Image.Image]]:
    """One, several, none a row; a palette; sizes that differ."""
    first, second = picture(1, (56, 28)), picture(2, (56, 84))
    palette = picture(3, (28, 56)).convert("P")
    rows = [[first], [first, second], [], [second, first], [palette]]
    return [rows[place] for place in (0, 0, 1, 2, 2, 3, 1, 4, 4, 0)]


def copied(images: list[list[Image.Image]]) -> list[list[Image.Image]]:
    return [[image.copy() for image in row] for row in images]


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert type(found[name]) is type(value), name
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
        else:
            assert list(map(list, found[name])) == list(map(list, value)), name


def conversations(images: list[list[Image.Image]]) -> list[list[dict[str, Any]]]:
    """A question about each row's pictures: rows with equal pictures ask the same."""
    return [
        [
            {"role": "system", "content": [{"type": "text", "text": "s" * len(row)}]},
            {
                "role": "user",
                "content": [
                    *({"type": "image", "image": image} for image in row),
                    {"type": "text", "text": f"What is {row[0].size if row else 0}?"},
                ],
            },
        ]
        for row in images
    ]


TEMPLATE = {"add_generation_prompt": True, "tools": None}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("tensors", [{"padding": True, "return_tensors": "pt"}, {}])
def test_outputs_are_the_processors_to_the_bit(
    vision_model: str, tensors: dict[str, Any], copies: bool
) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    images = pictures_of_a_batch()
    images = copied(images) if copies else images
    text = [processor.image_token * len(row) + "a" * len(row) for row in images]
    expected = processor(images=images, text=text, **tensors)
    counting = processor.image_processor = Counting(processor.image_processor)
    assert_equal(OncePerPrompt(processor)(images=images, text=text, **tensors), expected)
    assert counting.given == [6]


@pytest.mark.parametrize("copies", [False, True])
def test_tokens_of_conversations_are_the_processors(vision_model: str, copies: bool) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    images = pictures_of_a_batch()
    given = conversations(copied(images) if copies else images)
    asked = {"conversation": given, "tokenize": True, "return_dict": True, **TEMPLATE}
    expected = processor.apply_chat_template(**asked)
    counting = processor.image_processor = Counting(processor.image_processor)
    found = OncePerPrompt(processor).apply_chat_template(**asked)
    assert_equal(found, expected)
    assert counting.given == [6]
    # Rows are lists of their own.
    found["input_ids"][0].append(-1)
    assert found["input_ids"][1][-1] != -1


def test_length_is_the_tokenizers(text_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(text_model)
    assert len(OncePerPrompt(tokenizer)) == len(tokenizer)


def test_a_processor_without_length_is_still_there(vision_model: str) -> None:
    stand_in = OncePerPrompt(AutoProcessor.from_pretrained(vision_model))
    assert bool(stand_in)
    with pytest.raises(TypeError, match="has no len"):
        len(stand_in)


def test_tokens_without_pictures_are_the_tokenizers(text_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(text_model)
    text = ["What is 1?", "What is 2 plus 3?", "What is 1?"]
    stand_in = OncePerPrompt(tokenizer)
    for tensors in ({}, {"padding": True, "return_tensors": "pt"}):
        assert_equal(stand_in(text=text, **tensors), tokenizer(text=text, **tensors))
    given = [[{"role": "user", "content": question}] for question in text]
    asked = {"conversation": given, "tokenize": True, "return_dict": True, **TEMPLATE}
    assert_equal(stand_in.apply_chat_template(**asked), tokenizer.apply_chat_template(**asked))
    assert stand_in(text="one")["input_ids"] == tokenizer(text="one")["input_ids"]
    assert stand_in.eos_token == tokenizer.eos_token


def test_an_equal_conversation_is_rendered_once(
    vision_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    given = conversations(pictures_of_a_batch())
    wanted = [processor.apply_chat_template(one, tokenize=False, **TEMPLATE) for one in given]
    rendered: list[Any] = []
    render = processor.apply_chat_template
    monkeypatch.setattr(
        processor, "apply_chat_template", lambda *a, **kw: rendered.append(a) or render(*a, **kw)
    )
    stand_in = OncePerPrompt(processor)
    found = [stand_in.apply_chat_template(one, tokenize=False, **TEMPLATE) for one in given]
    assert found == wanted
    assert len(rendered) == 5
    # Other settings are another text.
    other = {"tokenize": False, "add_generation_prompt": False}
    assert stand_in.apply_chat_template(given[0], **other) == render(given[0], **other)
    assert len(rendered) == 6


def test_shared_pictures_are_not_looked_at(
    vision_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    first, second = picture(1, (56, 28)), picture(2, (56, 84))
    images = [[first], [second], [first], [first.copy()]]
    text = [processor.image_token] * 4
    expected = processor(images=images, text=text, return_tensors="pt", padding=True)
    counting = processor.image_processor = Counting(processor.image_processor)
    monkeypatch.setattr("fastrl.trl.prompting._content", None)
    found = OncePerPrompt(processor)(images=images, text=text, return_tensors="pt", padding=True)
    # The copy is processed for itself: where rows share pictures, groups do.
    assert counting.given == [3]
    assert_equal(found, expected)


def test_pixels_alone_do_not_make_pictures_equal(vision_model: str) -> None:
    """The same bytes in another shape, palette or transparency are another picture."""
    wide, tall = Image.new("L", (28, 56), 7), Image.new("L", (56, 28), 7)
    plain, other = Image.new("P", (28, 28), 0), Image.new("P", (28, 28), 0)
    plain.putpalette([1, 2, 3] * 256)
    other.putpalette([9, 9, 9] * 256)
    clear = plain.copy()
    clear.info["transparency"] = 0
    processor = AutoProcessor.from_pretrained(vision_model)
    images = [[image] for image in (wide, tall, plain, other, clear, wide.copy())]
    counting = processor.image_processor = Counting(processor.image_processor)
    OncePerPrompt(processor)(images=images, text=[processor.image_token] * 6)
    assert counting.given == [5]


def test_rows_that_all_differ_go_through_as_they_are(vision_model: str) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    images = [[picture(n, (56, 56))] for n in range(3)]
    text = [processor.image_token] * 3
    counting = Counting(processor.image_processor)
    expected = processor(images=images, text=text)
    processor.image_processor = counting
    assert_equal(OncePerPrompt(processor)(images=images, text=text), expected)
    assert counting.given == [3]


def test_another_layout_is_left_to_the_processor() -> None:
    _, processor = build_layout("idefics")
    images = [[picture(1, (56, 28))], [picture(2, (28, 56))]]
    images = [images[0], images[1], images[0]]
    text = ["<image>"] * 3
    asked = {"images": images, "text": text, "padding": True, "return_tensors": "pt"}
    expected = processor(**asked)
    counting = processor.image_processor = Counting(processor.image_processor)
    found = OncePerPrompt(processor)(**asked)
    assert counting.given == [3]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_batch_processes_each_prompt_once_and_trains_the_same(
    vision_model: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, told = [], []
    for number in range(2):
        trainer = make_trainer(
            vision_model,
            str(tmp_path / str(number)),
            dataset=vision_rows(8, (1, 2, 0)),
            max_steps=2,
        )
        processor = trainer.processing_class
        counting = processor.image_processor = Counting(processor.image_processor)
        trainer.train()
        assert trainer.processing_class is processor
        weights.append(weights_of(trainer))
        told.append(counting.given)
        monkeypatch.setattr("fastrl.trl.generating.prompts_once", lambda trainer: nullcontext())
    # Once for the prompts' tokens, once for the pixels of the forward passes; TRL for 4 rollouts.
    assert len(told[0]) == 2
    assert [4 * given for given in told[0]] == told[1]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


def test_the_processor_is_itself_again_after_an_error(vision_model: str, out: str) -> None:
    def reward(completions: list[Any], **columns: Any) -> list[float]:
        raise ValueError("no reward")

    trainer = make_trainer(vision_model, out, dataset=vision_rows(4), reward=reward)
    own = trainer.processing_class
    with pytest.raises(ValueError, match="no reward"):
        trainer.train()
    assert trainer.processing_class is own
