"""What cannot be scored behind shared prefixes is found, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from prefix_models import ALL_KINDS, IMAGE, TEXT, Batch, Prompt, build, config_of, draw
from transformers import AutoConfig, AutoModelForCausalLM

from fastrl.trl.shared_prefix.pictures import RowPictures
from fastrl.trl.shared_prefix.support import why_not_inputs, why_not_model


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_tested_architectures(kind: str) -> None:
    assert why_not_model(build(kind)) is None


def causal(kind: str, **more: Any) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **TEXT | more))


WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
STRETCHED = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        ("mistral", {}, "'mistral' was not tested"),
        ("gpt2", {}, "'gpt2' was not tested"),
        ("qwen2", WINDOWS, "sliding_attention"),
        ("llama", {"rope_parameters": STRETCHED}, "'dynamic'"),
    ],
)
def test_other_models(kind: str, more: dict[str, Any], reason: str) -> None:
    assert reason in (why_not_model(causal(kind, **more)) or "")


def test_a_vision_model_over_another_text_model() -> None:
    config = config_of("llava")
    config.text_config = AutoConfig.for_model("mistral", **TEXT)

    class Named:
        def __init__(self, config: Any) -> None:
            self.config = config

    assert "over 'mistral'" in (why_not_model(Named(config)) or "")


def test_wrapped_models() -> None:
    model = causal("qwen2")
    compiled = torch.compile(model)
    assert "torch.compile" in (why_not_model(compiled) or "")
    lora = get_peft_model(causal("qwen2"), LoraConfig(r=2, target_modules=["q_proj"]))
    assert why_not_model(lora) is None
    tuned = get_peft_model(
        build("qwen2"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    )
    assert "prompt learning" in (why_not_model(tuned) or "")


def reason_of(batch: Batch, **more: Any) -> str | None:
    config = config_of("qwen2_5_vl")
    inputs = batch.inputs | more
    return why_not_inputs(config, batch.input_ids, batch.attention_mask, batch.width, inputs)


def test_inputs() -> None:
    def pictured() -> Batch:
        return draw([Prompt(6, (5, 3), ((4, 4),)), Prompt(4, (2,))], "qwen2_5_vl", shuffle=False)

    assert reason_of(pictured()) is None
    assert reason_of(pictured(), image_sizes=torch.ones(1)) == (
        "inputs laid out otherwise (image_sizes)"
    )
    assert "auxiliary loss" in (reason_of(pictured(), compute_aux_loss=True) or "")
    assert "number in each row" in (reason_of(pictured(), num_images=None) or "")
    sampled = pictured()
    sampled.input_ids[0, -4] = IMAGE
    assert reason_of(sampled) == "pictures in a completion"
    sampled.attention_mask[0, -4:] = 0
    assert reason_of(sampled) is None  # masked: the model never sees it
    ending = pictured()
    ending.input_ids[2, -ending.width - 1] = IMAGE
    assert reason_of(ending) == "a prompt that ends in a picture"
    empty = pictured()
    empty.attention_mask[2, : -empty.width] = 0
    assert reason_of(empty) == "a prompt without tokens"
    for column in (-4, -pictured().width - 2):
        holed = pictured()
        holed.attention_mask[0, column] = 0
        assert "in the middle" in (reason_of(holed) or "")


def test_pixels_in_another_layout() -> None:
    pixels, grids = torch.zeros(9, 4), torch.tensor([[1, 2, 2], [1, 2, 2]])
    assert RowPictures.of(pixels, grids, [1, 1]) is None
    assert RowPictures.of(pixels[:8], grids, [1, 1]) is not None
    assert RowPictures.of(pixels, None, [4, 4]) is None
    rows = RowPictures.of(pixels, None, [4, 5])
    assert rows is not None
    assert rows.num_images == [4, 5]
    assert rows.select([1]).inputs()["pixel_values"].shape == (5, 4)
    assert rows.select([]).inputs() == {}
