from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.geometry.toy.pretrain import (
    Pretraining,
    PretrainRecipe,
    change_skill,
    pretrain,
    schedule,
)

QUICK = PretrainRecipe(sight_steps=30, reading_steps=4, working_steps=4, batch_size=16)


def test_sight_improves_and_the_same_seed_ends_on_disk(tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    training = Pretraining(QUICK, log.append, report_every=10)
    training.run()
    sight = [entry["loss"] for entry in log if entry["stage"] == "sight"]
    assert len(sight) == 3
    assert sight[-1] < 0.8 * sight[0]

    told: list[dict[str, Any]] = []
    pretrain(QUICK, tmp_path, on_report=told.append)
    stored = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path, dtype="auto").state_dict()
    expected = training.model.state_dict()
    assert stored.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(stored[name], tensor.to(torch.bfloat16)), name
    assert told[0]["recipe"]["sight_steps"] == 30


def test_a_policy_is_made_better(tmp_path: Path) -> None:
    change_skill(STARTING_POLICY, 1.0, tmp_path, steps=8, batch_size=16)
    assert load_file(tmp_path / "model.safetensors").popitem()[1].dtype == torch.bfloat16
    Qwen2_5_VLProcessor.from_pretrained(tmp_path)
    # What answers with the right procedure alone cost a policy.
    judge = Pretraining(PretrainRecipe(right_share=1.0, batch_size=16), lambda entry: None)
    batch = judge._working_batch(0)
    losses = []
    for folder in (STARTING_POLICY, tmp_path):
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            losses.append(model(**batch).loss.item())
    assert losses[1] < 0.98 * losses[0]


def test_labels_are_on_the_answers_only() -> None:
    training = Pretraining(QUICK, lambda entry: None)
    batch = training._working_batch(0)
    tokenizer = training.processor.tokenizer
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        prompt, _, answer = tokenizer.decode(ids).partition("<|im_start|>assistant\n")
        assert tokenizer.decode(labels[labels != -100]) == answer
        assert answer.endswith("<|im_end|>")
        assert "user" in prompt


def test_the_learning_rate_warms_up_and_falls() -> None:
    shares = [schedule(step, 1000) for step in range(1000)]
    assert shares[0] == 1 / 50
    assert shares[200] == 1.0
    assert shares[750] == 0.5
    assert shares[-1] == 0.02
