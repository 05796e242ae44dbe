"""with_fastrl: a trainer of the user's own keeps working, or is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tiny_runs import (
    largest_difference,
    make_trainer,
    settings,
    text_rows,
    token_reward,
    weights_of,
)
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, FastRLArguments, with_fastrl


class ScaledLoss(GRPOTrainer):
    """Doubles the loss."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return 2 * super()._compute_loss(model, inputs)


class ShiftedAdvantages(GRPOTrainer):
    """Gives every rollout of positive advantage the same one."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = output["advantages"].sign()
        return output


class BonusReward(GRPOTrainer):
    """Adds one to every reward."""

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super()._calculate_rewards(*args, **kwargs) + 1


class OwnSplit(GRPOTrainer):
    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return super()._prepare_inputs(generation_batch)


class SplitMixin:
    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return super()._prepare_inputs(generation_batch)  # type: ignore[misc]


class MixedSplit(SplitMixin, GRPOTrainer):
    pass


def test_a_loss_of_the_users_own(text_model: str, out: str) -> None:
    plain = make_trainer(text_model, out, gradients=True, max_grad_norm=0.0, max_steps=1)
    plain.train()
    doubled = make_trainer(
        text_model,
        out,
        trainer_class=with_fastrl(ScaledLoss),
        gradients=True,
        max_grad_norm=0.0,
        max_steps=1,
    )
    doubled.train()
    twice = {name: 2 * value for name, value in plain.recorder.gradients[0].items()}
    assert largest_difference(doubled.recorder.gradients[0], twice) < 1e-6


def test_scoring_of_the_users_own(text_model: str, out: str) -> None:
    trainer = make_trainer(
        text_model, out, trainer_class=with_fastrl(ShiftedAdvantages), similarity_threshold=0.0
    )
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    assert set(records[0].advantages_N.tolist()) <= {-1.0, 0.0, 1.0}
    assert records[0].selection.num_before_refill <= 12  # three buckets a group at most


def test_a_reward_hook_of_the_users_own(text_model: str, out: str) -> None:
    rewards = []
    for trainer_class in (FastGRPOTrainer, with_fastrl(BonusReward)):
        trainer = make_trainer(text_model, out, trainer_class=trainer_class, max_steps=2)
        trainer.train()
        rewards.append(trainer.recorder.values("fastrl/reward")[0])
    assert rewards[1] == pytest.approx(rewards[0] + 1)


@pytest.mark.parametrize(
    ("trainer_class", "named"),
    [(OwnSplit, "OwnSplit._prepare_inputs"), (MixedSplit, "SplitMixin._prepare_inputs")],
)
def test_an_own_split_is_refused_by_name(trainer_class: type, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        with_fastrl(trainer_class)


@pytest.mark.parametrize("thing", [dict, GRPOTrainer.train, "GRPOTrainer"])
def test_other_things_are_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"subclasses of trl\.GRPOTrainer"):
        with_fastrl(thing)


def test_wrapping_twice_is_wrapping_once() -> None:
    wrapped = with_fastrl(ScaledLoss)
    assert wrapped.__name__ == "FastScaledLoss"
    assert issubclass(wrapped, ScaledLoss)
    assert with_fastrl(wrapped) is wrapped
    assert with_fastrl(FastGRPOTrainer) is FastGRPOTrainer


def test_the_ready_trainer_is_the_wrapped_one(text_model: str, out: str) -> None:
    found = []
    for trainer_class in (FastGRPOTrainer, with_fastrl(GRPOTrainer)):
        trainer = make_trainer(text_model, out, trainer_class=trainer_class, max_steps=2)
        trainer.train()
        found.append(weights_of(trainer))
    assert largest_difference(*found) == 0.0


@pytest.mark.parametrize("trainer_class", [FastGRPOTrainer, with_fastrl(ScaledLoss)])
def test_a_plain_config_is_refused(text_model: str, out: str, trainer_class: type) -> None:
    with pytest.raises(TypeError, match="GRPOConfig; FastRL's fields are missing"):
        make_trainer(text_model, out, trainer_class=trainer_class, config_class=GRPOConfig)


@dataclass
class PlainConfig(GRPOConfig):
    factor: float = field(default=3.0)


@dataclass
class OwnConfig(FastRLArguments, PlainConfig):
    pass


class NeedsFactor(GRPOTrainer):
    def __init__(self, *everything: Any, **named: Any) -> None:
        super().__init__(*everything, **named)
        self.factor = self.args.factor


def test_a_config_and_a_signature_of_the_users_own(text_model: str, out: str) -> None:
    trainer = make_trainer(
        text_model,
        out,
        trainer_class=with_fastrl(NeedsFactor),
        config_class=OwnConfig,
        factor=4.0,
        max_steps=2,
    )
    trainer.train()
    assert trainer.factor == 4.0
    assert trainer.recorder.values("fastrl/generated") == [16.0]


def test_arguments_by_place(text_model: str, out: str) -> None:
    trainer = FastGRPOTrainer(
        text_model,
        token_reward,
        FastGRPOConfig(**settings(out)),
        text_rows(),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    assert trainer.args.prune_rule == "differential"
    with pytest.raises(TypeError, match="GRPOConfig"):
        FastGRPOTrainer(text_model, token_reward, GRPOConfig(**settings(out)), text_rows())


def test_scoring_that_bypasses_trl_is_refused(text_model: str, out: str) -> None:
    class Dropping(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            return output | {"completion_ids": output["completion_ids"][:-1]}

    trainer = make_trainer(text_model, out, trainer_class=with_fastrl(Dropping))
    with pytest.raises(ValueError, match="FastDropping returned 15 rollouts for 16 rows"):
        trainer.train()
