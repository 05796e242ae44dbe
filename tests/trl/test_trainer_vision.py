"""Pictures: several a sample, none, or a micro-batch without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import (
    QUESTIONS,
    largest_difference,
    make_trainer,
    vision_rows,
    weights_of,
)
from trl import GRPOTrainer

from fastrl.trl.weighting import SHARE_KEY


@pytest.mark.parametrize("pictures", [(1, 0, 2, 0), (0, 0, 0, 1)])
@pytest.mark.parametrize("weighting", ["kept", "exact"])
def test_vision_rows_keep_their_own_pixels(
    vision_model: str, out: str, pictures: tuple[int, ...], weighting: str
) -> None:
    """The log-probs of pruned micro-batches equal those of the same rows in the whole batch."""
    trainer = make_trainer(
        vision_model,
        out,
        dataset=vision_rows(8, pictures),
        beta=0.1,
        weighting=weighting,
        learning_rate=1e-3,
        shuffle_dataset=False,
        max_steps=6,
    )
    checked = []
    original_score = trainer._generate_and_score_completions
    original_split = trainer._new_micro_batches
    whole: dict[str, Any] = {}

    def score(inputs: Any) -> Any:
        output = original_score(inputs)
        with torch.no_grad():
            logps, _, _ = GRPOTrainer._get_per_token_logps_and_entropies(
                trainer,
                trainer.model,
                torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
                torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
                output["completion_ids"].shape[1],
                **{
                    key: output[key]
                    for key in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
                    if key in output
                },
            )
        whole["logps"], whole["batch"] = logps, output
        return output

    def split(batch: Any) -> Any:
        micro_batches = original_split(batch)
        for micro in micro_batches:
            if not micro[SHARE_KEY].rows:
                continue
            for row, logps in enumerate(micro["old_per_token_logps"]):
                mask = micro["completion_mask"][row].bool()
                candidates = [
                    whole["logps"][index][: len(logps)][mask]
                    for index in range(len(whole["logps"]))
                    if whole["batch"]["completion_ids"][index][: len(logps)][mask].tolist()
                    == micro["completion_ids"][row][mask].tolist()
                ]
                gaps = [float((logps[mask] - c).abs().max()) for c in candidates]
                checked.append(min(gaps))
        return micro_batches

    trainer._generate_and_score_completions = score
    trainer._new_micro_batches = split
    trainer.train()
    assert len(checked) > 10
    assert max(checked) < 1e-4
    assert all(np.isfinite(trainer.recorder.values("loss")))


def test_vision_with_nothing_left(vision_model: str, out: str) -> None:
    trainer = make_trainer(
        vision_model,
        out,
        dataset=vision_rows(4),
        reward=lambda completions, **kwargs: [1.0] * len(completions),
        drop_uninformative=True,
        max_steps=2,
    )
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(weights_of(trainer), before) == 0.0


def test_the_record_carries_the_pictures_of_each_prompt(vision_model: str, out: str) -> None:
    dataset = vision_rows(4, (1, 0, 2, 1))
    trainer = make_trainer(vision_model, out, dataset=dataset, shuffle_dataset=False, max_steps=2)
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    assert [len(found) for found in records[0].pictures_G] == [1, 0, 2, 1]
    assert records[0].pictures_G[2][1].tobytes() == dataset[2]["images"][1].tobytes()


def test_pictures_stay_with_their_prompts_when_groups_are_resampled(
    vision_model: str, out: str
) -> None:
    dataset = vision_rows(8)
    flat = QUESTIONS[:4]

    def reward(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
        texts = [str(prompt) for prompt in prompts]
        return [
            float(index % 2 and not any(question in text for question in flat))
            for index, text in enumerate(texts)
        ]

    trainer = make_trainer(
        vision_model,
        out,
        dataset=dataset,
        reward=reward,
        shuffle_dataset=False,
        max_steps=2,
        dynamic_sampling=True,
        adaptive_rollouts=False,
    )
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    (record,) = records
    # 4 groups that were replaced, and those that took their place.
    assert len(record.completions) > 16
    asked = [
        record.prompts[row].removeprefix("<image>") for row in range(0, len(record.prompts), 4)
    ]
    pictures = {QUESTIONS[index]: dataset[index]["images"][0].tobytes() for index in range(8)}
    assert len(set(asked)) == 8
    assert [found[0].tobytes() for found in record.pictures_G] == [pictures[one] for one in asked]
