"""Generation that reads each prompt once draws the very tokens that the host draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from prefix_models import ALL_KINDS, GRID_KINDS, Batch, Prompt, build, draw
from tiny_runs import make_trainer, vision_rows

from fastrl.trl.shared_prefix.prompts_once import RowsOnce, prompts_once

NEW_TOKENS = 6


def prompts_of(batch: Batch) -> tuple[dict[str, Any], list[int] | None]:
    """The arguments of `generate` for a batch's prompts, and the pictures of its rows."""
    start = batch.input_ids.size(1) - batch.width
    inputs = {key: value for key, value in batch.inputs.items() if torch.is_tensor(value)}
    inputs |= {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        if name in inputs:
            inputs[name] = inputs[name][:, :start]
    return inputs, batch.inputs.get("num_images")


def generate(model: Any, inputs: dict[str, Any], **settings: Any) -> torch.Tensor:
    torch.manual_seed(7)
    with torch.no_grad():
        return model.generate(**inputs, max_new_tokens=NEW_TOKENS, eos_token_id=1, **settings)


def groups(kind: str, *, pictures: bool) -> Batch:
    """Groups of 4, 3 and 2 rollouts behind prompts of different lengths."""
    seen = ((4, 4),) if pictures and kind not in ("qwen2", "qwen3", "llama") else ()
    two = ((4, 8), (8, 4)) if kind in GRID_KINDS and pictures else seen
    prompts = [Prompt(9, (1,) * 4, seen), Prompt(21, (1,) * 3, two), Prompt(5, (1,) * 2)]
    return draw(prompts, kind, shuffle=False)


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("sampled", [True, False])
def test_tokens_are_those_of_the_host(kind: str, sampled: bool) -> None:
    model = build(kind).eval()
    inputs, num_images = prompts_of(groups(kind, pictures=True))
    host = generate(model, inputs, do_sample=sampled)
    with prompts_once(model, num_images):
        found = generate(model, inputs, do_sample=sampled)
    assert torch.equal(found, host)
    if sampled:
        # Rollouts of a group do differ: the equality above is not that of greedy rows.
        assert len({tuple(row) for row in host[:4].tolist()}) > 1


def test_text_after_pictures_uses_no_stale_positions() -> None:
    model = build("qwen2_5_vl").eval()
    pictured, num_images = prompts_of(groups("qwen2_5_vl", pictures=True))
    plain, _ = prompts_of(groups("qwen2_5_vl", pictures=False))
    host = generate(model, plain, do_sample=True)
    with prompts_once(model, num_images):
        generate(model, pictured, do_sample=True)
    with prompts_once(model, None):
        assert torch.equal(generate(model, plain, do_sample=True), host)
    assert torch.equal(generate(model, plain, do_sample=True), host)


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_5_vl"])
def test_each_prompt_goes_through_the_model_once(kind: str) -> None:
    model = build(kind).eval()
    inputs, num_images = prompts_of(groups(kind, pictures=True))
    shapes = []

    def see(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    handle = model.register_forward_pre_hook(see, with_kwargs=True)
    with prompts_once(model, num_images):
        generate(model, inputs, do_sample=True)
    handle.remove()
    width = inputs["input_ids"].size(1)
    assert shapes[0] == (3, width - 1)
    assert set(shapes[1:]) == {(9, 1)}


def test_the_model_is_left_as_it_was() -> None:
    model = build("qwen2").eval()
    with pytest.raises(RuntimeError, match="stop"), prompts_once(model, None):
        raise RuntimeError("stop")
    assert "generate" not in vars(model)


class TestRowsOnce:
    def test_neighbours_that_are_equal_are_one(self) -> None:
        inputs, _ = prompts_of(groups("qwen2", pictures=False))
        rows = RowsOnce.of(inputs, None)
        assert rows is not None
        assert rows.place_N.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2]
        assert torch.equal(rows.inputs["input_ids"], inputs["input_ids"][[0, 4, 7]])

    def test_other_pictures_are_other_prompts(self) -> None:
        prompts = [Prompt(9, (1, 1), ((4, 4),), tokens=1), Prompt(9, (1, 1), ((4, 4),), tokens=1)]
        inputs, num_images = prompts_of(draw(prompts, "qwen2_5_vl", shuffle=False))
        assert torch.equal(inputs["input_ids"][0], inputs["input_ids"][2])
        rows = RowsOnce.of(inputs, num_images)
        assert rows is not None
        assert rows.place_N.tolist() == [0, 0, 1, 1]
        assert len(rows.inputs["pixel_values"]) == 32

    def test_no_equal_rows_are_left_alone(self) -> None:
        inputs, _ = prompts_of(draw([Prompt(4, (1,)), Prompt(6, (1,))], shuffle=False))
        assert RowsOnce.of(inputs, None) is None

    def test_a_prompt_of_one_token_is_left_alone(self) -> None:
        inputs, _ = prompts_of(draw([Prompt(1, (1, 1)), Prompt(6, (1, 1))], shuffle=False))
        assert RowsOnce.of(inputs, None) is None

    def test_unknown_arguments_are_left_alone(self) -> None:
        inputs, _ = prompts_of(groups("qwen2", pictures=False))
        assert RowsOnce.of({**inputs, "image_sizes": torch.ones(9, 2)}, None) is None

    def test_pictures_that_cannot_be_told_apart_are_left_alone(self) -> None:
        inputs, num_images = prompts_of(groups("qwen2_5_vl", pictures=True))
        assert RowsOnce.of(inputs, None) is None
        assert RowsOnce.of(inputs, num_images[:-1]) is None


class TestTrainer:
    """Real runs: what is generated is the same, and the model reads fewer rows."""

    def first_batch(self, folder: str, out: str, shared_prefix: Any, pictures: bool) -> Any:
        batches: list[Any] = []
        rows: list[int] = []
        trainer = make_trainer(
            folder,
            out,
            dataset=vision_rows(4, (1, 0, 2)) if pictures else None,
            prune_rule="differential",
            shared_prefix=shared_prefix,
            max_steps=1,
        )
        trainer.rollout_observers.append(batches.append)

        def see(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
            if kwargs.get("use_cache"):
                rows.append(len(kwargs["input_ids"]))

        trainer.model.register_forward_pre_hook(see, with_kwargs=True)
        trainer.train()
        return batches[0], rows[0]

    @pytest.mark.parametrize("pictures", [False, True])
    def test_a_run_generates_the_same(
        self, pictures: bool, text_model: str, vision_model: str, tmp_path: Path
    ) -> None:
        folder = vision_model if pictures else text_model
        host, all_rows = self.first_batch(folder, str(tmp_path / "a"), False, pictures)
        found, rows = self.first_batch(folder, str(tmp_path / "b"), "auto", pictures)
        assert found.completions == host.completions
        assert found.advantages_N.tolist() == host.advantages_N.tolist()
        assert rows * host.num_generations == all_rows
