"""What runs on several processes: completions that every run replays alike, and what came out."""

from __future__ import annotations

import random
from typing import Any

import pytest
import stand_in_engine
import torch
from tiny_runs import make_trainer, weights_of
from transformers import TrainerCallback
from trl import GRPOTrainer

from fastrl.trl import FastGRPOTrainer
from fastrl.trl.weighting import SHARE_KEY


class Replayed(FastGRPOTrainer):  # type: ignore[misc]
    """Replays completions: `recording[g]` holds those of generation batch g, in global order.

    Seeds differ by process: sampled ones would not be the same on another number of them.
    """

    recording: list[list[list[int]]]
    refill_multiple: int | None = None

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        given, used = self.args.num_generations, self.num_generations  # fewer when adaptive
        recorded = self.recording[self._generation_step]
        rows = [ids for index, ids in enumerate(recorded) if index % given < used]
        first = len(prompt_ids) * self.accelerator.process_index
        assert len(rows) == len(prompt_ids) * self.accelerator.num_processes
        return rows[first : first + len(prompt_ids)], None

    @property
    def _updates_times_ranks(self) -> int:
        """Refill hangs on the number of processes; with a multiple for all it does not."""
        return self.refill_multiple or super()._updates_times_ranks


def completions(
    batches: int, rows: int = 24, seed: int = 0, first_token: int = 60, tokens: int = 40
) -> list[list[list[int]]]:
    """Completions of 1 to 8 tokens for every row of every generation batch."""
    rng = random.Random(seed)
    return [
        [
            [first_token + rng.randrange(tokens) for _ in range(rng.randint(1, 8))]
            for _ in range(rows)
        ]
        for _ in range(batches)
    ]


class Weights(TrainerCallback):
    """The model's weights after every update."""

    def __init__(self) -> None:
        self.after: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        model = getattr(model, "module", model)
        self.after.append({name: p.detach().clone() for name, p in model.named_parameters()})


def replay(
    model: str,
    out: str,
    recording: list[list[list[int]]],
    *,
    refill_multiple: int | None = None,
    resume_at: int | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Train on recorded completions, and tell what came out.

    Args:
        refill_multiple: see `Replayed`.
        resume_at: goes on from the checkpoint of this step in `out`.
        given: of `make_trainer`.
    """
    weights = Weights()
    trainer = make_trainer(model, out, trainer_class=Replayed, callbacks=[weights], **given)
    trainer.recording, trainer.refill_multiple = recording, refill_multiple
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    batches: list[list[dict[str, Any]]] = []
    original = trainer._new_micro_batches
    trainer._new_micro_batches = lambda batch: batches.append(original(batch)) or batches[-1]
    selections: list[Any] = []
    select = trainer._select
    trainer._select = lambda *args: selections.append(select(*args)) or selections[-1]
    before = weights_of(trainer)
    trainer.train(resume_from_checkpoint=resume_at and f"{out}/checkpoint-{resume_at}")
    return {
        "processes": trainer.accelerator.num_processes,
        "weights": [before, *weights.after],
        "selections": selections,
        "records": records,
        "rows": [[micro[SHARE_KEY].rows for micro in batch] for batch in batches],
        "lengths": [[real_lengths(micro) for micro in batch] for batch in batches],
        "logs": trainer.recorder.logs,
        "step": trainer.state.global_step,
        "schedule": trainer._schedule.state_dict() if trainer._schedule else None,
    }


def replay_all(model: str, out: str, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Several runs one after another, each in a folder of its name; see `replay`."""
    return {
        name: replay(**{"model": model, "out": f"{out}/{name}", **run})
        for name, run in runs.items()
    }


def plain_and_none(model: str, out: str, **given: Any) -> dict[str, Any]:
    """TRL's own trainer, then FastRL's under rule "none", sampling for themselves."""
    plain = make_trainer(model, f"{out}/plain", trainer_class=GRPOTrainer, **given)
    plain.train()
    fast = make_trainer(model, f"{out}/fast", prune_rule="none", **given)
    records: list[Any] = []
    fast.rollout_observers.append(records.append)
    fast.train()
    return {"plain": weights_of(plain), "fast": weights_of(fast), "records": records}


def with_engine(model: str, out: str, **given: Any) -> dict[str, Any]:
    """A run with the stand-in for vLLM."""
    with pytest.MonkeyPatch.context() as patches:
        stand_in_engine.install(patches, model, unscored_every=7)
        return sampled(model, out, **given)


def sampled(model: str, out: str, **given: Any) -> dict[str, Any]:
    """A run that samples for itself."""
    trainer = make_trainer(model, out, **given)
    trainer.train()
    return {"weights": weights_of(trainer), "logs": trainer.recorder.logs}


def real_lengths(micro: dict[str, Any]) -> list[int]:
    """Prompt and completion tokens of a micro-batch's rows, blank ones left out."""
    if not micro[SHARE_KEY].rows:
        return []
    completion = micro["completion_mask"].sum(dim=1)
    return (micro["prompt_mask"].sum(dim=1) + completion)[completion > 0].tolist()
