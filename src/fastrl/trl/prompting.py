"""Prompts are rendered, tokenised, and their pictures processed, once for all their rollouts."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from PIL import Image

# Processors whose pixels lie patch by patch, each picture's extent in a grid (the Qwen-VL family).
GRID_OUTPUTS = {"pixel_values", "image_grid_thw"}
ROW_OUTPUTS = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}


class OncePerPrompt:
    """A processor's (or tokenizer's) stand-in that processes equal rows of a call once.

    The outcome is repeated for the others; it is that of the processor itself, to the bit. Whatever
    else is asked of it, and rows whose outputs it does not know, the processor answers.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        # With what is rendered: an object's number is its own only as long as it is there.
        self._rendered: dict[Hashable, tuple[Any, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __len__(self) -> int:
        # Python looks for it on the class alone; a tokenizer's is the size of its vocabulary.
        return len(self._processor)

    def __bool__(self) -> bool:
        return True  # a processor without a length is no empty one

    def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> Any:
        """The processor's output for rows of text, each with its list of pictures."""
        given = {"text": text} if images is None else {"images": images, "text": text}
        is_known = (
            isinstance(text, list)
            and all(isinstance(row, str) for row in text)
            and (images is None or (isinstance(images, list) and len(images) == len(text)))
            and not {"videos", "audio", "text_pair", "text_target"} & kwargs.keys()
        )
        if not is_known:
            return self._processor(**given, **kwargs)
        rows = text if images is None else list(zip(text, images, strict=True))

        def process(chosen: Sequence[int]) -> Any:
            part = {name: [values[row] for row in chosen] for name, values in given.items()}
            return self._processor(**part, **kwargs)

        return self._once(rows, process)

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """The processor's, of one conversation or several."""
        render = self._processor.apply_chat_template
        is_batch = isinstance(conversation, list) and isinstance(
            next(iter(conversation), None), list
        )
        if is_batch and kwargs.get("tokenize") and kwargs.get("return_dict"):
            return self._once(
                conversation, lambda chosen: render([conversation[row] for row in chosen], **kwargs)
            )
        if is_batch or kwargs.get("tokenize") is not False:
            return render(conversation, **kwargs)
        key = _key(conversation, id), _key(kwargs, id)
        if key not in self._rendered:
            self._rendered[key] = (conversation, kwargs), render(conversation, **kwargs)
        return self._rendered[key][1]

    def _once(self, rows: Sequence[Any], process: Callable[[Sequence[int]], Any]) -> Any:
        """The output of `process`, which takes row numbers, for all rows."""
        everything = range(len(rows))
        if any(map(_has_pictures, rows)) and not knows_layout(self._processor):
            return process(everything)
        place_of: dict[Hashable, int] = {}
        places = [place_of.setdefault(key, len(place_of)) for key in _row_keys(rows)]
        if len(place_of) == len(rows):
            return process(everything)
        first = [places.index(place) for place in range(len(place_of))]
        repeated = _repeated(
            process(first), places, [len(list(_pictures(rows[row]))) for row in first]
        )
        return process(everything) if repeated is None else repeated


def knows_layout(processor: Any) -> bool:
    """Whether a processor's pixels can be repeated picture by picture."""
    image_processor = getattr(processor, "image_processor", None)
    return set(getattr(image_processor, "model_input_names", ())) == GRID_OUTPUTS


@contextmanager
def prompts_once(trainer: Any) -> Iterator[None]:
    """While it lasts, a trainer's processor processes equal prompts of one call once."""
    own = trainer.processing_class
    trainer.processing_class = OncePerPrompt(own)
    try:
        yield
    finally:
        trainer.processing_class = own


def _repeated(output: Any, places: list[int], num_pictures: list[int]) -> Any:
    """A processor's output of some rows, repeated; None if it holds what is not known.

    Args:
        output: of D rows.
        places: the row of each of N rows among them.
        num_pictures: of each of the D rows.
    """
    per_row = {name: value for name, value in output.items() if name not in GRID_OUTPUTS}
    pixels = output.keys() & GRID_OUTPUTS
    if per_row.keys() - ROW_OUTPUTS or any(len(v) != len(num_pictures) for v in per_row.values()):
        return None
    if pixels not in (set(), GRID_OUTPUTS):
        return None
    repeated = {
        name: value[places]
        if isinstance(value, torch.Tensor)
        else [copy.copy(value[place]) for place in places]
        for name, value in per_row.items()
    }
    if pixels:
        grid = torch.as_tensor(output["image_grid_thw"])
        if len(grid) != sum(num_pictures):
            return None
        patches = torch.split(torch.as_tensor(output["pixel_values"]), grid.prod(dim=1).tolist())
        ends = [0, *accumulate(num_pictures)]
        pictures = [number for place in places for number in range(ends[place], ends[place + 1])]
        repeated["pixel_values"] = torch.cat([patches[number] for number in pictures])
        repeated["image_grid_thw"] = grid[pictures]
    # In the processor's order.
    return type(output)({name: repeated[name] for name in output})


def _row_keys(rows: Sequence[Any]) -> list[Hashable]:
    """What makes rows equal."""
    pictures = list(_pictures(rows))
    # Rows that share pictures are those of a group; without any, groups may hold copies.
    shares = len({id(picture) for picture in pictures}) < len(pictures)
    return [_key(row, id if shares else _content) for row in rows]


def _key(value: Any, picture_key: Callable[[Image.Image], Hashable]) -> Hashable:
    if isinstance(value, dict):
        return dict, *((name, _key(inner, picture_key)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return type(value), *(_key(inner, picture_key) for inner in value)
    if isinstance(value, Image.Image):
        return Image, picture_key(value)
    if value is None or isinstance(value, str | bytes | int | float):
        return type(value), value
    return object, id(value)


def _pictures(value: Any) -> Iterator[Image.Image]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _pictures(inner)
    elif isinstance(value, Image.Image):
        yield value


def _has_pictures(value: Any) -> bool:
    return any(True for _ in _pictures(value))


def _content(picture: Image.Image) -> Hashable:
    """What makes two pictures equal, be they copies."""
    palette = picture.palette.tobytes() if picture.palette else b""
    transparency = repr(picture.info.get("transparency"))
    pixels = hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
    return picture.mode, picture.size, palette, transparency, pixels
