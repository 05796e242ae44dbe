import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict, Image, List
from picture_files import drawn, encoded, picture_folder, write_jsonl

from fastrl.geometry.datasets import sources
from fastrl.geometry.datasets.sources import DatasetError, open_source


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted files go to the test's own folder, not to the user's cache."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def published(count: int = 3) -> Dataset:
    """Rows with Geometry3K's columns and types."""
    rows = {
        "images": [[{"bytes": encoded(drawn(n)), "path": None}] for n in range(count)],
        "problem": [f"<image>Find x. ({n})" for n in range(count)],
        "answer": [str(n) for n in range(count)],
    }
    return Dataset.from_dict(rows).cast_column("images", List(Image()))


def assert_published(rows: Any, count: int = 3) -> None:
    assert len(rows) == count
    for number in range(count):
        row = rows[number]
        assert (row["problem"], row["answer"]) == (f"<image>Find x. ({number})", str(number))
        # Still encoded.
        assert [image["bytes"] for image in row["images"]] == [encoded(drawn(number))]


def test_a_parquet_file_with_and_without_hugging_face_types(tmp_path: Path) -> None:
    published().to_parquet(tmp_path / "typed.parquet")
    assert_published(open_source(str(tmp_path / "typed.parquet")))
    bare = pa.table(
        {"image": [encoded(drawn(4))], "problem": ["Find x."], "answer": [5]}  # bytes and a number
    )
    pq.write_table(bare, tmp_path / "bare.parquet")
    rows = open_source(str(tmp_path / "bare.parquet"))
    assert rows[0] == {"image": encoded(drawn(4)), "problem": "Find x.", "answer": 5}


def test_a_folder_of_files_named_after_their_split(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    published(5).select(range(3)).to_parquet(tmp_path / "data" / "train-00000-of-00002.parquet")
    published(5).select(range(3, 5)).to_parquet(tmp_path / "data" / "train-00001-of-00002.parquet")
    published(1).to_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    assert_published(open_source(str(tmp_path)), 5)
    assert_published(open_source(str(tmp_path), "test"), 1)
    with pytest.raises(DatasetError, match=r"split 'validation'.*found: data/test-00000"):
        open_source(str(tmp_path), "validation")


def test_jsonl_with_picture_paths_plain_and_compressed(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "mine", 2)
    rows = open_source(str(folder))
    assert rows.folder == folder
    assert rows[1] == {"problem": "Find x. (1)", "image": "images/1.png", "answer": "1"}
    packed = folder / "test.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "train.jsonl").read_bytes()))
    assert open_source(str(packed))[1] == rows[1]
    assert open_source(str(folder), "test")[1] == rows[1]


def test_jsonl_with_answers_of_mixed_types(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "train.jsonl",
        [
            {"problem": "a", "answer": 60, "images": ["a.png"]},
            {"problem": "b", "answer": "x+2", "images": "b.png"},
        ],
    )
    rows = open_source(str(path))
    assert [rows[0]["answer"], rows[1]["answer"]] == [60, "x+2"]
    assert [rows[0]["images"], rows[1]["images"]] == [["a.png"], "b.png"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", [{"problem": "a", "answer": "1"}])
    assert open_source(str(path))[0]["answer"] == "1"
    write_jsonl(path, [{"problem": "a", "answer": "22"}])
    assert open_source(str(path))[0]["answer"] == "22"


def test_saved_data_sets(tmp_path: Path) -> None:
    published().save_to_disk(tmp_path / "one")
    DatasetDict({"train": published(), "test": published(1)}).save_to_disk(tmp_path / "several")
    assert_published(open_source(str(tmp_path / "one")))
    assert_published(open_source(str(tmp_path / "several")))
    assert_published(open_source(str(tmp_path / "several"), "test"), 1)
    with pytest.raises(DatasetError, match="no split 'validation'; it has test, train"):
        open_source(str(tmp_path / "several"), "validation")


def test_known_names_stand_for_the_published_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub(name: str, split: str) -> Dataset:
        asked.append((name, split))
        return published()

    monkeypatch.setattr(sources, "load_dataset", hub)
    assert_published(open_source("geometry3k"))
    assert open_source("geoqa8k", "test").name == "leonardPKU/GEOQA_8K_R1V[test]"
    assert open_source("geoqa", "test").name == "leonardPKU/GEOQA_8K_R1V[test]"
    open_source("geoqa8k_solutions")
    open_source("someone/else")
    assert asked == [
        ("hiyouga/geometry3k", "train"),
        ("leonardPKU/GEOQA_8K_R1V", "test"),
        ("leonardPKU/GEOQA_8K_R1V", "test"),
        ("leonardPKU/GEOQA_R1V_Train_8K", "train"),
        ("someone/else", "train"),
    ]


def test_what_is_not_there_is_said_with_the_remedy(tmp_path: Path) -> None:
    # The tests run offline.
    with pytest.raises(DatasetError, match=r"hiyouga/geometry3k.*give a local path"):
        open_source("geometry3k")
    for name in ("geometry", "./mine.jsonl", "data/mine.jsonl", str(tmp_path / "none")):
        with pytest.raises(DatasetError, match="no such file or folder, no known name"):
            open_source(name)
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(DatasetError, match=r"expected a .parquet or .jsonl file"):
        open_source(str(tmp_path / "a.csv"))
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DatasetError, match=r"broken.jsonl: cannot be read"):
        open_source(str(tmp_path / "broken.jsonl"))
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(DatasetError, match=r"broken.parquet: cannot be read"):
        open_source(str(tmp_path / "broken.parquet"))
