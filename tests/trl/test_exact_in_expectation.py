"""The "exact" weighting, proven: over all seed draws the mean gradient is the full batch's."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from test_normalisation import LOSSES, Fixed, Gradients, loss_settings, moved_policy
from tiny_runs import largest_difference, make_trainer, text_rows
from trl import GRPOConfig, GRPOTrainer

from fastrl.core.draws import GroupDraws
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer

# Two groups of four. Texts 0 and 2 share tokens, as do 4 and 5; 3 and 7 are paths of their own.
TEXTS = [[[60, 61, 62], [110, 111], [60, 61, 70], [120, 121]], [[27, 28], [27, 29], [80], [82]]]
REWARDS = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
# Their buckets of equal reward with more than one row: {0, 2, 3}, {4, 5}, {6, 7}. Buckets come in
# ascending advantage, so a draw is a position in {0, 2, 3}, in {1}, in {4, 5} and in {6, 7}.
DRAWS = [np.array([a, 0, b, c]) for a in range(3) for b in range(2) for c in range(2)]


def off_policy(trainer_class: type) -> type:
    """A trainer whose old and reference log-probs are off by a fixed amount per token.

    So ratios are not 1, some are clipped, and the KL term has a gradient, at one and the same
    policy for every draw.
    """

    class OffPolicy(trainer_class):  # type: ignore[misc, valid-type]
        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Any, *args: Any, **kwargs: Any
        ) -> Any:
            logps, *others = super()._get_per_token_logps_and_entropies(
                model, input_ids, *args, **kwargs
            )
            if logps is not None and not torch.is_grad_enabled():
                tokens = input_ids[:, -logps.shape[1] :].double()
                step = 1.7 if model is self.ref_model else 2.3
                logps = logps + 0.4 * torch.sin(step * tokens).to(logps)
            return logps, *others

    return OffPolicy


def gradients_of(
    model: str, out: str, batch: Fixed, host: type, generations: int = 1, **overrides: Any
) -> list[Gradients]:
    """The unclipped gradient of one update per generation batch, of a policy that stands still."""
    given = {
        "per_device_train_batch_size": sum(len(group) for group in batch.texts),
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "num_iterations": 2,  # so that TRL needs old log-probs
        "max_steps": 2 * generations,
        "max_grad_norm": 0.0,
        "optim": "sgd",
        "shuffle_dataset": False,
        **overrides,
        "learning_rate": 0.0,
    }
    trainer = make_trainer(
        model,
        out,
        trainer_class=off_policy(batch.wrap(host)),
        config_class=FastGRPOConfig if issubclass(host, FastGRPOTrainer) else GRPOConfig,
        reward=batch.reward,
        dataset=text_rows(len(batch.texts)),
        gradients=True,
        **given,
    )
    moved_policy(trainer)
    trainer.train()
    gradients: list[Gradients] = trainer.recorder.gradients[::2]
    assert len(gradients) == generations
    return gradients


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_the_mean_over_all_draws_is_the_full_batch(
    text_model: str,
    out: str,
    loss_type: str,
    level: str,
    beta: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, given = Fixed(TEXTS, REWARDS), loss_settings(loss_type, level, beta)
    (wanted,) = gradients_of(text_model, out, batch, GRPOTrainer, **given)
    draws = cycle(DRAWS)
    monkeypatch.setattr(GroupDraws, "positions", lambda *_: next(draws))
    found = gradients_of(
        text_model,
        out,
        batch,
        FastGRPOTrainer,
        generations=len(DRAWS),
        weighting="exact",
        adaptive_rollouts=False,
        **given,
    )
    mean = {name: sum(each[name] for each in found) / len(DRAWS) for name in wanted}
    assert largest_difference(mean, wanted) < 1e-5
    # No single draw has it: the mean is what is exact.
    assert min(largest_difference(each, wanted) for each in found) > 1e-3


@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_dropping_groups_without_contrast_changes_nothing_without_kl(
    text_model: str, out: str, loss_type: str, level: str
) -> None:
    texts = [[[60, 61], [110], [60, 61], [110]], [[30], [31, 32], [33], [34, 35, 36]]]
    batch = Fixed(texts, [[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    given = loss_settings(loss_type, level, beta=0.0)
    (wanted,) = gradients_of(text_model, out, batch, GRPOTrainer, **given)
    (found,) = gradients_of(
        text_model,
        out,
        batch,
        FastGRPOTrainer,
        weighting="exact",
        adaptive_rollouts=False,
        drop_uninformative=True,
        **given,
    )
    assert largest_difference(found, wanted) < 1e-5


def test_dropping_them_does_change_something_with_kl(text_model: str, out: str) -> None:
    texts = [[[60, 61], [110], [60, 61], [110]], [[30], [30], [30], [30]]]
    batch = Fixed(texts, [[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    (wanted,) = gradients_of(text_model, out, batch, GRPOTrainer, beta=0.3)
    gaps = []
    for drop in (False, True):
        (found,) = gradients_of(
            text_model,
            out,
            batch,
            FastGRPOTrainer,
            beta=0.3,
            weighting="exact",
            adaptive_rollouts=False,
            drop_uninformative=drop,
        )
        gaps.append(largest_difference(found, wanted))
    assert gaps[0] < 1e-5
    assert gaps[1] > 1e-3
