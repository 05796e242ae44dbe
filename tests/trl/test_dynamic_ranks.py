"""Dynamic sampling on two and three processes: the batch that one process would have made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rank_runs import Weights
from test_dynamic_sampling import SAMPLED, rows
from tiny_runs import largest_difference, make_trainer

from fastrl.trl import FastGRPOTrainer
from process_runs import run_ranks

TOLERANCE = 1e-3  # of weights; see test_several_processes.py

# 4 groups of 6 a generation batch: a group can begin on one process and end on the next.
RUNS: dict[str, dict[str, Any]] = {
    "none": {"dataset": rows("fmffmfmmfmffmfmm"), "prune_rule": "none"},
    "differential": {"dataset": rows("fmffmfmmfmffmfmm"), "beta": 0.1},
    "one_process_has_nothing": {
        "dataset": rows("mfffffff"),
        "prune_rule": "none",
        "max_resamples": 1,
    },
}


class Spoken(FastGRPOTrainer):  # type: ignore[misc]
    """Completions that follow from the prompt and the row's number in the whole round alone."""

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        first = self.accelerator.process_index * len(prompt_ids)
        texts = []
        for index, ids in enumerate(prompt_ids, start=first):
            rng = np.random.default_rng((sum(i * t for i, t in enumerate(ids)), index % 6))
            texts.append([40 + index % 2, *rng.integers(60, 300, rng.integers(1, 6)).tolist()])
        return texts, None


def by_first_token(completion_ids: Any, kind: list[str], **kwargs: Any) -> list[float]:
    """Contrast in mixed groups, by what was said: a process knows no row numbers."""
    return [
        float(k == "m" and ids[0] % 2 == 0) for k, ids in zip(kind, completion_ids, strict=True)
    ]


def run_all(model: str, out: str, processes: int) -> dict[str, Any]:
    told = {}
    for name, run in RUNS.items():
        weights = Weights()
        trainer = make_trainer(
            model,
            f"{out}/{name}",
            trainer_class=Spoken,
            reward=by_first_token,
            callbacks=[weights],
            num_generations=6,
            per_device_train_batch_size=6 // processes,
            max_steps=4,
            shuffle_dataset=False,
            weighting="exact",
            **{**SAMPLED, **run},
        )
        records: list[Any] = []
        trainer.rollout_observers.append(records.append)
        trainer.train()
        told[name] = {
            "weights": weights.after,
            "records": records,
            "logs": trainer.recorder.logs,
            "stream": trainer._prompt_stream.state_dict(),
        }
    return told


@pytest.fixture(scope="module")
def all_runs(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    out = str(tmp_path_factory.mktemp("dynamic"))
    told = {1: [run_all(text_model, f"{out}/1", 1)]}
    for world in (2, 3):
        told[world] = run_ranks(world, run_all, text_model, f"{out}/{world}", world)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", RUNS)
def test_the_same_as_on_one_process(all_runs: Any, world: int, name: str) -> None:
    one = all_runs[1][0][name]
    for told in all_runs[world]:
        mine = told[name]
        for left, right in zip(mine["weights"], one["weights"], strict=True):
            assert largest_difference(left, right) < TOLERANCE
        assert mine["stream"] == one["stream"]
        for entry, theirs in zip(mine["logs"], one["logs"], strict=True):
            for key, value in theirs.items():
                # Seconds, and how often a chunk shares its prefix, are the main process's.
                own = ("fastrl/time/", "fastrl/shared_prefix")
                if key.startswith("fastrl/") and not key.startswith(own):
                    assert entry[key] == pytest.approx(value), key
    main = all_runs[world][0][name]["records"]
    for record, theirs in zip(main, one["records"], strict=True):
        assert record.prompts == theirs.prompts
        assert record.completions == theirs.completions
        np.testing.assert_array_equal(record.reward_N, theirs.reward_N)
        np.testing.assert_array_equal(record.kept_N, theirs.kept_N)


@pytest.mark.slow
def test_the_runs_are_what_they_are_meant_to_be(all_runs: Any) -> None:
    one = all_runs[1][0]

    def logged(name: str, metric: str) -> list[float]:
        return [entry[metric] for entry in one[name]["logs"] if metric in entry]

    for name in ("none", "differential"):
        assert min(logged(name, "fastrl/resample_rounds")) >= 1
        assert logged(name, "fastrl/batch_filled") == [1.0, 1.0]
    first = one["one_process_has_nothing"]["records"][0]
    assert first.kept_N.sum() == 6  # those of the first process
    assert logged("one_process_has_nothing", "fastrl/batch_filled")[0] == 0.25
