"""Checkpoints: a resumed run ends where an uninterrupted one does, and plain TRL reads them too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from datasets import IterableDataset
from tiny_runs import largest_difference, make_trainer, text_rows, vision_rows, weights_of
from transformers import TrainerCallback
from trl import GRPOTrainer

from fastrl.trl.checkpoints import STATE_NAME


class StopAt(TrainerCallback):
    """Ends a run early, as a kill between two steps would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


def shrinking_reward(completion_ids: Any, trainer_state: Any, **kwargs: Any) -> list[float]:
    """Much contrast in the first epoch, little later: the schedule lowers the rollouts."""
    levels = 5 if trainer_state.global_step < 4 else 2
    return [float(sum(ids) % levels) for ids in completion_ids]


# 8 prompts, 4 a generation batch of 2 updates: an epoch is 2 batches, 4 updates.
ADAPTIVE: dict[str, Any] = {
    "reward": shrinking_reward,
    "similarity_threshold": 0.0,
    "num_generations": 4,
    "max_steps": 16,
    "save_strategy": "steps",
    "save_steps": 2,
    "beta": 0.1,
    "weight_decay": 0.1,
}


@pytest.fixture(scope="module")
def uninterrupted(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = str(tmp_path_factory.mktemp("uninterrupted"))
    trainer = make_trainer(text_model, out, **ADAPTIVE)
    trainer.train()
    return trainer


def test_rollouts_shrink(uninterrupted: Any) -> None:
    numbers = uninterrupted.recorder.values("fastrl/num_generations")
    generated = uninterrupted.recorder.values("fastrl/generated")
    assert len(numbers) == 8
    assert numbers[:3] == [4.0] * 3  # the schedule first speaks after the second epoch's first
    assert min(numbers) < 4
    assert generated == [4 * number for number in numbers]
    assert all(
        kept <= made
        for kept, made in zip(uninterrupted.recorder.values("fastrl/kept"), generated, strict=True)
    )


def test_the_sampler_is_left_alone(uninterrupted: Any) -> None:
    assert uninterrupted.num_generations == uninterrupted.args.num_generations == 4
    sampler = uninterrupted._get_train_sampler()
    assert sampler.mini_repeat_count == 4
    assert sampler.batch_size == 4


# In the first epoch, at its end, and in later epochs with fewer rollouts.
@pytest.mark.parametrize("step", [2, 4, 6, 10])
def test_a_resumed_run_ends_in_the_same_weights(
    text_model: str, out: str, uninterrupted: Any, step: int
) -> None:
    interrupted = make_trainer(text_model, out, callbacks=[StopAt(step)], **ADAPTIVE)
    interrupted.train()
    assert interrupted.state.global_step == step
    resumed = make_trainer(text_model, out, **ADAPTIVE)
    resumed.train(resume_from_checkpoint=str(Path(out) / f"checkpoint-{step}"))
    for name in ("loss", "fastrl/num_generations", "fastrl/kept", "reward"):
        before = interrupted.recorder.values(name)
        assert before + resumed.recorder.values(name) == uninterrupted.recorder.values(name)
    assert largest_difference(weights_of(resumed), weights_of(uninterrupted)) == 0.0
    assert resumed._schedule.state_dict() == uninterrupted._schedule.state_dict()


@pytest.mark.parametrize("rule", ["differential", "none"])
def test_a_resumed_vision_run_ends_in_the_same_weights(
    vision_model: str, out: str, rule: str
) -> None:
    """Its checkpoint names weights otherwise than the model in memory does."""
    given: dict[str, Any] = {
        "dataset": vision_rows(8, pictures=(1, 2)),
        "prune_rule": rule,
        "save_strategy": "steps",
        "save_steps": 2,
        "beta": 0.1,
    }
    whole = make_trainer(vision_model, out + "/whole", **given)
    whole.train()
    resumed = make_trainer(vision_model, out + "/resumed", **given)
    resumed.train(resume_from_checkpoint=out + "/whole/checkpoint-2")
    assert largest_difference(weights_of(resumed), weights_of(whole)) == 0.0


def test_the_state_is_in_the_checkpoint(uninterrupted: Any) -> None:
    folder = Path(uninterrupted.args.output_dir) / "checkpoint-16"
    state = json.loads((folder / STATE_NAME).read_text())
    assert state["generation_step"] == 8
    assert state["schedule"] == uninterrupted._schedule.state_dict()
    assert state["schedule"]["steps_recorded"] == 8


def test_save_steps_are_rounded_up_and_said(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastrl.trl.callbacks.logger.warning", said.append)
    trainer = make_trainer(text_model, out, save_strategy="steps", save_steps=3, max_steps=7)
    trainer.train()
    assert "save_steps = 3" in said[0]
    assert "every 4 steps" in said[0]
    saved = sorted(path.name for path in Path(out).glob("checkpoint-*"))
    assert saved == ["checkpoint-4", "checkpoint-7"]  # the last step is always saved


@pytest.mark.parametrize("strategy", ["epoch", "no"])
def test_other_save_strategies(text_model: str, out: str, strategy: str) -> None:
    trainer = make_trainer(text_model, out, save_strategy=strategy, max_steps=-1)
    trainer.args.num_train_epochs = 2
    trainer.train()
    saved = sorted(path.name for path in Path(out).glob("checkpoint-*"))
    assert saved == (["checkpoint-4", "checkpoint-8"] if strategy == "epoch" else [])


def test_a_save_asked_for_inside_a_batch_waits(text_model: str, out: str) -> None:
    class AskAtOne(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_save = state.global_step == 1

    trainer = make_trainer(text_model, out, callbacks=[AskAtOne()], max_steps=4)
    trainer.train()
    assert [path.name for path in Path(out).glob("checkpoint-*")] == ["checkpoint-2"]


def finished(text_model: str, out: str, **overrides: Any) -> Path:
    """The checkpoint of a short run."""
    given = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2, **overrides}
    make_trainer(text_model, out, **given).train()
    return Path(out) / f"checkpoint-{given['max_steps']}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object"),
        ('{"version": 9, "generation_step": 1, "schedule": null}', "version = 9"),
        ('{"version": 1, "generation_step": -1, "schedule": null}', "generation_step = -1"),
        ('{"version": 1, "generation_step": 1, "schedule": 3}', "schedule = 3"),
        ('{"version": 1, "generation_step": 1, "schedule": {"version": 7}}', "version = 7"),
    ],
)
def test_a_malformed_state_is_named(text_model: str, out: str, text: str, complaint: str) -> None:
    checkpoint = finished(text_model, out)
    (checkpoint / STATE_NAME).write_text(text)
    resumed = make_trainer(text_model, out, max_steps=4)
    with pytest.raises(ValueError, match=complaint) as caught:
        resumed.train(resume_from_checkpoint=str(checkpoint))
    assert str(checkpoint / STATE_NAME) in str(caught.value)


def test_the_middle_of_a_generation_batch_is_refused(text_model: str, out: str) -> None:
    checkpoint = finished(text_model, out, max_steps=3)
    resumed = make_trainer(text_model, out, max_steps=8)
    with pytest.raises(ValueError, match="step 3 lies inside a generation batch"):
        resumed.train(resume_from_checkpoint=str(checkpoint))


def test_a_run_may_be_prolonged(
    text_model: str, out: str, uninterrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastrl.trl.resuming.logger.warning", said.append)
    longer = make_trainer(text_model, out, **{**ADAPTIVE, "max_steps": 20})
    longer.train(resume_from_checkpoint=uninterrupted.args.output_dir + "/checkpoint-16")
    assert longer.state.global_step == 20
    assert longer._schedule.state_dict()["steps_recorded"] == 10
    assert "made for 8 generation batches; it goes on with 10" in said[0]


def test_other_groups_are_refused(text_model: str, out: str, uninterrupted: Any) -> None:
    other = make_trainer(text_model, out, **{**ADAPTIVE, "num_generations": 8})
    with pytest.raises(ValueError, match=r"num_generations = 4: this schedule has 8") as caught:
        other.train(resume_from_checkpoint=uninterrupted.args.output_dir + "/checkpoint-8")
    assert STATE_NAME in str(caught.value)


@pytest.mark.parametrize("text", [None, '{"global_step": 2'])
def test_an_incomplete_checkpoint_is_named(text_model: str, out: str, text: str | None) -> None:
    checkpoint = finished(text_model, out)
    if text is None:
        (checkpoint / "trainer_state.json").unlink()
    else:
        (checkpoint / "trainer_state.json").write_text(text)
    resumed = make_trainer(text_model, out, max_steps=4)
    with pytest.raises(ValueError, match="the checkpoint is not complete") as caught:
        resumed.train(resume_from_checkpoint=str(checkpoint))
    assert str(checkpoint) in str(caught.value)


def test_a_plain_checkpoint_resumes(text_model: str, out: str) -> None:
    checkpoint = finished(text_model, out, trainer_class=GRPOTrainer, max_steps=4)
    assert not (checkpoint / STATE_NAME).exists()
    resumed = make_trainer(text_model, out, max_steps=8)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed._generation_step == 4
    assert resumed.recorder.values("fastrl/generated") == [16.0, 16.0]


READ_WITHOUT_FASTRL = """
import sys

class NoFastRL:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "fastrl":
            raise ImportError("fastrl is hidden")

sys.meta_path.insert(0, NoFastRL())
try:
    import fastrl
except ImportError:
    pass
else:
    raise SystemExit("fastrl can be imported")
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

checkpoint, out = sys.argv[1:]
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(checkpoint)
trainer = GRPOTrainer(
    model=checkpoint,
    reward_funcs=lambda completions, **kwargs: [float(i % 2) for i in range(len(completions))],
    args=GRPOConfig(
        out, per_device_train_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=4,
        num_generations=4, max_completion_length=4, max_steps=4, report_to=[], use_cpu=True,
        bf16=False, save_strategy="no", disable_tqdm=True,
    ),
    train_dataset=Dataset.from_list([{"prompt": str(i)} for i in range(8)]),
    processing_class=AutoTokenizer.from_pretrained(checkpoint),
)
ours = dict(model.named_parameters())
assert all(torch.equal(p, ours[name]) for name, p in trainer.model.named_parameters())
trainer.train(resume_from_checkpoint=checkpoint)
assert trainer.state.global_step == 4
print("read without fastrl")
"""


def test_plain_trl_reads_our_checkpoint(text_model: str, out: str) -> None:
    checkpoint = finished(text_model, out)
    done = subprocess.run(
        [sys.executable, "-c", READ_WITHOUT_FASTRL, str(checkpoint), out + "/plain"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "read without fastrl" in done.stdout, done.stderr[-2000:]


def test_adaptive_rollouts_over_a_stream(text_model: str, out: str) -> None:
    rows = list(text_rows(8))
    stream = IterableDataset.from_generator(lambda: iter(rows))
    trainer = make_trainer(
        text_model, out, dataset=stream, steps_per_epoch=1, max_steps=6, similarity_threshold=0.0
    )
    trainer.train()
    assert trainer._schedule.state_dict()["settings"]["steps_per_epoch"] == 1
    assert trainer._schedule.state_dict()["last_epoch"] == 2


def test_resume_goes_on_with_the_epochs_order(text_model: str, out: str) -> None:
    """Also under "none": TRL alone would start again with the first epoch's order."""
    given = {"prune_rule": "none", "save_strategy": "steps", "save_steps": 6, "max_steps": 8}
    whole = make_trainer(text_model, out + "/whole", **given)
    whole.train()
    resumed = make_trainer(text_model, out + "/resumed", **given)
    resumed.train(resume_from_checkpoint=out + "/whole/checkpoint-6")
    assert largest_difference(weights_of(resumed), weights_of(whole)) == 0.0
