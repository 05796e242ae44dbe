"""Generation reads each prompt once, with its pictures, and not once per rollout."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fastrl.trl.shared_prefix.pictures import RowPictures

ROWS = ("input_ids", "attention_mask", "mm_token_type_ids")
PICTURES = ("pixel_values", "image_grid_thw")


@contextmanager
def prompts_once(model: Any, num_images: Sequence[int] | None) -> Iterator[None]:
    """While it lasts, `model.generate` reads neighbouring rows of one prompt once.

    The only change: all tokens of a prompt but the last go through the model beforehand, one row
    of each run of equal rows, and `generate` starts from that cache, repeated for every rollout.
    Each is then drawn from the random numbers that it would have had. Calls in which no rows are
    equal, or whose rows cannot be told apart, are left alone.

    Args:
        model: a causal language model of transformers, not wrapped.
        num_images: (N,) pictures of each row; None without pictures.
    """
    own, before = model.generate, vars(model).get("generate")

    def generate(**inputs: Any) -> torch.Tensor:
        rows = RowsOnce.of(inputs, num_images)
        if rows is not None:
            inputs = _start_from_cache(model, inputs, rows)
        completed: torch.Tensor = own(**inputs)
        return completed

    model.generate = generate
    try:
        yield
    finally:
        del model.generate
        if before is not None:
            model.generate = before


def cache_argument(model: Any) -> str:
    """What this version of transformers calls the cache of a model."""
    parameters = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def _start_from_cache(model: Any, inputs: dict[str, Any], rows: RowsOnce) -> dict[str, Any]:
    """The arguments of `generate` with the prompts' cache in place of their pictures."""
    name = cache_argument(model)
    ids_UP, others = rows.inputs["input_ids"], dict(rows.inputs)
    others.pop("input_ids")
    # What `generate` itself asks for, before it cuts the prompts.
    positions = model._prepare_position_ids_for_generation(ids_UP, {"input_ids": ids_UP, **others})
    prefix = {key: rows.inputs[key][:, :-1] for key in ROWS if key in rows.inputs}
    pictures = {key: others[key] for key in PICTURES if key in others}
    with torch.no_grad():
        output = model(
            **prefix,
            **pictures,
            position_ids=positions[..., :-1],
            use_cache=True,
            logits_to_keep=1,
        )
    cache = output[name]
    cache.batch_select_indices(rows.place_N)
    deltas = getattr(model.model, "rope_deltas", None)
    if deltas is not None:
        model.model.rope_deltas = deltas[rows.place_N]
    left = {key: value for key, value in inputs.items() if key not in (*PICTURES, *ROWS[2:])}
    return {**left, name: cache}


@dataclass(frozen=True)
class RowsOnce:
    """The prompts of a call, neighbours that are equal taken together.

    Attributes:
        place_N: for each row, which of the U runs of equal rows it belongs to.
        inputs: the prompts and pictures of the U runs.
    """

    place_N: torch.Tensor
    inputs: dict[str, Any]

    @classmethod
    def of(cls, inputs: dict[str, Any], num_images: Sequence[int] | None) -> RowsOnce | None:
        """None where the call is to be left alone.

        Args:
            inputs: of `generate`: (N, P) prompts, padded on the left, and their pictures.
            num_images: (N,) pictures of each row; None without pictures.
        """
        tensors = {name for name, value in inputs.items() if torch.is_tensor(value)}
        if not {"input_ids", "attention_mask"} <= tensors <= {*ROWS, *PICTURES}:
            return None
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        # A prompt of one token would leave nothing to begin with.
        if not bool(mask[:, :-1].any(dim=1).all()):
            return None
        starts_N = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        starts_N[1:] = ((ids[1:] != ids[:-1]) | (mask[1:] != mask[:-1])).any(dim=1)
        pictures = None
        if "pixel_values" in tensors:
            if num_images is None or len(num_images) != len(ids):
                return None
            grids = inputs.get("image_grid_thw")
            pictures = RowPictures.of(inputs["pixel_values"], grids, num_images)
            if pictures is None:
                return None
            for row in range(1, len(ids)):
                starts_N[row] |= not pictures.same(row - 1, row)
        if bool(starts_N.all()):
            return None
        first_U = starts_N.nonzero().flatten()
        once = {name: inputs[name][first_U] for name in tensors & {*ROWS}}
        if pictures is not None:
            once |= pictures.select(first_U.tolist()).inputs()
        return cls(starts_N.cumsum(dim=0) - 1, once)
