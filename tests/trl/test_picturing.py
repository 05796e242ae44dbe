"""Pictures processed once per prompt: the same outputs to the bit, with less work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from PIL import Image
from tiny_runs import make_trainer, picture, vision_rows
from transformers import AutoProcessor

from fastrl.trl.picturing import OncePerPicture, knows_layout, pictures_once


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
    """Copies, several a row, none, one by itself, a palette, sizes that differ."""
    first, second = picture(1, (56, 28)), picture(2, (56, 84))
    palette = picture(3, (28, 56)).convert("P")
    rows = [[first], [first, second], [], [second, first], [palette], [palette], [second]]
    return [[image.copy() for image in row] for row in rows]


@pytest.mark.parametrize("tensors", [{"padding": True, "return_tensors": "pt"}, {}])
def test_outputs_are_the_processors_to_the_bit(vision_model: str, tensors: dict[str, Any]) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    images = pictures_of_a_batch()
    text = [processor.image_token * len(row) + "a" for row in images]
    expected = processor(images=images, text=text, **tensors)
    counting = processor.image_processor = Counting(processor.image_processor)
    with pictures_once(processor):
        found = processor(images=images, text=text, **tensors)
    assert counting.given == [3]
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert type(found[name]) is type(value)
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value, name


def test_shared_pictures_are_not_looked_at(
    vision_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    first, second = picture(1, (56, 28)), picture(2, (56, 84))
    images = [[first], [second, first], [first.copy()]]
    expected = processor.image_processor(images, return_tensors="pt")
    counting = Counting(processor.image_processor)
    monkeypatch.setattr("fastrl.trl.picturing._content", None)
    found = OncePerPicture(counting)(images, return_tensors="pt")
    # The copy is processed for itself: where rows share pictures, groups do.
    assert counting.given == [3]
    assert torch.equal(found["pixel_values"], expected["pixel_values"])
    assert torch.equal(found["image_grid_thw"], expected["image_grid_thw"])


def test_pictures_that_all_differ_go_through_as_they_are(vision_model: str) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    counting = Counting(processor.image_processor)
    images = [[picture(n, (56, 56))] for n in range(3)]
    found = OncePerPicture(counting)(images, return_tensors="pt")
    assert counting.given == [3]
    assert torch.equal(
        found["pixel_values"],
        processor.image_processor(images, return_tensors="pt")["pixel_values"],
    )


def test_pixels_alone_do_not_make_pictures_equal() -> None:
    """The same bytes in another shape, palette or transparency are another picture."""
    wide, tall = Image.new("L", (28, 56), 7), Image.new("L", (56, 28), 7)
    plain, other = Image.new("P", (28, 28), 0), Image.new("P", (28, 28), 0)
    plain.putpalette([1, 2, 3] * 256)
    other.putpalette([9, 9, 9] * 256)
    clear = plain.copy()
    clear.info["transparency"] = 0

    class Echo:
        model_input_names = ("pixel_values", "image_grid_thw")

        def __call__(self, images: Any) -> dict[str, Any]:
            count = len(images)
            return {
                "pixel_values": torch.arange(count)[:, None],
                "image_grid_thw": torch.ones(count, 3, dtype=torch.long),
            }

    given = [wide, tall, plain, other, clear, wide.copy()]
    assert OncePerPicture(Echo())(given)["pixel_values"].flatten().tolist() == [0, 1, 2, 3, 4, 0]


def test_another_layout_is_left_alone() -> None:
    class Tiles:
        model_input_names = ("pixel_values", "num_tiles")

    class Processor:
        image_processor = Tiles()

    processor = Processor()
    own = processor.image_processor
    assert not knows_layout(own)
    with pictures_once(processor):
        assert processor.image_processor is own
    with pictures_once(object()):
        pass


def test_the_processor_is_itself_again_after_an_error(vision_model: str) -> None:
    processor = AutoProcessor.from_pretrained(vision_model)
    own = processor.image_processor
    with pytest.raises(ValueError, match="picture"), pictures_once(processor):
        processor(images=["no picture"], text=["a"])
    assert processor.image_processor is own


def test_a_batch_processes_each_prompts_pictures_once(vision_model: str, out: str) -> None:
    trainer = make_trainer(vision_model, out, dataset=vision_rows(8, (1,)), max_steps=2)
    processor = trainer.processing_class
    counting = processor.image_processor = Counting(processor.image_processor)
    trainer.train()
    rows = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    prompts = rows // trainer.num_generations
    # Once for the prompts' tokens, once for the pixels of the forward passes.
    assert counting.given[:2] == [prompts, prompts]
