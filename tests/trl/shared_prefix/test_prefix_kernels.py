"""The calls of flash-attn's and torch's kernels: stand-ins with their arguments, emulated."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from test_prefix_forms import LAYOUT, dense_mask, emulated_flash, tensors
from torch.nn.functional import scaled_dot_product_attention

from fastrl.trl.shared_prefix.forms import FLASH_ATTN, TORCH_VARLEN, build_form
from fastrl.trl.shared_prefix.varlen import torch_kernel

DROPOUTS: list[float] = []


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """The first arguments of flash-attn 2's, by their names and in their order."""
    assert causal
    DROPOUTS.append(dropout_p)
    return emulated_flash(
        *(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k),
        scaling=softmax_scale,
        dropout=0.0,
    )


def emulated_varlen_attn(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Torch's, bound to the arguments of the real one, so that another name is an error."""
    bound = inspect.signature(REAL).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    # Causal, aligned at the end: everything to the left, nothing to the right.
    assert given["window_size"] == (-1, 0)
    assert given["enable_gqa"] == (given["query"].shape[1] != given["key"].shape[1])
    assert given["return_aux"] is None
    names = ("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k")
    return emulated_flash(*(given[name] for name in names), scaling=given["scale"], dropout=0.0)


varlen = pytest.importorskip("torch.nn.attention.varlen")
REAL = varlen.varlen_attn


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("flash_attn")
    module.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(varlen, "varlen_attn", emulated_varlen_attn)
    DROPOUTS.clear()


@pytest.mark.parametrize("name", [FLASH_ATTN, TORCH_VARLEN])
@pytest.mark.parametrize(("scaling", "heads"), [(None, 4), (0.1, 6), (None, 2)])
def test_a_kernel_is_called_for_attention_under_the_dense_mask(
    name: str, scaling: float | None, heads: int
) -> None:
    query, key, value = tensors(heads)
    wanted = scaled_dot_product_attention(
        query, key, value, attn_mask=dense_mask(LAYOUT), scale=scaling, enable_gqa=True
    ).transpose(1, 2)
    found = build_form(name, LAYOUT)(query, key, value, scaling=scaling, dropout=0.0)
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) < 1e-5


def test_dropout_is_flash_attns_and_refused_for_torchs() -> None:
    build_form(FLASH_ATTN, LAYOUT)(*tensors(), scaling=None, dropout=0.1)
    assert DROPOUTS == [0.1]
    with pytest.raises(ValueError, match=r"dropout = 0\.1"):
        build_form(TORCH_VARLEN, LAYOUT)(*tensors(), scaling=None, dropout=0.1)


def test_more_than_an_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", lambda *args, **kwargs: (args[0], None))
    bounds = torch.tensor([0, 3], dtype=torch.int32)
    rows = torch.zeros(3, 2, 16)
    with pytest.raises(TypeError, match="more than the output"):
        torch_kernel(rows, rows, rows, bounds, bounds, 3, 3, scaling=None, dropout=0.0)
