import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import drawn, picture_folder, write_jsonl
from transformers import AutoProcessor

from fastrl.geometry.datasets import DatasetError, load_geometry, prompt_counter
from fastrl.geometry.datasets.pictures import Picture
from fastrl.geometry.toy import STARTING_POLICY


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Five rows: good, cut-off picture, no answer, no picture at all (good), missing file."""
    folder = picture_folder(tmp_path / "mine", 5)
    (folder / "images" / "1.png").write_bytes((folder / "images" / "1.png").read_bytes()[:60])
    rows: list[dict[str, Any]] = [
        {"problem": f"Find x. ({n})", "images": [f"images/{n}.png"], "answer": str(n)}
        for n in range(5)
    ]
    rows[2]["answer"] = None
    rows[3]["images"] = []
    rows[4]["images"] = ["images/none.png"]
    return write_jsonl(folder / "train.jsonl", rows)


def test_rows_and_training_columns(tmp_path: Path) -> None:
    data = load_geometry(str(picture_folder(tmp_path / "mine", 3)))
    assert [row.answer for row in data.rows] == ["0", "1", "2"]
    assert [row.problem for row in data.rows[1:]] == ["Find x. (1)", "Find x. (2)"]
    row = data.for_training("Use a box.", "Be brief.")[1]
    assert row["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "Find x. (1)\nUse a box."}],
        },
    ]
    assert row["answer"] == "1"
    assert np.array_equal(np.asarray(row["images"][0]), np.asarray(drawn(1)))


def test_every_broken_row_is_named_at_once(broken: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_geometry(str(broken))
    message = str(caught.value)
    assert "3 of 5 rows cannot be used" in message
    assert "row 1: the picture" in message
    assert "row 2: no gold answer" in message
    assert "row 4: the picture" in message
    assert "skip_broken" in message


def test_broken_rows_are_skipped_only_if_asked_and_counted(broken: Path) -> None:
    data = load_geometry(str(broken), skip_broken=True)
    assert [problem.row for problem in data.skipped] == [1, 2, 4]
    training = data.for_training()
    assert training[:]["answer"] == ["0", "3"]
    # TRL: an empty list, not None, for a row without a picture.
    assert [len(images) for images in training[:]["images"]] == [1, 0]
    assert isinstance(training[1]["prompt"][0]["content"], str)


def test_a_data_set_with_nothing_usable_is_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", [{"problem": "x?", "answer": ""}])
    with pytest.raises(DatasetError, match="none of 1 rows is left"):
        load_geometry(str(path), skip_broken=True)


def test_a_long_list_is_cut_and_the_rest_counted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", [{"problem": "x?", "answer": ""}] * 25)
    with pytest.raises(DatasetError, match=r"row 19: .*; and 5 more\. Mend"):
        load_geometry(str(path))


def test_the_first_rows_only(broken: Path) -> None:
    data = load_geometry(str(broken), max_rows=1)
    assert len(data.rows) == 1


def test_an_adapter_brings_ones_own_columns(tmp_path: Path) -> None:
    drawn(7).save(tmp_path / "7.png")
    path = write_jsonl(tmp_path / "own.jsonl", [{"q": "Area?", "fig": "7.png", "label": {"v": 12}}])

    def adapt(raw: Mapping[str, Any]) -> dict[str, Any]:
        return {"problem": raw["q"], "images": [raw["fig"]], "answer": raw["label"]["v"]}

    (row,) = load_geometry(str(path), adapt=adapt).rows
    assert (row.problem, row.answer, row.pictures[0].size()) == ("Area?", "12", (80, 40))


def test_pictures_are_decoded_when_met_and_once_while_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = load_geometry(str(picture_folder(tmp_path / "mine", 4))).for_training()
    opened = []
    monkeypatch.setattr(
        Picture, "open", lambda self, *limits: opened.append(self.source.name) or drawn()
    )
    # As TRL's sampler asks: each prompt once per rollout, the batch once per update.
    batch = training.__getitems__([2, 2, 0, 0])
    again = training.__getitems__([2, 2, 0, 0])
    assert opened == ["2.png", "0.png"]
    assert again[0]["images"][0] is batch[1]["images"][0]
    assert again[0]["images"] is not batch[1]["images"]
    del batch, again
    training.__getitems__([0])
    assert opened == ["2.png", "0.png", "0.png"]


def test_a_training_set_goes_to_a_worker_and_back(tmp_path: Path) -> None:
    training = load_geometry(str(picture_folder(tmp_path / "mine", 2))).for_training()
    held = training[0]
    copy = pickle.loads(pickle.dumps(training))
    assert copy[0]["prompt"] == held["prompt"]
    assert np.array_equal(np.asarray(copy[0]["images"][0]), np.asarray(held["images"][0]))


def test_pictures_are_kept_within_limits(tmp_path: Path) -> None:
    data = load_geometry(str(picture_folder(tmp_path / "mine", 1)))
    assert data.for_training(max_pixels=800)[0]["images"][0].size == (40, 20)
    assert data.for_training(min_pixels=12_800)[0]["images"][0].size == (160, 80)


@pytest.mark.parametrize("limits", [(None, None), (None, 1600), (12_800, None)])
def test_prompt_lengths_are_what_the_processor_makes(
    tmp_path: Path, limits: tuple[int | None, int | None]
) -> None:
    processor = AutoProcessor.from_pretrained(STARTING_POLICY)
    data = load_geometry(str(picture_folder(tmp_path / "mine", 2)))
    count = prompt_counter(processor, "Box it.", "Be brief.", *limits)
    for row, trained in zip(
        data.rows, data.for_training("Box it.", "Be brief.", *limits), strict=True
    ):
        text = processor.apply_chat_template(trained["prompt"], add_generation_prompt=True)
        made = processor(text=[text], images=[trained["images"]], return_tensors="pt")
        assert count(row) == made["input_ids"].shape[1]


def test_long_prompts_are_refused_or_left_out_whole_and_counted(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "mine", 3)
    drawn(1, size=(400, 400)).save(folder / "images" / "1.png")
    count = prompt_counter(AutoProcessor.from_pretrained(STARTING_POLICY))
    lengths = [count(row) for row in load_geometry(str(folder)).rows]
    assert lengths[1] > lengths[0] == lengths[2]
    limit = lengths[0]
    with pytest.raises(DatasetError, match=rf"1 of 3 prompts.*row 1: {lengths[1]} tokens"):
        load_geometry(str(folder), max_prompt_length=limit, prompt_length=count)
    data = load_geometry(str(folder), max_prompt_length=limit, prompt_length=count, skip_long=True)
    assert [problem.row for problem in data.too_long] == [1]
    assert [row.answer for row in data.rows] == ["0", "2"]
