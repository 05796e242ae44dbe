"""Tiny models of every architecture that shares prefixes, batches for them, and both ways to score.

The host's way is TRL's own method; tokens and pixels are drawn, so that no processor is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from fastrl.trl.shared_prefix.attention import let_calls_choose
from fastrl.trl.shared_prefix.forms import SPLIT, build_form
from fastrl.trl.shared_prefix.pictures import RowPictures
from fastrl.trl.shared_prefix.scoring import Chunk, score_packed
from fastrl.trl.shared_prefix.support import bare_model

VOCABULARY, IMAGE, FIRST_TEXT = 64, 3, 8
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
# Patches of 4 x 4 pixels, two frames, three colours; two by two of them are one token.
PATCH = 4 * 4 * 2 * 3
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": 4,
    "vision_start_token_id": 5,
    "vision_end_token_id": 6,
}
TOWER = {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "depth": 2}
GRID_KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TEXT_KINDS = ("qwen2", "qwen3", "llama")
# LLaVA by its text model.
LLAVA_KINDS = {"llava": "llama", "llava-qwen2": "qwen2", "llava-qwen3": "qwen3"}
ALL_KINDS = (*TEXT_KINDS, *GRID_KINDS, *LLAVA_KINDS)


def config_of(kind: str, **more: Any) -> Any:
    text = {**TEXT, **more}
    if kind in TEXT_KINDS:
        width = {"head_dim": 8} if kind == "qwen3" else {}
        return AutoConfig.for_model(kind, **text, **width)
    if kind in LLAVA_KINDS:
        width = {"head_dim": 8} if LLAVA_KINDS[kind] == "qwen3" else {}
        tower = {
            "model_type": "clip_vision_model",
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 16,
            "patch_size": 8,
        }
        return AutoConfig.for_model(
            "llava",
            text_config={"model_type": LLAVA_KINDS[kind], **text, **width},
            vision_config=tower,
            image_token_index=IMAGE,
            image_seq_length=4,
        )
    tower = {**TOWER, "num_heads": 2}
    if kind == "qwen2_vl":
        tower |= {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    else:
        tower |= {"hidden_size": 16, "intermediate_size": 32, "out_hidden_size": 32}
    if kind == "qwen2_5_vl":
        tower |= {"window_size": 16, "fullatt_block_indexes": [1]}
    if kind == "qwen3_vl":
        tower |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
        text["head_dim"] = 8
    return AutoConfig.for_model(
        kind, text_config={**text, "rope_parameters": ROPE}, vision_config=tower, **TOKENS
    )


def build(kind: str, **more: Any) -> Any:
    """A model of large weights: positions and masks make a difference that shows."""
    torch.manual_seed(0)
    factory = AutoModelForCausalLM if kind in TEXT_KINDS else AutoModelForImageTextToText
    model = factory.from_config(config_of(kind, **more), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.25)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    assert let_calls_choose(model.get_decoder()) == TEXT["num_hidden_layers"]
    return model.train()


@dataclass
class Prompt:
    """A prompt: text tokens, pictures (patches high and wide, in fours), and its completions."""

    text: int
    completions: tuple[int, ...]
    pictures: tuple[tuple[int, int], ...] = ()
    # Prompts of one number have the same text tokens, whatever their pictures.
    tokens: int = -1


@dataclass
class Batch:
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    width: int
    inputs: dict[str, Any] = field(default_factory=dict)

    def chunk(self) -> Chunk:
        pictures = None
        if "pixel_values" in self.inputs:
            names = ("pixel_values", "image_grid_thw", "num_images")
            pictures = RowPictures.of(*(self.inputs.get(name) for name in names))
        return Chunk(
            self.input_ids,
            self.attention_mask,
            self.width,
            pictures,
            self.inputs.get("mm_token_type_ids"),
        )


def draw(prompts: list[Prompt], kind: str = "qwen2", seed: int = 0, shuffle: bool = True) -> Batch:
    """Rows of prompts and completions as TRL pads them, shuffled."""
    rng = np.random.default_rng(seed)
    rows = []
    for prompt in prompts:
        drawn = rng if prompt.tokens < 0 else np.random.default_rng(1000 + prompt.tokens)
        text = drawn.integers(FIRST_TEXT, VOCABULARY, prompt.text).tolist()
        ids, pixels = text[: len(text) // 2], []
        for high, wide in prompt.pictures:
            # Between pictures there is always a token of text.
            ids += [5] + [IMAGE] * (4 if kind in LLAVA_KINDS else high * wide // 4)
            shape = (1, 3, 16, 16) if kind in LLAVA_KINDS else (high * wide, PATCH)
            pixels.append(torch.from_numpy(rng.normal(size=shape)).float())
        ids += text[len(text) // 2 :]
        sizes = [(1, *size) for size in prompt.pictures]
        grids = torch.tensor(sizes, dtype=torch.long).view(-1, 3)
        for length in prompt.completions:
            rows.append((ids, rng.integers(FIRST_TEXT, VOCABULARY, length).tolist(), pixels, grids))
    if shuffle:
        rows = [rows[index] for index in rng.permutation(len(rows))]
    start = max(len(row[0]) for row in rows)
    width = max(1, *(len(row[1]) for row in rows))
    ids = torch.zeros(len(rows), start + width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, (prompt_ids, completion, _, _) in enumerate(rows):
        for begin, tokens in ((start - len(prompt_ids), prompt_ids), (start, completion)):
            ids[number, begin : begin + len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            mask[number, begin : begin + len(tokens)] = 1
    inputs: dict[str, Any] = {}
    if any(row[2] for row in rows):
        inputs["pixel_values"] = torch.cat([part for row in rows for part in row[2]])
        inputs["num_images"] = [len(row[2]) for row in rows]
        if kind in GRID_KINDS:
            inputs["image_grid_thw"] = torch.cat([row[3] for row in rows])
            inputs["mm_token_type_ids"] = (ids == IMAGE).long()
    return Batch(ids, mask, width, inputs)


def host_scores(model: Any, batch: Batch, entropy: bool = True) -> tuple[Any, Any]:
    """Log-probs and entropies by TRL's own method."""
    host = SimpleNamespace(accelerator=Accelerator(cpu=True))
    logps, entropies, _ = GRPOTrainer._get_per_token_logps_and_entropies(
        host,
        model,
        batch.input_ids,
        batch.attention_mask,
        batch.width,
        compute_entropy=entropy,
        **batch.inputs,
    )
    return logps, entropies


def shared_scores(model: Any, batch: Batch, form: str = SPLIT, packing: Any = None) -> Any:
    """The same, behind shared prefixes."""
    chunk = batch.chunk()
    packing = packing or chunk.pack()
    return score_packed(
        model,
        chunk,
        packing,
        build_form(form, packing.layout) if isinstance(form, str) else form(packing.layout),
        getattr(bare_model(model).model, "get_rope_index", None),
        compute_entropy=True,
    )


@dataclass
class Gap:
    """Largest differences: absolute of log-probs and entropies, relative of gradients."""

    logps: float
    entropies: float
    gradients: float


def gap(model: Any, batch: Batch, scores: Any = shared_scores) -> Gap:
    """How far `scores` is from the host's, gradients by a weighted sum of the log-probs."""
    weights = torch.randn(
        len(batch.input_ids), batch.width, generator=torch.Generator().manual_seed(1)
    )
    found = []
    for score in (host_scores, scores):
        model.zero_grad(set_to_none=True)
        logps, entropies = score(model, batch)
        (logps * weights).sum().backward()
        gradients = torch.cat(
            [
                (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                for p in model.parameters()
                if p.requires_grad
            ]
        )
        found.append((logps.detach(), entropies.detach(), gradients))
    model.zero_grad(set_to_none=True)
    (logps, entropies, gradients), (mine, other, moved) = found
    # Zero at padding in both, so that nothing has to be masked.
    return Gap(
        float((mine - logps).abs().max()),
        float((other - entropies).abs().max()),
        float((moved - gradients).norm() / gradients.norm().clamp(min=1e-30)),
    )
