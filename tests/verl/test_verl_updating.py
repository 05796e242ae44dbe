"""What a pruned step tells verl's workers, and what it checks of them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transfer_queue import KVBatchMeta

from fastrl.core.seams import HostVersionError
from fastrl.verl import transfer
from fastrl.verl.batching import BatchShape
from fastrl.verl.phases import phase_seconds
from fastrl.verl.updating import PrunedStep, SizedUpdates


def pruned(kept: int, **changes: Any) -> PrunedStep:
    """Of 24 rows with 100 tokens, in two updates on two ranks with micro-batches of 2."""
    settings = {
        "scored": SimpleNamespace(rows=range(24), tokens=100),
        "weights": {f"u_{i}_0": 1.0 for i in range(kept)},
        "exact": False,
        "ranks": 2,
        "baseline_updates": 2,
        "shape": BatchShape(2, 2, ()),
    }
    return PrunedStep(**{**settings, **changes})


class Workers:
    """A worker group that makes so many updates of whatever it is given."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def update_actor(self, batch: Any) -> Any:
        self.told = batch.extra_info
        return {"metrics": {"grad_norm": [0.5] * self.updates}}


def test_sizes_under_kept_are_those_of_the_kept_rows() -> None:
    # 13 rows and 3 of padding.
    assert pruned(13).sizes(16) == {"mini_batch_size": 8, "global_batch_size": 6.5}


def test_sizes_under_exact_are_those_of_the_full_batch() -> None:
    assert pruned(13, exact=True).sizes(16) == {
        "mini_batch_size": 8,
        "global_batch_size": 12,
        "fastrl_full_tokens": 50,
    }


def test_fewer_rows_than_updates_skip_updates() -> None:
    step = pruned(1)
    assert (step.updates, step.skipped_updates) == (1, 1)
    assert step.take_multiple(2) == 4  # one update of a micro-batch on each rank
    assert pruned(4, nothing_left=True).skipped_updates == 2
    assert pruned(4).skipped_updates == 0


def test_another_multiple_than_told_is_an_error() -> None:
    step = pruned(13)
    with pytest.raises(HostVersionError, match="balanced 16 rows to another multiple than None"):
        step.check_balanced(16)
    assert step.take_multiple(2) == 8
    step.check_balanced(16)
    with pytest.raises(HostVersionError, match="balanced 12 rows to another multiple than 8"):
        step.check_balanced(12)


def test_the_workers_are_told_the_sizes_beside_verls_own() -> None:
    workers = Workers(updates=4)
    sized = SizedUpdates(workers, pruned(13), rows=16)
    sized.update_actor(SimpleNamespace(extra_info={"mini_batch_size": 12, "epochs": 2}))
    assert workers.told == {"mini_batch_size": 8, "global_batch_size": 6.5, "epochs": 2}
    sized.check_updates(epochs=2)
    with pytest.raises(HostVersionError, match="made 4 updates of a step in place of 2"):
        sized.check_updates(epochs=1)


def test_no_update_at_all_is_an_error() -> None:
    with pytest.raises(HostVersionError, match="made None updates"):
        SizedUpdates(Workers(2), pruned(13), rows=16).check_updates(epochs=1)


def test_advantages_that_are_not_the_full_groups_stop_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [torch.tensor([0.5, 0.5]), torch.tensor([-1.0]), torch.tensor([0.0])]
    stored = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    monkeypatch.setattr(
        transfer.transfer_queue, "kv_batch_get", lambda **asked: {"advantages": stored}
    )
    keys = ["a_0_0", "b_0_0", "pad1_0_0"]
    batch = KVBatchMeta(keys=keys, tags=[{}] * 3, partition_id="train")
    scored = SimpleNamespace(advantages={"a_0_0": rows[0], "b_0_0": rows[1]})
    transfer.check_advantages(batch, scored)
    scored.advantages["b_0_0"] = torch.tensor([-1.01])
    with pytest.raises(RuntimeError, match=r"1 of 3 rows .* b_0_0 first"):
        transfer.check_advantages(batch, scored)


def test_every_second_belongs_to_one_phase() -> None:
    timing = {"gen": 3.0, "prune": 0.5, "old_log_prob": 1.0, "ref": 1.0, "update_actor": 2.0}
    told = phase_seconds({**timing, "step": 10.0, "save_checkpoint": 1.0, "testing": 4.0})
    assert told["fastrl/time/generate"] == 3.0
    assert told["fastrl/time/reward"] == 0.0
    assert told["fastrl/time/other"] == 1.5
    assert sum(told.values()) == 9.0
