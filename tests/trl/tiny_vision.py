"""Tiny vision-language models of other pixel layouts than Qwen's, built without a download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForImageTextToText,
    CLIPImageProcessor,
    GotOcr2ImageProcessor,
    Idefics3Config,
    Idefics3ImageProcessor,
    Idefics3Processor,
    InternVLConfig,
    InternVLProcessor,
    LlavaConfig,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    SmolVLMConfig,
)
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

from fastrl.geometry.toy.text import CHAT_TEMPLATE, build_tokenizer

TILE, PATCH = 28, 14
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SQUARE = {"height": TILE, "width": TILE}


def tokenizer_with(**named: str) -> PreTrainedTokenizerFast:
    """The toy's tokenizer with further special tokens, under these names."""
    base = build_tokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=base.backend_tokenizer,
        eos_token=base.eos_token,
        pad_token=base.pad_token,
        padding_side="left",
        extra_special_tokens=named,
    )


def text_config(tokenizer: PreTrainedTokenizerFast, model_type: str) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def chat_template(picture: str) -> str:
    """The toy's, with another word for a picture."""
    return CHAT_TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", picture)


def idefics() -> tuple[Any, ProcessorMixin]:
    """Tiles and a small copy of every picture; a row's tiles are padded to the most of a batch."""
    tokenizer = build_tokenizer()
    processor = Idefics3Processor(
        Idefics3ImageProcessor(
            size={"longest_edge": 2 * TILE}, max_image_size={"longest_edge": TILE}
        ),
        tokenizer,
        image_seq_len=1,
        chat_template=chat_template("<image>"),
    )
    config = Idefics3Config(
        text_config=text_config(tokenizer, "llama"),
        vision_config=VISION | {"image_size": TILE, "patch_size": PATCH},
        scale_factor=2,
        image_token_id=processor.image_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return config, processor


def smolvlm() -> tuple[Any, ProcessorMixin]:
    """As Idefics, without tiles: a padded row of pictures a sample."""
    _, processor = idefics()
    processor.image_processor = Idefics3ImageProcessor(
        do_image_splitting=False,
        size={"longest_edge": TILE},
        max_image_size={"longest_edge": TILE},
    )
    config = SmolVLMConfig(
        text_config=text_config(processor.tokenizer, "llama"),
        vision_config=VISION | {"image_size": TILE, "patch_size": PATCH},
        scale_factor=2,
        image_token_id=processor.image_token_id,
        pad_token_id=processor.tokenizer.pad_token_id,
    )
    return config, processor


def llava() -> tuple[Any, ProcessorMixin]:
    """One row of pixels a picture, of one size."""
    tokenizer = tokenizer_with(image_token="<image>")
    processor = LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": TILE}, crop_size=SQUARE),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>"),
    )
    config = LlavaConfig(
        text_config=text_config(tokenizer, "qwen2"),
        vision_config=VISION
        | {"model_type": "clip_vision_model", "image_size": TILE, "patch_size": PATCH},
        image_token_index=tokenizer.image_token_id,
        vision_feature_layer=-1,
    )
    return config, processor


def internvl() -> tuple[Any, ProcessorMixin]:
    """One row of pixels a tile; pictures have as many tiles as their shape asks for."""
    tokenizer = tokenizer_with(
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=True, min_patches=1, max_patches=4),
        tokenizer,
        InternVLVideoProcessor(size=SQUARE),
        image_seq_length=1,
        chat_template=chat_template("<IMG_CONTEXT>"),
    )
    config = InternVLConfig(
        text_config=text_config(tokenizer, "qwen2"),
        vision_config=VISION | {"image_size": [TILE, TILE], "patch_size": [PATCH, PATCH]},
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=1,
    )
    return config, processor


LAYOUTS: dict[str, Callable[[], tuple[Any, ProcessorMixin]]] = {
    "idefics": idefics,
    "smolvlm": smolvlm,
    "llava": llava,
    "internvl": internvl,
}


def build_layout(name: str) -> tuple[Any, ProcessorMixin]:
    """A freshly initialised model of the layout, and its processor."""
    config, processor = LAYOUTS[name]()
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.1)
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    return model, processor


def save_layout(name: str, folder: Path) -> str:
    """The same in a folder, for `make_trainer`."""
    model, processor = build_layout(name)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)
