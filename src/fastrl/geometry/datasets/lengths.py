"""How many tokens a prompt has, its pictures included, without decoding them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastrl.geometry.datasets.pictures import fitted_size
from fastrl.geometry.datasets.rows import FORMAT_INSTRUCTION, GeometryRow
from fastrl.geometry.datasets.sources import DatasetError


def prompt_counter(
    processor: Any,
    format_instruction: str | None = FORMAT_INSTRUCTION,
    system_prompt: str | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    examples: Mapping[str, str] | None = None,
) -> Callable[[GeometryRow], int]:
    """A function that counts the tokens of a row's prompt.

    The function raises `DatasetError` for a processor that cannot tell.

    Args:
        processor: the model's, with its chat template; of pictures it is asked for their tokens by
            size, which the processors of Transformers know.
        format_instruction, system_prompt, min_pixels, max_pixels, examples: as for
            `GeometryData.for_training`.
    """
    tokenizer = getattr(processor, "tokenizer", processor)

    def count(row: GeometryRow) -> int:
        messages = row.prompt(format_instruction, system_prompt, examples)
        text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        if not row.pictures:
            return length
        sizes = []
        for picture in row.pictures:
            width, height = fitted_size(*picture.size(), min_pixels, max_pixels)
            sizes.append([height, width])
        if not hasattr(processor, "_get_num_multimodal_tokens"):
            raise DatasetError(
                f"max_prompt_length: {type(processor).__name__} cannot tell how many tokens a "
                "picture takes; leave it out."
            )
        tokens = processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"]
        # Each picture's one placeholder token grows to that many.
        return int(length + sum(tokens) - len(tokens))

    return count
