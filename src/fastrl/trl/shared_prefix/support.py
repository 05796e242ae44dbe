"""Which models and inputs can be scored behind shared prefixes, and why others cannot."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import is_compiled_module  # type: ignore[import-untyped,unused-ignore]

# Text models that were tested: every layer attends causally to everything before.
TEXT_TYPES = frozenset({"llama", "qwen2", "qwen3"})
# With pictures as patches and positions of their own (`get_rope_index`).
GRID_TYPES = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl"})
# With one row of pixels a picture, before one of the text models.
PICTURE_TYPES = frozenset({"llava"})
# Rotary positions that do not hang on how long the sequence is.
ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})
# What TRL passes on for models whose pixels or masks are laid out otherwise.
OTHER_LAYOUTS = (
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "image_position_ids",
    "token_type_ids",
)


def bare_model(model: Any) -> Any:
    """The transformers model inside PEFT's."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def why_not_model(model: Any) -> str | None:
    """Why a model, unwrapped, cannot be scored behind shared prefixes; None if it can."""
    if is_compiled_module(model):
        return "torch.compile: a packed row has another length every time"
    if hasattr(model, "get_base_model") and any(
        getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()
    ):
        return "PEFT's prompt learning puts tokens of its own before the prompt"
    config = bare_model(model).config
    kind = config.model_type
    if kind not in TEXT_TYPES | GRID_TYPES | PICTURE_TYPES:
        return f"the architecture {kind!r} was not tested"
    text = config.get_text_config()
    if kind in PICTURE_TYPES and text.model_type not in TEXT_TYPES:
        return f"the architecture {kind!r} over {text.model_type!r} was not tested"
    return _why_not_text(text)


def _why_not_text(text: Any) -> str | None:
    layers = set(getattr(text, "layer_types", None) or ["full_attention"])
    if layers != {"full_attention"} or getattr(text, "sliding_window", None) is not None:
        return f"layers with another attention ({', '.join(sorted(layers))}, sliding_window)"
    rope = getattr(text, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind not in ROPE_TYPES | {"mrope"}:
        return f"rotary positions of type {kind!r} hang on the sequence's length"
    return None


def why_not_inputs(
    config: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    completion_width: int,
    inputs: dict[str, Any],
) -> str | None:
    """Why a call's inputs cannot be scored behind shared prefixes; None if they can.

    Args:
        config: of the bare model.
        input_ids, attention_mask: (B, W), as TRL passes them, on the CPU.
        completion_width: columns of the completions, the last ones.
        inputs: TRL's further arguments, by name.
    """
    given = [name for name in OTHER_LAYOUTS if inputs.get(name) is not None]
    if given:
        return f"inputs laid out otherwise ({', '.join(given)})"
    if inputs.get("compute_aux_loss"):
        return "a mixture-of-experts auxiliary loss is a mean over all tokens"
    start = input_ids.shape[1] - completion_width
    if not bool(attention_mask[:, :start].any(dim=1).all()):
        return "a prompt without tokens"
    # The host predicts a token after a hole from the hole.
    left, right = attention_mask[:, :start].long().diff(dim=1), attention_mask[:, start:].long()
    if bool((left < 0).any()) or bool((right.diff(dim=1) > 0).any()):
        return "padding in the middle of a prompt or a completion"
    if inputs.get("pixel_values") is not None and inputs.get("num_images") is None:
        return "pictures without their number in each row"
    return _why_not_picture_tokens(config, input_ids, attention_mask, start)


def _why_not_picture_tokens(
    config: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, start: int
) -> str | None:
    """A picture's tokens are counted: none may be repeated, or stand among a completion's."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    special = {getattr(config, name, None) for name in names} - {None}
    if not special:
        return None
    is_picture_BW = torch.isin(input_ids, torch.tensor(sorted(special))) & attention_mask.bool()
    if bool(is_picture_BW[:, start:].any()):
        return "pictures in a completion"
    places = torch.arange(1, start + 1)
    last_B1 = (attention_mask[:, :start] * places).argmax(dim=1, keepdim=True)
    if bool(is_picture_BW[:, :start].gather(1, last_B1).any()):
        return "a prompt that ends in a picture"
    return None
