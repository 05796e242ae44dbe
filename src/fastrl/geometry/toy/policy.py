"""The toy's policy: a real Qwen2.5-VL of about one million parameters, built without a download."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from fastrl.geometry.toy import text as toy_text
from fastrl.geometry.toy.text import build_tokenizer

PATCH_SIZE = 14
MERGE_SIZE = 2
HIDDEN_SIZE = 128
VISION_HIDDEN_SIZE = 64
# With the usual 0.02 a model of this width does not learn to read its pictures.
INITIAL_STD = 0.05


def build_processor(
    min_pixels: int = (PATCH_SIZE * MERGE_SIZE) ** 2, max_pixels: int = 224 * 224
) -> Qwen2_5_VLProcessor:
    """A Qwen2.5-VL processor around the toy's tokenizer.

    Args:
        min_pixels, max_pixels: pictures are resized, aspect kept, to lie between them.
    """
    sizes: dict[str, Any] = {
        "patch_size": PATCH_SIZE,
        "merge_size": MERGE_SIZE,
        "temporal_patch_size": 2,
    }
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            min_pixels=min_pixels, max_pixels=max_pixels, **sizes
        ),
        tokenizer=build_tokenizer(),
        video_processor=Qwen2VLVideoProcessor(**sizes),
        chat_template=toy_text.CHAT_TEMPLATE,
    )


def build_config(processor: Qwen2_5_VLProcessor, layers: int = 4) -> Qwen2_5_VLConfig:
    """The architecture: 4 text layers of width 128, 2 vision layers of width 64."""
    tokenizer = processor.tokenizer
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in toy_text.SPECIAL_TOKENS}
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": HIDDEN_SIZE,
            "intermediate_size": 3 * HIDDEN_SIZE,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [4, 6, 6],
                "rope_theta": 10000.0,
            },
            "tie_word_embeddings": True,
            "bos_token_id": ids[toy_text.TURN_START],
            "eos_token_id": ids[toy_text.TURN_END],
            "pad_token_id": ids[toy_text.END_OF_TEXT],
        },
        vision_config={
            "depth": 2,
            "hidden_size": VISION_HIDDEN_SIZE,
            "intermediate_size": 3 * VISION_HIDDEN_SIZE,
            "num_heads": 4,
            "out_hidden_size": HIDDEN_SIZE,
            "patch_size": PATCH_SIZE,
            "spatial_merge_size": MERGE_SIZE,
            "temporal_patch_size": 2,
            "window_size": 8 * PATCH_SIZE,
            "fullatt_block_indexes": [0, 1],
        },
        image_token_id=ids[toy_text.IMAGE_TOKEN],
        video_token_id=ids[toy_text.VIDEO_TOKEN],
        vision_start_token_id=ids[toy_text.VISION_START],
        vision_end_token_id=ids[toy_text.VISION_END],
        tie_word_embeddings=True,
    )


def build_model(
    processor: Qwen2_5_VLProcessor, seed: int = 0, layers: int = 4
) -> Qwen2_5_VLForConditionalGeneration:
    """A freshly initialised policy (float32), the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(build_config(processor, layers))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INITIAL_STD, generator=generator)
    generation = model.generation_config
    generation.eos_token_id = processor.tokenizer.eos_token_id
    generation.pad_token_id = processor.tokenizer.pad_token_id
    return model
