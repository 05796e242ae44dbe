"""The policy that ships, and how policies like it are built."""

import hashlib
import json

import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.geometry.toy.evaluation import evaluate_policy, reading_accuracy
from fastrl.geometry.toy.policy import build_model, build_processor

CARD = json.loads((STARTING_POLICY / "card.json").read_text())


@pytest.fixture(scope="module")
def policy() -> tuple[Qwen2_5_VLForConditionalGeneration, object]:
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(STARTING_POLICY, dtype=torch.float32)
    return model, AutoProcessor.from_pretrained(STARTING_POLICY)


def test_the_weights_are_those_of_the_card_and_small() -> None:
    weights = (STARTING_POLICY / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == CARD["sha256"]
    assert sum(path.stat().st_size for path in STARTING_POLICY.iterdir()) < 3_000_000


def test_the_weights_are_stored_in_bf16() -> None:
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(STARTING_POLICY, dtype="auto")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_it_sees_well_and_chooses_badly(policy: tuple) -> None:
    model, processor = policy
    assert reading_accuracy(model, processor, pictures=128) >= 0.95
    score = evaluate_policy(model, processor, pictures=128, samples=4)
    assert 0.30 <= score.sampled <= 0.50
    assert 0.35 <= score.in_format <= 0.65
    assert score.sampled == pytest.approx(CARD["held_out"]["sampled"], abs=0.08)


def test_scoring_leaves_the_random_state_alone(policy: tuple) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = evaluate_policy(*policy, pictures=8, samples=2)
    assert torch.equal(torch.rand(2), expected)
    assert first == evaluate_policy(*policy, pictures=8, samples=2, batch_size=8)


def test_pixel_limits_are_settable() -> None:
    picture = Image.new("RGB", (280, 140))
    small = build_processor(max_pixels=56 * 56).image_processor(
        images=[picture], return_tensors="pt"
    )
    large = build_processor(max_pixels=280 * 280).image_processor(
        images=[picture], return_tensors="pt"
    )
    assert large["image_grid_thw"].tolist() == [[1, 10, 20]]
    rows, columns = small["image_grid_thw"][0, 1:].tolist()
    assert rows * columns * 14 * 14 <= 56 * 56
    assert columns > rows


def test_the_same_seed_builds_the_same_model() -> None:
    processor = build_processor()
    first, second = build_model(processor, seed=5), build_model(processor, seed=5)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert 0.9e6 < sum(p.numel() for p in first.parameters()) < 1.3e6
