"""Kept rows as micro-batches, each with what its loss counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_batch import text_batch

from fastrl.core import DifferentialPruning, Rollouts, Selection, prune
from fastrl.trl.planning import SplitPlan
from fastrl.trl.ranks import gather_rows
from fastrl.trl.splitting import split_kept_rows
from fastrl.trl.weighting import SHARE_KEY


def selected(advantages: list[float], weighting: Any = "kept", **settings: Any) -> Selection:
    rollouts = Rollouts(np.arange(len(advantages)) // 4, advantages, [[1]] * len(advantages))
    return prune(rollouts, DifferentialPruning(), weighting=weighting, **settings)


def split(selection: Selection, **plan: Any) -> list[dict[str, Any]]:
    given = {"loss_type": "grpo", "weighting": "kept", "windows": 2, "micro_batches": 2}
    rows = len(selection.reason)
    batch = text_batch(rows)
    return split_kept_rows(
        batch,
        gather_rows(batch, [np.arange(4)] * rows),
        selection,
        SplitPlan(**{**given, "max_rows": 2, **plan}),
        np.random.default_rng(0),
    )


def test_every_kept_row_is_in_one_micro_batch() -> None:
    selection = selected([1, -1, 1, 0, 2, 2, -2, 0])  # 3 + 3 kept
    micro_batches = split(selection)
    assert [micro[SHARE_KEY].rows for micro in micro_batches] == [2, 1, 2, 1]
    rows = [
        int(row) // 100 for micro in micro_batches for row in micro["prompt_ids"][:, 0].tolist()
    ]
    assert sorted(rows) == selection.keep.tolist()
    for micro in micro_batches:
        share = micro[SHARE_KEY]
        assert share.weights_R is None
        # TRL divides by rows and by 2 micro-batches; the window has 3 rows.
        assert share.loss_factor / (share.rows * 2) == pytest.approx(1 / 3)
        assert micro["num_items_in_batch"].item() == 3 * 4 * 2


def test_empty_micro_batches_come_first_and_hold_nothing() -> None:
    micro_batches = split(selected([1, 1, 1, 1, -1, -1, -1, -1]), windows=1, micro_batches=3)
    assert [micro[SHARE_KEY].rows for micro in micro_batches] == [0, 0, 2]
    assert micro_batches[0].keys() == {SHARE_KEY}


def test_exact_carries_weights_and_full_counts() -> None:
    selection = selected([1, 1, 1, 1, -1, -1, -1, 0], weighting="exact", seed=3)
    micro_batches = split(selection, weighting="exact")
    total = 0.0
    for micro in micro_batches:
        share = micro[SHARE_KEY]
        if not share.rows:
            continue
        total += float(share.weights_R.sum())
        for row, weight in zip(micro["prompt_ids"][:, 0].tolist(), share.weights_R, strict=True):
            place = selection.keep.tolist().index(row // 100)
            assert weight == selection.weights[place]
        assert share.loss_factor / (share.rows * 2) == pytest.approx(1 / (8 / 2))
        assert micro["num_items_in_batch"].item() == 8 * 4
    assert total == 8


def test_nothing_kept() -> None:
    selection = selected([0.0] * 8, drop_uninformative=True)
    assert [micro[SHARE_KEY].rows for micro in split(selection)] == [0, 0, 0, 0]
