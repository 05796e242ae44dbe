"""Rows of a generation batch read once per prompt: the same prompts and weights, fewer reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny_runs import make_trainer, text_rows, vision_rows, weights_of
from trl import GRPOTrainer

from fastrl.trl import FastGRPOTrainer
from fastrl.trl.fetching import FetchedOnce


def noted(rows: Dataset) -> tuple[Dataset, list[int]]:
    """The rows, numbered, and a list that grows by the number of every row that is read."""
    read: list[int] = []

    def note(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        read.extend(batch["number"])
        return batch

    return rows.add_column("number", range(len(rows))).with_transform(note), read


def by_place(completions: list[str], **columns: Any) -> list[float]:
    """Contrast in every group: dynamic sampling asks for no further prompt."""
    return [float(place % 2) for place in range(len(completions))]


class Rereading(FastGRPOTrainer):
    """Reads as plain TRL does: every row for every rollout, at every micro-step."""

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        return GRPOTrainer._get_dataloader(self, *args, **kwargs)


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({}, 1),
        ({"prune_rule": "none", "dynamic_sampling": True, "max_resamples": 1}, 1),
        # TRL untouched: for each of 4 rollouts, at each of 4 micro-steps.
        ({"prune_rule": "none"}, 16),
    ],
)
def test_a_row_is_read_so_often_an_epoch(
    settings: dict[str, Any], times: int, text_model: str, out: str
) -> None:
    rows, read = noted(text_rows(8))
    trainer = make_trainer(text_model, out, dataset=rows, reward=by_place, max_steps=4, **settings)
    read.clear()
    trainer.train()
    assert trainer.state.epoch == 1
    assert sorted(read) == sorted(list(range(8)) * times)


@pytest.mark.parametrize("sort", ["pictures", "texts, two workers, two epochs"])
def test_prompts_and_weights_are_those_of_reading_again(
    sort: str, text_model: str, vision_model: str, tmp_path: Any
) -> None:
    found = []
    for trainer_class in (FastGRPOTrainer, Rereading):
        out = str(tmp_path / trainer_class.__name__)
        if sort == "pictures":
            rows = vision_rows(8, (1, 2, 0))
            trainer = make_trainer(vision_model, out, trainer_class=trainer_class, dataset=rows)
        else:
            trainer = make_trainer(
                text_model, out, trainer_class=trainer_class, max_steps=8, dataloader_num_workers=2
            )
        told: list[Any] = []
        trainer.rollout_observers.append(told.append)
        trainer.train()
        found.append(([(r.prompts, r.completions) for r in told], weights_of(trainer)))
    (told, weights), (expected, expected_weights) = found
    assert len(told) == (2 if sort == "pictures" else 4)
    assert told == expected
    assert all(torch.equal(weights[name], value) for name, value in expected_weights.items())


def test_rows_of_a_group_share_pictures_and_nothing_else() -> None:
    rows = FetchedOnce(vision_rows(2, (2,)))
    first, other, twin = rows.__getitems__([0, 1, 0])
    assert first == twin != other
    assert [a is b for a, b in zip(first["images"], twin["images"], strict=True)] == [True, True]
    first["prompt"][0]["content"] = "changed"
    first["images"].clear()
    first["reward"] = 1.0
    assert twin["prompt"][0]["content"] == "What is 0 plus 0?"
    assert len(twin["images"]) == 2
    assert rows[0] == twin


def test_only_what_the_batch_before_lacks_is_read() -> None:
    rows, read = noted(text_rows(6))
    once = FetchedOnce(rows)
    assert len(once) == 6
    for batch in ([3, 3, 1, 1], [3, 3, 1, 1], [1, 1, 4, 4], [3, 3]):
        assert [row["number"] for row in once.__getitems__(batch)] == batch
    assert read == [3, 1, 4, 3]


def test_the_sampler_and_the_columns_are_the_hosts(text_model: str, out: str) -> None:
    class Sampling(FastGRPOTrainer):
        def _get_train_sampler(self, dataset: Any = None) -> Any:
            assert dataset.column_names == ["prompt"]
            return super()._get_train_sampler(dataset)

    rows = text_rows(8).add_column("number", range(8))
    trainer = make_trainer(
        text_model, out, trainer_class=Sampling, dataset=rows, remove_unused_columns=True
    )
    loader = trainer.get_train_dataloader()
    assert next(iter(loader))[0].keys() == {"prompt"}
    assert len(loader) == 8
