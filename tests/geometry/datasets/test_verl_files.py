"""Geometry data as parquet files for verl; `tests/verl` has verl's own reader on them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_files import drawn, encoded, picture_folder, write_jsonl
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner

from fastrl.cli import app
from fastrl.geometry.datasets import DatasetError, Picture
from fastrl.geometry.datasets.verl_files import VerlFileRequest, write_verl_file


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def mixed_folder(folder: Path) -> Path:
    """Three rows: a picture named in the text, two without a place, none."""
    picture_folder(folder, 2)
    rows = [
        {"problem": "In <image>, find x.", "images": ["images/0.png"], "answer": "5"},
        {"problem": "Compare.", "images": ["images/0.png", "images/1.png"], "answer": "6"},
        {"problem": "Add 3 and 4.", "images": [], "answer": 7},
    ]
    write_jsonl(folder / "train.jsonl", rows)
    return folder


def test_the_columns_that_verl_reads(tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mine")
    request = VerlFileRequest(str(folder), format_instruction="Use a box.", system_prompt="Brief.")
    made = write_verl_file(request, tmp_path / "out" / "train.parquet")
    assert (made.rows, made.written, made.skipped) == (3, True, ())
    rows = parquet.read_table(made.path).to_pylist()
    assert [row["prompt"][1] for row in rows] == [
        {"role": "user", "content": "In <image>, find x.\nUse a box."},
        {"role": "user", "content": "<image><image>Compare.\nUse a box."},
        {"role": "user", "content": "Add 3 and 4.\nUse a box."},
    ]
    assert rows[0]["prompt"][0] == {"role": "system", "content": "Brief."}
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["5", "6", "7"]
    assert [row["extra_info"] for row in rows] == [
        {"split": "train", "index": number} for number in range(3)
    ]
    assert {row["data_source"] for row in rows} == {str(folder)}
    assert [len(row["images"]) for row in rows] == [1, 2, 0]
    source = (folder / "images" / "0.png").read_bytes()
    assert rows[0]["images"][0] == {"bytes": source, "min_pixels": 262144, "max_pixels": 4194304}


def test_pixel_limits_are_left_out_where_there_are_none(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "mine", 1)
    request = VerlFileRequest(str(folder), min_pixels=None, max_pixels=50176)
    rows = parquet.read_table(write_verl_file(request, tmp_path / "t.parquet").path).to_pylist()
    assert rows[0]["images"][0].keys() == {"bytes", "max_pixels"}


def test_broken_rows_are_named_or_left_out(tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mine")
    (folder / "images" / "1.png").unlink()
    path = tmp_path / "train.parquet"
    request = VerlFileRequest(str(folder))
    with pytest.raises(DatasetError, match=r"row 1: .*1\.png"):
        write_verl_file(request, path)
    assert not path.exists()
    made = write_verl_file(replace(request, skip_broken=True), path)
    assert [problem.row for problem in made.skipped] == [1]
    rows = parquet.read_table(path).to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == [0, 2]


def test_a_finished_file_is_kept_and_another_never_replaced(tmp_path: Path) -> None:
    request = VerlFileRequest(str(picture_folder(tmp_path / "mine", 2)))
    path = tmp_path / "train.parquet"
    write_verl_file(request, path)
    before = path.stat().st_mtime_ns
    assert write_verl_file(request, path).written is False
    other = replace(request, max_rows=1, skip_broken=True)
    with pytest.raises(DatasetError, match="max_rows = None and not 1, skip_broken = False"):
        write_verl_file(other, path)
    assert path.stat().st_mtime_ns == before
    assert write_verl_file(other, path, overwrite=True).rows == 1


def test_what_is_no_file_of_ours_is_told(tmp_path: Path) -> None:
    request = VerlFileRequest(str(picture_folder(tmp_path / "mine", 1)))
    path = tmp_path / "train.parquet"
    path.write_text("half a file")
    with pytest.raises(DatasetError, match="no parquet file"):
        write_verl_file(request, path)


def test_an_interruption_leaves_nothing_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = VerlFileRequest(str(picture_folder(tmp_path / "mine", 3)))
    path = tmp_path / "out" / "train.parquet"
    monkeypatch.setattr("fastrl.geometry.datasets.verl_files._ROWS_AT_ONCE", 1)
    encode, calls = Picture.encoded, iter(range(9))

    def interrupted(picture: Picture) -> bytes:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return encode(picture)

    monkeypatch.setattr(Picture, "encoded", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_verl_file(request, path)
    assert list(path.parent.iterdir()) == []
    monkeypatch.setattr(Picture, "encoded", encode)
    assert write_verl_file(request, path).rows == 3


def test_words_that_verl_takes_for_media_are_refused(tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mine")
    rows = [{"problem": "See <video>.", "images": ["images/0.png"], "answer": "5"}]
    write_jsonl(folder / "train.jsonl", rows)
    with pytest.raises(DatasetError, match="row 0: <video>"):
        write_verl_file(VerlFileRequest(str(folder)), tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"min_pixels = 9.*ascending.*system_prompt: <image>"):
        VerlFileRequest(str(folder), min_pixels=9, max_pixels=4, system_prompt="A <image>.")


@pytest.mark.parametrize(
    ("picture", "kind", "settings", "is_kept"),
    [
        (drawn(), "png", {}, True),
        (drawn(), "jpeg", {}, True),
        (drawn().convert("L"), "png", {}, True),
        (drawn().convert("RGBA"), "png", {}, False),
        (drawn().convert("P"), "png", {"transparency": 0}, False),
        (drawn(), "bmp", {}, False),
        (drawn(), "jpeg", {"exif": {0x0112: 6}}, False),
    ],
)
def test_a_picture_reads_alike_everywhere(
    picture: Image.Image, kind: str, settings: dict[str, object], is_kept: bool
) -> None:
    if "exif" in settings:
        exif = Image.Exif()
        exif.update(settings["exif"])  # type: ignore[call-overload]
        settings = {"exif": exif}
    source = encoded(picture, kind, **settings)
    found = Picture(source).encoded()
    assert (found == source) is is_kept
    plainly_read = Image.open(io.BytesIO(found)).convert("RGB")
    assert np.array_equal(np.asarray(plainly_read), np.asarray(Picture(source).open()))


def test_the_command(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "mine", 3)
    picture_folder(folder, 2, "test")
    out = tmp_path / "out"
    words = ["verl-data", str(folder), "--output_dir", str(out)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0
    assert first.output.count("rows, written") == 2
    assert parquet.read_metadata(out / "test.parquet").num_rows == 2
    again = CliRunner().invoke(app, words)
    assert again.output.count("kept as it was") == 2
    refused = CliRunner().invoke(app, [*words, "--test_split", "none", "--overwrite"])
    assert refused.exit_code == 2
    assert "split 'none'" in refused.output
