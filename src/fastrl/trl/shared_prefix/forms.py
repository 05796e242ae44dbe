"""Which form of attention a machine uses for packed rows."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from fastrl.trl.shared_prefix.attention import AttentionForm, SplitAttention
from fastrl.trl.shared_prefix.flex import FlexAttention, compiled_flex
from fastrl.trl.shared_prefix.layout import PackedLayout
from fastrl.trl.shared_prefix.varlen import VarlenAttention, flash_attn_kernel, torch_kernel

FLASH_ATTN, TORCH_VARLEN, FLEX, SPLIT = "flash-attn varlen", "torch varlen", "torch flex", "split"
FORMS = (FLASH_ATTN, TORCH_VARLEN, FLEX, SPLIT)
HALF = (torch.float16, torch.bfloat16)
# From this compute capability on (Ampere) flash attention runs.
FLASH_CAPABILITY = (8, 0)
# The widest head of flash attention.
FLASH_WIDTH = 256


def form_name(
    device_type: str,
    dtype: torch.dtype,
    *,
    capability: tuple[int, int] = (0, 0),
    has_flash_attn: bool = False,
    has_torch_varlen: bool = False,
    head_width: int = 128,
    dropout: float = 0.0,
) -> str:
    """The fastest form that a machine can run exactly.

    Args:
        device_type: torch's, "cpu" or "cuda".
        dtype: that attention runs in.
        capability: compute capability of the CUDA device.
        has_flash_attn: whether the package flash-attn is installed.
        has_torch_varlen: whether torch has `torch.nn.attention.varlen` (2.10 or newer).
        head_width: of one attention head.
        dropout: of attention weights.
    """
    if device_type != "cuda":
        return SPLIT
    if dtype in HALF and capability >= FLASH_CAPABILITY and head_width <= FLASH_WIDTH:
        if has_flash_attn:
            return FLASH_ATTN
        if has_torch_varlen and not dropout:
            return TORCH_VARLEN
    # Flex attention compiles for powers of two.
    is_power = head_width >= 16 and head_width & (head_width - 1) == 0
    return FLEX if is_power and not dropout else SPLIT


def machine_form(
    device: torch.device, dtype: torch.dtype, head_width: int = 128, dropout: float = 0.0
) -> str:
    """`form_name` of this machine, for a device of it."""
    is_cuda = device.type == "cuda"
    return form_name(
        device.type,
        dtype,
        capability=torch.cuda.get_device_capability(device) if is_cuda else (0, 0),
        has_flash_attn=find_spec("flash_attn") is not None,
        has_torch_varlen=find_spec("torch.nn.attention.varlen") is not None,
        head_width=head_width,
        dropout=dropout,
    )


def model_form(config: Any, device: torch.device, dtype: torch.dtype, trains: bool) -> str:
    """`machine_form` for the text layers of a model.

    Args:
        config: of the model, with pictures or without.
        device, dtype: that attention runs on and in.
        trains: whether the model drops what its config says.
    """
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return machine_form(device, dtype, width, text.attention_dropout if trains else 0.0)


def build_form(name: str, layout: PackedLayout) -> AttentionForm:
    """The form of that name for a packed row.

    Raises:
        ValueError: a name that is none of `FORMS`.
    """
    if name == FLASH_ATTN:
        return VarlenAttention(layout, flash_attn_kernel)
    if name == TORCH_VARLEN:
        return VarlenAttention(layout, torch_kernel)
    if name == FLEX:
        return FlexAttention(layout, compiled_flex())
    if name == SPLIT:
        return SplitAttention(layout)
    known = ", ".join(repr(form) for form in FORMS)
    raise ValueError(f"form = {name!r}; expected one of {known}")
