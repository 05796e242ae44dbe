"""Weights that a checkpoint names otherwise than the model does are found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2_5_VLForConditionalGeneration

from fastrl.trl.reloading import has_renamed_weights, load_renamed_weights


@pytest.mark.parametrize("shard_size", ["1GB", "100KB"])
def test_vision_weights_are_renamed_and_loaded(
    vision_model: str, tmp_path: Path, shard_size: str
) -> None:
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(vision_model)
    wanted = {name: value + 1 for name, value in model.state_dict().items()}
    model.load_state_dict(wanted)
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 or shard_size == "100KB"
    assert has_renamed_weights(model, tmp_path)
    fresh = Qwen2_5_VLForConditionalGeneration.from_pretrained(vision_model)
    load_renamed_weights(fresh, tmp_path)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, wanted[name]), name


def test_text_weights_keep_their_names(text_model: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(text_model)
    assert not has_renamed_weights(model, Path(text_model))
    assert not has_renamed_weights(model, tmp_path)
