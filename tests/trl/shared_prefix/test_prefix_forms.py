"""The forms of attention for GPUs, emulated: each takes in what the plain form does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from prefix_models import Prompt, build, config_of, draw, gap
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from fastrl.trl.shared_prefix.attention import SplitAttention
from fastrl.trl.shared_prefix.flex import FlexAttention, block_mask
from fastrl.trl.shared_prefix.forms import (
    FLASH_ATTN,
    FLEX,
    FORMS,
    SPLIT,
    TORCH_VARLEN,
    build_form,
    form_name,
    model_form,
)
from fastrl.trl.shared_prefix.layout import PackedLayout
from fastrl.trl.shared_prefix.varlen import VarlenAttention, VarlenLayout

BATCH = draw([Prompt(9, (5, 3, 7)), Prompt(14, (4,)), Prompt(1, (2, 6)), Prompt(300, (9, 9))])
PACKING = BATCH.chunk().pack()
LAYOUT = PACKING.layout


def dense_mask(layout: PackedLayout) -> torch.Tensor:
    """(T, T) who sees whom, token by token from the packing's own numbers, not from the spans."""
    group_T = PACKING.group_T
    row_T = PACKING.source_T // BATCH.input_ids.shape[1]
    prompt_T = PACKING.target_T < 0
    sees = np.zeros((layout.length, layout.length), dtype=bool)
    for query in range(layout.length):
        for key in range(query + 1):
            if group_T[query] == group_T[key]:
                sees[query, key] = prompt_T[key] or row_T[query] == row_T[key]
    return torch.from_numpy(sees)


def emulated_flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scaling: float | None,
    dropout: float,
) -> torch.Tensor:
    """What flash_attn_varlen_func promises with causal=True since 2.1: the ends are aligned."""
    assert query_bounds.dtype == key_bounds.dtype == torch.int32
    assert len(query) == query_bounds[-1]
    assert len(key) == len(value) == key_bounds[-1]
    assert longest_query == int(query_bounds.diff().max())
    assert longest_key == int(key_bounds.diff().max())
    attended = []
    bounds = zip(query_bounds[:-1], query_bounds[1:], key_bounds[:-1], key_bounds[1:], strict=True)
    for first_query, last_query, first_key, last_key in bounds:
        queries, keys = int(last_query - first_query), int(last_key - first_key)
        sees = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        one = scaled_dot_product_attention(
            query[first_query:last_query].transpose(0, 1)[None],
            key[first_key:last_key].transpose(0, 1)[None],
            value[first_key:last_key].transpose(0, 1)[None],
            attn_mask=sees,
            scale=scaling,
            dropout_p=dropout,
            enable_gqa=True,
        )
        attended.append(one[0].transpose(0, 1))
    return torch.cat(attended)


def emulated_varlen(layout: PackedLayout) -> VarlenAttention:
    return VarlenAttention(layout, emulated_flash)


def eager_flex(layout: PackedLayout) -> FlexAttention:
    return FlexAttention(layout, flex_attention)


def tensors(query_heads: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, LAYOUT.length, 16, generator=generator)
        for heads in (query_heads, 2, 2)
    ]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("form", [SplitAttention, emulated_varlen, eager_flex])
@pytest.mark.parametrize(("scaling", "heads"), [(None, 4), (0.1, 6)])
def test_a_form_is_attention_under_the_dense_mask(
    form: Any, scaling: float | None, heads: int
) -> None:
    query, key, value = tensors(heads)
    wanted = scaled_dot_product_attention(
        query, key, value, attn_mask=dense_mask(LAYOUT), scale=scaling, enable_gqa=True
    ).transpose(1, 2)
    attend = form(LAYOUT)
    for _ in range(2):  # the second time with what the first has remembered
        found = attend(query, key, value, scaling=scaling, dropout=0.0)
        assert found.shape == wanted.shape == (1, LAYOUT.length, heads, 16)
        assert float((found - wanted).abs().max()) < 1e-5


def test_the_block_mask_is_the_dense_mask() -> None:
    mask = block_mask(LAYOUT, torch.device("cpu"))
    index = torch.arange(LAYOUT.length)
    sees = mask.mask_mod(None, None, index[:, None], index[None, :])
    assert torch.equal(sees, dense_mask(LAYOUT))
    # Blocks of 128: whole ones are skipped, those above the diagonal at least.
    blocks = mask.to_dense()[0, 0]
    assert int(blocks.sum()) < blocks.numel()


def test_keys_of_a_prefix_are_gathered_for_each_of_its_spans() -> None:
    packing = draw([Prompt(4, (2, 3))], shuffle=False).chunk().pack()
    sequences = VarlenLayout.of(packing.layout)
    assert sequences.query_bounds.tolist() == [0, 3, 5, 8]
    assert sequences.key_bounds.tolist() == [0, 3, 8, 14]
    assert sequences.key_index.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize("kind", ["qwen3", "qwen2_5_vl"])
def test_a_model_through_the_variable_length_form(kind: str) -> None:
    from prefix_models import shared_scores

    pictures = ((4, 4),) if kind == "qwen2_5_vl" else ()
    batch = draw([Prompt(9, (5, 3, 7), pictures), Prompt(14, (4, 4))], kind)
    model = build(kind)
    found = gap(model, batch, lambda *args: shared_scores(*args, form=emulated_varlen))
    assert found.logps < 5e-5
    assert found.gradients < 1e-5


@pytest.mark.parametrize("form", [emulated_varlen, eager_flex])
def test_kernels_are_given_one_type_under_autocast(form: Any) -> None:
    """Rotary positions leave queries and keys in float32, values in bfloat16."""
    seen = []

    def kernel(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append({tensor.dtype for tensor in (query, key, value)})
        return query

    attend = form(LAYOUT)
    attend._kernel = kernel
    query, key, value = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        attend(query, key, value.bfloat16(), scaling=None, dropout=0.0)
    assert seen == [{torch.bfloat16}]


@pytest.mark.parametrize("form", [eager_flex])
def test_dropout_that_a_kernel_lacks_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match=r"dropout = 0\.1"):
        form(LAYOUT)(*tensors(), scaling=None, dropout=0.1)


AMPERE = {"capability": (8, 0), "has_flash_attn": True, "has_torch_varlen": True}


@pytest.mark.parametrize(
    ("name", "device", "dtype", "machine"),
    [
        (SPLIT, "cpu", torch.float32, {}),
        (SPLIT, "cpu", torch.bfloat16, AMPERE),
        (SPLIT, "mps", torch.bfloat16, AMPERE),
        (FLASH_ATTN, "cuda", torch.bfloat16, AMPERE),
        (TORCH_VARLEN, "cuda", torch.bfloat16, AMPERE | {"has_flash_attn": False}),
        (FLASH_ATTN, "cuda", torch.float16, AMPERE | {"dropout": 0.1}),
        (SPLIT, "cuda", torch.float16, AMPERE | {"dropout": 0.1, "has_flash_attn": False}),
        (FLEX, "cuda", torch.float32, AMPERE),
        (FLEX, "cuda", torch.bfloat16, AMPERE | {"capability": (7, 5)}),
        (FLEX, "cuda", torch.bfloat16, {"capability": (9, 0)}),
        (FLEX, "cuda", torch.bfloat16, AMPERE | {"head_width": 512}),
        (SPLIT, "cuda", torch.float32, AMPERE | {"head_width": 80}),
    ],
)
def test_a_machine_uses_the_fastest_that_is_exact(
    name: str, device: str, dtype: torch.dtype, machine: dict[str, Any]
) -> None:
    assert form_name(device, dtype, **machine) == name


def test_a_form_by_its_name() -> None:
    built = [type(build_form(name, LAYOUT)) for name in FORMS]
    assert built == [VarlenAttention, VarlenAttention, FlexAttention, SplitAttention]


@pytest.mark.parametrize("name", ["", "varlen", "Split"])
def test_a_form_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"form = '{name}'.*'flash-attn varlen'.*'split'"):
        build_form(name, LAYOUT)


@pytest.mark.parametrize(
    ("name", "more", "trains"),
    [
        (FLEX, {"head_dim": 64}, True),
        (SPLIT, {"head_dim": 80}, True),
        (SPLIT, {"head_dim": None}, True),  # 32 / 4 heads
        (SPLIT, {"head_dim": 64, "attention_dropout": 0.1}, True),
        (FLEX, {"head_dim": 64, "attention_dropout": 0.1}, False),
    ],
)
def test_a_model_is_given_a_form_for_its_heads_and_dropout(
    monkeypatch: pytest.MonkeyPatch, name: str, more: dict[str, Any], trains: bool
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    device = torch.device("cuda", 0)
    for kind in ("llama", "llava"):
        assert model_form(config_of(kind, **more), device, torch.float32, trains) == name
