"""Work of a known amount: as many rows and tokens as it says, and those alone are kept."""

from argparse import Namespace
from typing import Any

import pytest
from step_runs import Work, build_trainer, reward_by_place
from transformers import TrainerCallback

SMALL = Work(prompts=2, rollouts=4, tokens=5, levels=2, updates=2)


def test_sizes_follow_from_the_work() -> None:
    work = Work(arm="exact", prompts=8, rollouts=16, levels=4)
    assert (work.rows, work.kept_share) == (128, 0.25)
    assert work.kept_alone() == Work(arm="trl", prompts=8, rollouts=4, levels=4)
    assert Work(arm="none", rollouts=16).kept_share == 1.0


def test_work_of_a_command_line() -> None:
    sizes = {"prompts": 3, "rollouts": 6, "tokens": 7, "levels": 2, "updates": 9}
    options = Namespace(policy="a/folder", **sizes, rounds=5)
    assert Work.of(options) == Work(policy="a/folder", arm="trl", **sizes)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"prompts": 0, "levels": 1}, "prompts = 0: expected at least 1; levels = 1"),
        ({"rollouts": 6, "levels": 4}, "rollouts = 6: no multiple of levels = 4"),
        ({"prompts": 1, "rollouts": 2, "updates": 4}, "2 rows of a batch: no multiple of updates"),
        ({"arm": "ppo"}, "arm = 'ppo': expected one of trl, none, exact"),
    ],
)
def test_work_that_cannot_be_done_is_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Work(**sizes)


def test_rewards_follow_from_the_place() -> None:
    assert reward_by_place(2)(["a"] * 5) == [0.0, 1.0, 0.0, 1.0, 0.0]


class Logs(TrainerCallback):
    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.found |= logs


@pytest.mark.slow
@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("arm", ["trl", "exact"])
def test_runs_do_the_work_that_they_say(arm: str, replayed: bool) -> None:
    logs = Logs()
    work = Work(**{**vars(SMALL), "arm": arm, "replayed": replayed})
    trainer = build_trainer(work, 1, [logs])
    records: list[Any] = []
    if arm == "exact":
        trainer.rollout_observers.append(records.append)
    trainer.train()
    assert trainer.state.global_step == 2
    assert logs.found["completions/min_length"] == logs.found["completions/max_length"] == 5
    if arm == "exact":
        (record,) = records
        # Of each group one rollout of each reward.
        assert sorted(record.reward_N[:4][record.kept_N[:4]]) == [0.0, 1.0]
        assert sorted(record.reward_N[4:][record.kept_N[4:]]) == [0.0, 1.0]
        assert logs.found["fastrl/kept_per_prompt"] == 2
