"""Factors of unequal micro-batches, and weights that act on gradients."""

from __future__ import annotations

import pytest
import torch

from fastrl.trl.weighting import BatchTotals, items_in_batch, loss_factor, weigh_gradient

MICRO, WINDOW, FULL = BatchTotals(2, 10.0), BatchTotals(5, 40.0), BatchTotals(16, 160.0)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "sapo", "luspo"])
def test_losses_by_rows(loss_type: str) -> None:
    # TRL divides by 2 rows and 4 micro-batches; wanted are 5 rows, or 16 / 2 rows a window.
    factor = loss_factor(loss_type, "kept", MICRO, WINDOW, FULL, windows=2, micro_batches=4)
    assert factor / (2 * 4) == pytest.approx(1 / 5)
    factor = loss_factor(loss_type, "exact", MICRO, WINDOW, FULL, windows=2, micro_batches=4)
    assert factor / (2 * 4) == pytest.approx(1 / 8)


def test_bnpo_by_tokens() -> None:
    factor = loss_factor("bnpo", "kept", MICRO, WINDOW, FULL, windows=2, micro_batches=4)
    assert factor / (10 * 4) == pytest.approx(1 / 40)
    factor = loss_factor("bnpo", "exact", MICRO, WINDOW, FULL, windows=2, micro_batches=4)
    assert factor / (10 * 4) == pytest.approx(1 / 80)


@pytest.mark.parametrize("loss_type", ["dapo", "cispo", "vespo"])
@pytest.mark.parametrize("weighting", ["kept", "exact"])
def test_losses_by_the_batchs_tokens_need_no_factor(loss_type: str, weighting: str) -> None:
    assert loss_factor(loss_type, weighting, MICRO, WINDOW, FULL, 2, 4) == 1.0


def test_a_window_of_masked_rows_has_no_loss() -> None:
    masked = BatchTotals(2, 0.0)
    assert loss_factor("bnpo", "kept", masked, masked, FULL, 1, 1) == 0.0
    assert loss_factor("grpo", "kept", masked, masked, FULL, 1, 1) == 1.0


def test_items_in_batch() -> None:
    full = torch.tensor(160)
    # TRL takes 1 / windows of it for an update.
    assert items_in_batch("kept", WINDOW, full, windows=2).item() == 80
    assert items_in_batch("exact", WINDOW, full, windows=2) is full


def test_weights_act_on_the_gradient_alone() -> None:
    values = torch.tensor([[1.0, -torch.inf], [3.0, 4.0]], requires_grad=True)
    weighed = weigh_gradient(values, torch.tensor([3.0, 0.5], dtype=torch.float64))
    assert torch.equal(weighed, values)
    weighed.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[3.0, 3.0], [0.5, 0.5]]


def test_another_use_of_the_same_values_is_not_weighed() -> None:
    values = torch.ones(1, 2, requires_grad=True)
    (weigh_gradient(values, torch.tensor([3.0])) + values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[4.0, 4.0]]


def test_a_loss_that_takes_means_is_weighed_all_the_same() -> None:
    logits = torch.tensor([[0.1, 0.2], [0.3, -0.4]], requires_grad=True)

    def loss_of(values: torch.Tensor) -> torch.Tensor:
        return (values.exp() * torch.tensor([[1.0], [-2.0]]) + values**2).mean(dim=1)

    weights = torch.tensor([2.0, 5.0])
    (wanted,) = torch.autograd.grad((loss_of(logits) * weights).mean(), logits)
    (found,) = torch.autograd.grad(loss_of(weigh_gradient(logits, weights)).mean(), logits)
    assert torch.allclose(found, wanted)


def test_nothing_to_weigh() -> None:
    values = torch.ones(2, 3)
    assert weigh_gradient(values, torch.ones(2)) is values
    assert weigh_gradient(values.requires_grad_(), None) is values
