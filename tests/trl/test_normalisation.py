"""The gradient of an update under pruning is that of one big batch of the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import largest_difference, make_trainer, text_rows
from trl import GRPOConfig, GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer
from fastrl.trl.batch import select_rows
from fastrl.trl.weighting import KNOWN_LOSSES

Gradients = dict[str, torch.Tensor | None]

# Every loss of TRL that is allowed, and GSPO: (loss_type, importance_sampling_level).
LOSSES = [(name, "sequence" if name == "luspo" else "token") for name in KNOWN_LOSSES]
LOSSES.append(("grpo", "sequence"))


class Fixed:
    """Completions and rewards that do not depend on chance: the same batch for every trainer.

    Per prompt four completions; `texts[p][i]` are token ids, `rewards[p][i]` numbers.
    """

    def __init__(self, texts: list[list[list[int]]], rewards: list[list[float]]) -> None:
        self.texts, self.rewards = texts, rewards

    def wrap(self, trainer_class: type) -> type:
        fixed = self

        class WithFixedCompletions(trainer_class):  # type: ignore[misc, valid-type]
            def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
                texts = [text for group in fixed.texts for text in group]
                assert len(texts) == len(prompt_ids)
                return [list(text) for text in texts], None

        return WithFixedCompletions

    def reward(self, completions: Any, **kwargs: Any) -> list[float]:
        return [value for group in self.rewards for value in group]


def random_batch(seed: int = 0, same_texts: bool = False) -> Fixed:
    """4 groups of 4; rewards 0 or 1, 2 of each or all but one; lengths 1 to 6.

    Args:
        same_texts: members of a bucket (equal rewards in a group) have the same tokens.
    """
    rng = np.random.default_rng(seed)
    rewards = [
        [0.0, 1.0, 0.0, 1.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 1.0, 1.0],
        [2.0, 1.0, 0.0, 0.0],
    ]
    texts = []
    for group in rewards:
        of_reward = {r: rng.integers(20, 300, rng.integers(1, 7)).tolist() for r in set(group)}
        texts.append(
            [
                of_reward[r] if same_texts else rng.integers(20, 300, rng.integers(1, 7)).tolist()
                for r in group
            ]
        )
    return Fixed(texts, rewards)


def moved_policy(trainer: Any) -> None:
    """Move the policy off the reference and off the sampler, so that no term vanishes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.01 * noise)


def two_updates(
    model: str, out: str, batch: Fixed, host: type, **overrides: Any
) -> list[Gradients]:
    """The unclipped gradients of two updates on one generation batch.

    The second one starts where the first led, away from the sampling policy: its ratios are not 1
    and some are clipped.
    """
    given = {
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 1,
        "per_device_train_batch_size": 16,
        "num_iterations": 2,
        "max_steps": 2,
        "max_grad_norm": 0.0,
        "shuffle_dataset": False,
        "optim": "sgd",
        "learning_rate": 0.01,
        **overrides,
    }
    trainer = make_trainer(
        model,
        out,
        trainer_class=batch.wrap(host),
        config_class=FastGRPOConfig if issubclass(host, FastGRPOTrainer) else GRPOConfig,
        reward=batch.reward,
        dataset=text_rows(len(batch.texts)),
        gradients=True,
        **given,
    )
    # The first update magnifies rounding: on some processors float32 misses the second's bound.
    for network in filter(None, (trainer.model, trainer.ref_model)):
        network.double()
    moved_policy(trainer)
    trainer.train()
    return trainer.recorder.gradients


def loss_settings(loss_type: str, level: str, beta: float) -> dict[str, Any]:
    given = {"loss_type": loss_type, "importance_sampling_level": level, "beta": beta}
    # LUSPO sums over tokens: a step as long as the others' would clip every row.
    return given | ({"learning_rate": 0.001} if loss_type == "luspo" else {})


def assert_same(found: list[Gradients], wanted: list[Gradients]) -> None:
    assert len(found) == len(wanted) == 2
    assert largest_difference(wanted[0], wanted[1]) > 1e-2
    assert largest_difference(found[0], wanted[0]) < 1e-5
    assert largest_difference(found[1], wanted[1]) < 1e-5


class OnlyKept(GRPOTrainer):
    """Plain TRL on a given choice of rows, as one micro-batch: what "kept" has to equal."""

    rows: np.ndarray[Any, Any]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        kept = select_rows(output, self.rows)
        mask = kept["completion_mask"]
        kept["num_items_in_batch"] = mask.sum().to(output["num_items_in_batch"])
        return kept


def kept_rows(batch: Fixed) -> np.ndarray[Any, Any]:
    """Seeds by hand: the first of each reward in each group (no text here is that different)."""
    rows = []
    for index, group in enumerate(batch.rewards):
        rows += sorted({4 * index + group.index(r) for r in group})
    return np.array(sorted(rows))


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_kept_is_the_mean_over_kept_rows(
    text_model: str, out: str, loss_type: str, level: str, beta: float
) -> None:
    batch = random_batch()
    given = loss_settings(loss_type, level, beta)
    OnlyKept.rows = kept_rows(batch)
    wanted = two_updates(text_model, out, batch, OnlyKept, **given)
    assert len(OnlyKept.rows) == 9
    for accumulation, size in ((1, 16), (2, 8), (4, 4), (8, 2)):
        found = two_updates(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            similarity_threshold=0.0,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            per_device_train_batch_size=size,
            **given,
        )
        assert_same(found, wanted)


@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_dropped_flat_groups_leave_the_mean_over_what_is_kept(
    text_model: str, out: str, loss_type: str, level: str
) -> None:
    """Two of four groups are flat: dropped whole, they are in no denominator (TRL #6365)."""
    batch = random_batch()
    batch.rewards[1] = [1.0] * 4
    batch.rewards[2] = [0.0] * 4
    given = loss_settings(loss_type, level, 0.0)
    rows = kept_rows(batch)
    OnlyKept.rows = rows[(rows < 4) | (rows >= 12)]
    assert len(OnlyKept.rows) == 5
    wanted = two_updates(text_model, out, batch, OnlyKept, **given)
    for accumulation, size in ((1, 16), (4, 4)):
        found = two_updates(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            similarity_threshold=0.0,
            drop_uninformative=True,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            per_device_train_batch_size=size,
            **given,
        )
        assert_same(found, wanted)


def test_the_comparison_can_fail(text_model: str, out: str) -> None:
    batch = random_batch(same_texts=True)
    full = two_updates(text_model, out, batch, GRPOTrainer)
    kept = two_updates(text_model, out, batch, FastGRPOTrainer)
    assert largest_difference(kept[0], full[0]) > 1e-2


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_exact_is_the_full_batch_where_texts_repeat(
    text_model: str, out: str, loss_type: str, level: str, beta: float
) -> None:
    batch = random_batch(same_texts=True)
    given = loss_settings(loss_type, level, beta)
    wanted = two_updates(text_model, out, batch, GRPOTrainer, **given)
    for accumulation, size in ((1, 16), (2, 8), (4, 4), (8, 2)):
        found = two_updates(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            weighting="exact",
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            per_device_train_batch_size=size,
            **given,
        )
        assert_same(found, wanted)


AVERAGED = [(name, "token") for name in ("grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo")]


@pytest.mark.parametrize(("loss_type", "level"), [*AVERAGED, ("grpo", "sequence")])
@pytest.mark.parametrize("windows", [2, 4])
def test_exact_updates_average_to_the_full_batch(
    text_model: str, out: str, loss_type: str, level: str, windows: int
) -> None:
    """With a frozen policy: the mean over the updates of a generation batch."""
    batch = random_batch(same_texts=True)
    given = loss_settings(loss_type, level, 0.3) | {"num_iterations": 1, "learning_rate": 0.0}
    (wanted,) = two_updates(text_model, out, batch, GRPOTrainer, max_steps=1, **given)
    found = two_updates(
        text_model,
        out,
        batch,
        FastGRPOTrainer,
        weighting="exact",
        steps_per_generation=4,
        gradient_accumulation_steps=4 // windows,
        per_device_train_batch_size=4,
        max_steps=windows,
        **given,
    )
    assert len(found) == windows
    total = {
        name: sum(gradients[name] for gradients in found) / windows  # type: ignore[misc]
        for name in wanted
    }
    assert largest_difference(total, wanted) < 1e-5
