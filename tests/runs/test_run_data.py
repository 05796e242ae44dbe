import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from transformers import AutoProcessor

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.runs.arguments import RunArguments
from fastrl.runs.data import processor_resizes, training_data


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def processor() -> Any:
    return AutoProcessor.from_pretrained(STARTING_POLICY)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A picture of 400 x 100, one without, one with a gold that cannot be read; two held out."""
    Image.new("RGB", (400, 100), "white").save(tmp_path / "a.png")
    rows = [
        {"problem": "Find x.", "image": "a.png", "answer": "3"},
        {"problem": "What is 2 + 2?", "image": None, "answer": "4"},
        {"problem": "Find y.", "image": "a.png", "answer": "see the figure"},
    ]
    for split, chosen in (("train", rows), ("test", rows[:2])):
        text = "".join(json.dumps(row) + "\n" for row in chosen)
        (tmp_path / f"{split}.jsonl").write_text(text)
    return str(tmp_path)


def test_limits_are_given_to_a_processor_that_counts_pixels(processor: Any) -> None:
    picture = Image.new("RGB", (400, 100))
    assert processor_resizes(processor, 784, 10_000)
    grid = processor(images=[picture], text=["<|image_pad|>"], return_tensors="pt")[
        "image_grid_thw"
    ]
    # 7 x 2 patches of 14 x 2 pixels a side: 196 x 56 = 10,976 would be too many, 196 x 28 fits.
    assert grid.tolist() == [[1, 2, 14]]
    assert processor_resizes(processor, 90_000, None)
    assert (processor.image_processor.size.shortest_edge) == 90_000
    assert (processor.image_processor.size.longest_edge) == 10_000


def test_a_processor_that_counts_no_pixels_leaves_it_to_the_data_set() -> None:
    # As those of CLIP: `shortest_edge` is the length of a side.
    sides = SimpleNamespace(image_processor=SimpleNamespace(size={"shortest_edge": 336}))
    assert not processor_resizes(sides, 784, 10_000)
    assert sides.image_processor.size == {"shortest_edge": 336}
    assert not processor_resizes(object(), None, None)


@pytest.mark.parametrize(("dataset_resizes", "size"), [(False, (400, 100)), (True, (200, 50))])
def test_a_picture_is_resized_once(
    processor: Any, folder: str, dataset_resizes: bool, size: tuple[int, int]
) -> None:
    run = RunArguments(dataset=folder, max_pixels=10_000, skip_broken=True)
    data = training_data(run, processor, 0, dataset_resizes)
    assert data.train[0]["images"][0].size == size


def test_rewards_weights_held_out_rows_and_facts(processor: Any, folder: str) -> None:
    run = RunArguments(
        dataset=folder,
        skip_broken=True,
        accuracy_weight=2.0,
        format_weight=0.25,
        format_instruction="Box it.",
        system_prompt="Be brief.",
        eval_split="test",
        eval_rows=1,
    )
    data = training_data(run, processor, 0, dataset_resizes=False)
    accuracy, form = data.reward_funcs
    said = ["<thinking>a</thinking>\\boxed{3}", "\\boxed{4}"]
    assert accuracy(completions=said, answer=["3", "5"]) == [2.0, 0.0]
    assert form(completions=said) == [0.25, 0.0]
    assert data.train[1]["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 2?\nBox it."},
    ]
    assert data.held_out is not None
    assert len(data.held_out) == 1
    assert data.facts == {
        "name": f"{Path(folder).name}[train]",
        "rows": 2,
        "pictures": 1,
        "skipped_broken": 1,
        "skipped_long": 0,
        "broken_rows": [data.facts["broken_rows"][0]],
    }
    assert data.facts["broken_rows"][0].startswith("row 2: the gold answer 'see the figure'")


def test_examples_stand_before_every_question_and_are_counted(processor: Any, folder: str) -> None:
    run = RunArguments(dataset=folder, skip_broken=True, eval_split="test", max_prompt_length=400)
    run.examples = {"What is 1 + 1?": "\\boxed{2}"}
    data = training_data(run, processor, 0, dataset_resizes=False)
    assert data.held_out is not None
    for row in (data.train[1], data.held_out[1]):
        assert [turn["role"] for turn in row["prompt"]] == ["user", "assistant", "user"]
        assert row["prompt"][1]["content"] == "\\boxed{2}"
    text = processor.apply_chat_template(data.train[1]["prompt"], add_generation_prompt=True)
    length = len(processor.tokenizer(text)["input_ids"])
    run.max_prompt_length, run.skip_long = length - 1, True
    # The row with a picture is longer still.
    with pytest.raises(ValueError, match="none of 3 rows is left to use"):
        training_data(run, processor, 0, dataset_resizes=False)
    run.max_prompt_length, run.eval_split = length, None
    assert training_data(run, processor, 0, dataset_resizes=False).facts["rows"] == 1


def test_a_file_has_no_split_to_hold_out(processor: Any, folder: str) -> None:
    run = RunArguments(dataset=f"{folder}/train.jsonl", skip_broken=True, eval_split="test")
    with pytest.raises(ValueError, match=r"eval_split = 'test': .*train.jsonl is one file"):
        training_data(run, processor, 0, dataset_resizes=False)


def test_pictures_for_a_text_model_are_refused(processor: Any, folder: str) -> None:
    run = RunArguments(dataset=folder, skip_broken=True, model="a-text-model")
    with pytest.raises(ValueError, match=r"a-text-model.*reads text alone"):
        training_data(run, processor.tokenizer, 0, dataset_resizes=True)


def test_what_grading_needs_is_asked_for(
    processor: Any, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrl.runs.data.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'fastrl-grpo\[geometry\]'"):
        training_data(RunArguments(dataset=folder), processor, 0, dataset_resizes=False)
