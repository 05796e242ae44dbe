"""Pixel layouts of other model families: every kept row has exactly its own pixels, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import QUESTIONS, make_trainer, vision_rows
from tiny_vision import LAYOUTS, save_layout
from transformers import AutoProcessor
from trl.data_utils import apply_chat_template, prepare_multimodal_messages

from fastrl.trl.batch import select_rows
from fastrl.trl.merging import merge_rows
from fastrl.trl.splitting import SHARE_KEY


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model of each layout."""
    return save_layout(request.param, tmp_path_factory.mktemp(request.param))


def alone(processor: Any, row: dict[str, Any]) -> dict[str, Any]:
    """A prompt with its pictures through the processor, by itself."""
    messages = prepare_multimodal_messages(row["prompt"], images=row["images"])
    text = apply_chat_template({"prompt": messages}, processor)["prompt"]
    pictures = [row["images"]] if row["images"] else None
    inputs: dict[str, Any] = processor(images=pictures, text=[text], return_tensors="pt")
    return inputs


def logps_alone(trainer: Any, inputs: dict[str, Any], completion: torch.Tensor) -> torch.Tensor:
    """A completion's log-probs by the bare model, without anyone else's rows or padding."""
    ids = torch.cat([inputs["input_ids"], completion[None]], dim=1)
    kept = ("pixel_values", "pixel_attention_mask")
    pixels = {name: inputs[name] for name in kept if name in inputs}
    labels = ids.clone()
    labels[:, : -len(completion)] = -100
    with torch.no_grad():
        output = trainer.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            labels=labels,
            fused_lm_head=True,
            **pixels,
        )
    return output.log_probs[0, -len(completion) :]


# Rows of one, no and several pictures; of exactly one; rows whose counts sum to the rows.
@pytest.mark.parametrize("pictures", [(1, 0, 2, 3), (1,), (2, 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_kept_rows_have_their_own_pictures(
    layout: str, out: str, pictures: tuple[int, ...], dynamic: bool
) -> None:
    data = vision_rows(8, pictures)

    def reward(prompts: Any, completion_ids: Any, **kwargs: Any) -> list[float]:
        # Every other prompt has no contrast, which dynamic sampling replaces.
        contents = [prompt[-1]["content"] for prompt in prompts]
        texts = [c if isinstance(c, str) else c[-1]["text"] for c in contents]
        asked = [QUESTIONS.index(text) for text in texts]
        return [float(question % 4 in (1, 2) and i % 2) for i, question in enumerate(asked)]

    trainer = make_trainer(
        layout,
        out,
        dataset=data,
        reward=reward,
        adaptive_rollouts=False,
        dynamic_sampling=dynamic,
        shuffle_dataset=False,
        similarity_threshold=0.2,
        max_steps=2,
        learning_rate=1e-3,
    )
    processor = AutoProcessor.from_pretrained(layout)
    by_ids = {}
    for row in data:
        inputs = alone(processor, row)
        by_ids[tuple(inputs["input_ids"][0].tolist())] = inputs
    checked: list[float] = []
    original = trainer._new_micro_batches

    def new_micro_batches(batch: Any) -> Any:
        micro_batches = original(batch)
        for micro in micro_batches:
            for row in range(micro[SHARE_KEY].rows):
                prompt = micro["prompt_ids"][row][micro["prompt_mask"][row].bool()]
                completion = micro["completion_ids"][row][micro["completion_mask"][row].bool()]
                wanted = logps_alone(trainer, by_ids[tuple(prompt.tolist())], completion)
                found = micro["old_per_token_logps"][row][: len(completion)]
                checked.append(float((found - wanted).abs().max()))
        return micro_batches

    trainer._new_micro_batches = new_micro_batches
    trainer.train()
    # Prompts 1 and 2 of the first four have contrast: two rows each, and one of the others.
    assert len(checked) >= 6
    assert max(checked) < 1e-4
    assert all(np.isfinite(trainer.recorder.values("loss")))
    assert trainer.recorder.values("fastrl/batch_filled") == ([1.0] if dynamic else [])


def test_a_batch_of_single_tiles_joins_one_of_several() -> None:
    """TRL tells tiles from pictures only where their numbers differ."""

    def batch(tiles: list[int], first: float, **more: Any) -> dict[str, Any]:
        rows = len(tiles)
        ids = torch.ones(rows, 2, dtype=torch.long)
        return {
            "prompt_ids": ids,
            "prompt_mask": ids,
            "completion_ids": ids,
            "completion_mask": ids,
            "num_images": [int(count > 0) for count in tiles],
            "pixel_values": first + torch.arange(sum(tiles)).float().view(-1, 1, 1, 1),
            **more,
        }

    several, single = batch([2, 3], 0.0, num_tiles=[2, 3]), batch([1, 0, 1], 10.0)
    for batches in ([several, single], [single, several]):
        joined = merge_rows(batches, pad_token_id=0)
        pixels = [
            select_rows(joined, np.array([row])).get("pixel_values", torch.empty(0)).flatten()
            for row in range(5)
        ]
        of = {0: [[0.0, 1.0], [2.0, 3.0, 4.0]], 1: [[10.0], [], [11.0]]}
        order = (0, 1) if batches[0] is several else (1, 0)
        assert [p.tolist() for p in pixels] == of[order[0]] + of[order[1]]


def test_the_check_can_fail(layout: str, out: str) -> None:
    """Another row's pictures give other log-probs, by far more than the tolerance."""
    trainer = make_trainer(layout, out, dataset=vision_rows(2), max_steps=1)
    processor = AutoProcessor.from_pretrained(layout)
    first, second = (alone(processor, row) for row in vision_rows(8, (2, 2)).select([0, 3]))
    completion = torch.arange(30, 36)
    swapped = {**first, "pixel_values": second["pixel_values"]}
    if swapped["pixel_values"].shape != first["pixel_values"].shape:
        swapped["pixel_values"] = first["pixel_values"].flip(0, -1)
    gap = logps_alone(trainer, first, completion) - logps_alone(trainer, swapped, completion)
    assert float(gap.abs().max()) > 1e-3
