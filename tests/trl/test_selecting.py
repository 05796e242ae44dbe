"""From a scored batch to kept rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fastrl.core import DifferentialPruning, RandomPruning, Rollouts, prune
from fastrl.trl.ranks import GlobalRows, gather_rows
from fastrl.trl.selecting import select_rollouts


def scored(advantages: Any, masked: tuple[int, ...] = (), width: int = 3) -> dict[str, Any]:
    """A batch whose rows all have `width` tokens; `masked` rows count none."""
    rows = len(advantages)
    mask = torch.ones(rows, width, dtype=torch.long)
    mask[list(masked)] = 0
    return {
        "prompt_mask": torch.ones(rows, 2, dtype=torch.long),
        "completion_ids": torch.zeros(rows, width, dtype=torch.long),
        "completion_mask": mask,
        "advantages": torch.as_tensor(advantages, dtype=torch.float32),
    }


def rows_of(batch: dict[str, Any], tokens: Any = None) -> GlobalRows:
    """The facts of a batch on one process; every completion has the same tokens unless given."""
    return gather_rows(batch, same_tokens(len(batch["advantages"])) if tokens is None else tokens)


def same_tokens(rows: int) -> list[np.ndarray[Any, Any]]:
    return [np.array([1, 2, 3])] * rows


def test_groups_are_consecutive_rows() -> None:
    batch = scored([1, 1, -1, -1, 1, -1, -1, -1])
    selection = select_rollouts(rows_of(batch), 4, DifferentialPruning())
    assert selection.keep.tolist() == [0, 2, 4, 5]
    assert selection.kept_per_group.tolist() == [2, 2]
    assert selection.duplicate_of.tolist() == [-1, 0, -1, 2, -1, -1, 5, 5]


@pytest.mark.parametrize("weighting", ["kept", "exact"])
def test_without_masked_rows_it_is_prune(weighting: Any) -> None:
    rng = np.random.default_rng(3)
    advantages = rng.integers(-1, 2, 24).astype(float)
    tokens = [rng.integers(0, 9, rng.integers(0, 6)) for _ in range(24)]
    for rule in (DifferentialPruning(), RandomPruning()):
        found = select_rollouts(
            rows_of(scored(advantages), tokens),
            6,
            rule,
            multiple_of=5,
            weighting=weighting,
            seed=(1, 2),
        )
        wanted = prune(
            Rollouts(np.arange(24) // 6, advantages, tokens),
            rule,
            multiple_of=5,
            weighting=weighting,
            seed=(1, 2),
        )
        for name, value in vars(wanted).items():
            np.testing.assert_array_equal(getattr(found, name), value)


def test_a_row_that_counts_is_the_seed() -> None:
    """Rows 0 and 4 are masked: they would be seeds by their place."""
    batch = scored([1, 1, -1, 1, -1, -1, 1, 1], masked=(0, 4))
    selection = select_rollouts(rows_of(batch), 4, DifferentialPruning())
    assert selection.keep.tolist() == [1, 2, 5, 6]
    assert selection.reason.tolist() == [
        *("duplicate", "seed", "seed", "duplicate"),
        *("duplicate", "seed", "seed", "duplicate"),
    ]
    assert selection.duplicate_of.tolist() == [1, -1, -1, 1, 5, -1, -1, 6]
    assert np.isnan(selection.similarity).tolist() == [False, True, True, False] * 2
    assert selection.weights.tolist() == [1.0] * 4


def test_masked_rows_are_compared_by_their_tokens() -> None:
    batch = scored([1, 1, 1, -1], masked=(2,))
    tokens = [np.array([1, 2, 3]), np.array([1, 2, 3]), np.array([1, 2, 4]), np.array([1])]
    selection = select_rollouts(rows_of(batch, tokens), 4, DifferentialPruning())
    assert selection.keep.tolist() == [0, 3]
    assert selection.similarity[2] == 0.5


def test_a_group_of_masked_rows_still_has_a_seed() -> None:
    batch = scored([1, -1, 1, 1], masked=(0, 1, 2, 3))
    selection = select_rollouts(rows_of(batch), 4, DifferentialPruning())
    assert selection.keep.tolist() == [0, 1]


def test_advantages_that_are_not_finite_are_told() -> None:
    with pytest.raises(ValueError, match=r"advantages\[1\] = nan"):
        select_rollouts(rows_of(scored([0.0, float("nan")])), 2, DifferentialPruning())
