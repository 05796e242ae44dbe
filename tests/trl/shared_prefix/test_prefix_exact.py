"""Scored behind shared prefixes: TRL's own log-probs, entropies and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prefix_models import (
    ALL_KINDS,
    GRID_KINDS,
    Batch,
    Prompt,
    build,
    draw,
    gap,
    host_scores,
    shared_scores,
)

from fastrl.trl.shared_prefix.forms import SPLIT, build_form
from fastrl.trl.shared_prefix.layout import GroupSpans, PackedLayout
from fastrl.trl.shared_prefix.scoring import packed_inputs, score_packed

# Of float32: log-probs, and the norm of the gradient's difference over the gradient's.
LOGPS, GRADIENTS = 5e-5, 1e-5

MODELS: dict[str, Any] = {}


def model_of(kind: str) -> Any:
    if kind not in MODELS:
        MODELS[kind] = build(kind)
    return MODELS[kind]


def mixed(kind: str) -> Batch:
    """Ragged completions, some empty; one or two pictures, or none; one text, two pictures."""
    pictures = ((4, 4), (8, 4), (4, 8)) if kind not in ("qwen2", "qwen3", "llama") else None
    if pictures is None:
        prompts = [Prompt(17, (5, 9, 0, 7)), Prompt(1, (3, 6)), Prompt(30, (8,)), Prompt(4, (0,))]
        return draw(prompts, kind)
    prompts = [
        Prompt(9, (5, 9, 7), pictures[:1], tokens=1),
        Prompt(9, (4, 6), pictures[:1], tokens=1),
        Prompt(12, (8, 0, 3), pictures[1:]),
        Prompt(20, (6, 2)),
        Prompt(7, (1,), pictures[:1]),
    ]
    return draw(prompts, kind)


def assert_exact(model: Any, batch: Batch, scores: Any = shared_scores) -> None:
    found = gap(model, batch, scores)
    assert found.logps < LOGPS
    assert found.entropies < LOGPS
    assert found.gradients < GRADIENTS


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_mixed_prompts(kind: str) -> None:
    batch = mixed(kind)
    packing = batch.chunk().pack()
    assert len(packing.first_rows) == (3 if kind in ("qwen2", "qwen3", "llama") else 5)
    assert_exact(model_of(kind), batch)


@pytest.mark.parametrize("kind", GRID_KINDS)
def test_text_alone_through_a_vision_model(kind: str) -> None:
    assert_exact(model_of(kind), draw([Prompt(12, (5, 9)), Prompt(5, (4, 4, 4))], kind))


@settings(max_examples=14, deadline=None)
@given(
    prompts=st.lists(
        st.tuples(st.integers(1, 400), st.lists(st.integers(0, 12), min_size=1, max_size=8)),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 99),
)
@example(prompts=[(1, [3, 0, 12, 5, 1, 7, 2, 9]), (400, [0])], seed=0)
@example(prompts=[(400, [4, 0, 12, 5, 1, 7, 2, 9]), (1, [6])], seed=1)
def test_any_lengths(prompts: list[tuple[int, list[int]]], seed: int) -> None:
    batch = draw([Prompt(text, tuple(lengths)) for text, lengths in prompts], seed=seed)
    if batch.attention_mask[:, -batch.width :].any():
        assert_exact(model_of("qwen2"), batch)


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(
        st.lists(st.sampled_from([(2, 2), (4, 2), (4, 6)]), max_size=2), min_size=1, max_size=3
    ),
    rollouts=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_any_pictures(sizes: list[list[tuple[int, int]]], rollouts: int, seed: int) -> None:
    lengths = tuple(range(2, 2 + rollouts))
    prompts = [Prompt(6 + n, lengths, tuple(size)) for n, size in enumerate(sizes)]
    assert_exact(model_of("qwen2_5_vl"), draw(prompts, "qwen2_5_vl", seed))


def test_completions_longer_than_a_block() -> None:
    assert_exact(model_of("llama"), draw([Prompt(20, (600, 300)), Prompt(300, (513,))]))


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_5_vl"])
def test_a_chunk_without_a_token_keeps_its_graph(kind: str) -> None:
    batch = mixed(kind)
    batch.attention_mask[:, -batch.width :] = 0
    model = model_of(kind)
    logps, entropies = shared_scores(model, batch)
    assert logps.shape == host_scores(model, batch)[0].shape
    assert logps.abs().max() == 0.0
    assert entropies.abs().max() == 0.0
    logps.sum().backward()
    # Every process passes gradients of the same parameters, of the vision tower too.
    assert all(p.grad is not None and not p.grad.any() for p in used_parameters(model))
    model.zero_grad(set_to_none=True)


def test_the_only_picture_stays_though_its_rows_are_empty() -> None:
    prompts = [Prompt(9, (0, 0), ((4, 4),)), Prompt(12, (5, 4))]
    batch = draw(prompts, "qwen2_5_vl")
    packing = batch.chunk().pack()
    assert [batch.inputs["num_images"][row] for row in packing.first_rows] == [0, 1]
    assert_exact(model_of("qwen2_5_vl"), batch)


def used_parameters(model: Any) -> list[torch.nn.Parameter]:
    return [p for name, p in model.named_parameters() if "visual.deepstack" not in name]


def test_gradient_checkpointing_runs_layers_again() -> None:
    for kind in ("qwen3", "qwen2_5_vl"):
        model = build(kind)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        assert_exact(model, mixed(kind))
        assert model.config.get_text_config()._attn_implementation == "sdpa"


def test_the_models_own_attention_comes_back_after_an_error() -> None:
    model = build("qwen2")
    batch = mixed("qwen2")

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise FloatingPointError("attention")

    with pytest.raises(FloatingPointError):
        shared_scores(model, batch, form=lambda layout: broken)
    assert model.config._attn_implementation == "sdpa"
    assert_exact(model, batch)


def test_bf16_autocast() -> None:
    """The gap is bf16's own: that of the host's two ways to pad the same rows."""
    model, batch = model_of("qwen2_5_vl"), mixed("qwen2_5_vl")
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        mine = shared_scores(model, batch)[0]
        host = host_scores(model, batch)[0]
    with torch.no_grad():
        exact = host_scores(model, batch)[0]
    assert float((mine - host).abs().mean()) < 2 * float((exact - host).abs().mean())


def test_low_rank_adapters() -> None:
    from peft import LoraConfig, get_peft_model

    model = build("qwen2_5_vl")
    lora = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    assert_exact(get_peft_model(model, lora), mixed("qwen2_5_vl"))


# -- what would go unnoticed if the comparison could not fail ---------------------------------


def shifted_positions(model: Any, batch: Batch) -> Any:
    """Completions one position too far, the prompt right."""
    chunk, packing = batch.chunk(), batch.chunk().pack()
    form = build_form(SPLIT, packing.layout)
    inputs = packed_inputs(chunk, packing, form, model.model.get_rope_index)
    is_completion_T = torch.from_numpy(packing.source_T % batch.input_ids.shape[1])
    inputs["position_ids"] += is_completion_T >= batch.input_ids.shape[1] - batch.width

    def call(**ignored: Any) -> Any:
        return model(**inputs, fused_lm_head=True)

    return score_packed(call, chunk, packing, form, None, compute_entropy=True)


def seeing_each_other(model: Any, batch: Batch) -> Any:
    """Plain causal attention within a group: a rollout sees those before it."""

    def careless(layout: PackedLayout) -> Any:
        groups = [
            GroupSpans((group.prefix[0],) * 2, ((group.prefix[0], group.spans[-1][1]),))
            for group in layout.groups
        ]
        return build_form(SPLIT, replace(layout, groups=tuple(groups)))

    return shared_scores(model, batch, form=careless)


def plain_positions(model: Any, batch: Batch) -> Any:
    """One position a token, where the model has three for pictures."""
    chunk, packing = batch.chunk(), batch.chunk().pack()
    form = build_form(SPLIT, packing.layout)
    return score_packed(model, chunk, packing, form, None, compute_entropy=True)


@pytest.mark.parametrize("wrong", [shifted_positions, seeing_each_other, plain_positions])
def test_the_comparison_can_fail(wrong: Any) -> None:
    found = gap(model_of("qwen2_5_vl"), mixed("qwen2_5_vl"), wrong)
    assert found.logps > 1000 * LOGPS
    assert found.gradients > 1000 * GRADIENTS


def test_pictures_make_groups_of_one_text_two() -> None:
    """The same tokens with other pixels are another prompt."""
    batch = mixed("qwen2_5_vl")
    packing = batch.chunk().pack()
    texts = {
        tuple(batch.input_ids[row][batch.attention_mask[row].bool()][:13].tolist())
        for row in packing.first_rows
    }
    assert (len(packing.first_rows), len(texts)) == (5, 4)
    assert np.bincount(packing.group_T).tolist() == [
        sum(len(range(*span)) for span in {group.prefix, *group.spans})
        for group in packing.layout.groups
    ]
