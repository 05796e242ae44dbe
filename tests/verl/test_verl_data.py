"""The parquet files that `fastrl verl-data` writes, read by verl's own data set."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

# First: verl loads its own parts in its own order.
pytest.importorskip("verl")
pytest.importorskip("qwen_vl_utils")

import hydra
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from typer.testing import CliRunner
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tokenizer import hf_processor, hf_tokenizer

from fastrl.cli import app
from fastrl.geometry.datasets.verl_files import VerlFileRequest, write_verl_file
from fastrl.geometry.toy import STARTING_POLICY

OVERLAY = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "geo3k_test_overlay"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Four rows: one picture, two pictures, a transparent one, none at all."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for number, mode in enumerate(("RGB", "L", "RGBA")):
        picture = Image.new("RGB", (120 + 40 * number, 80), "white")
        ImageDraw.Draw(picture).line((2, 2, 100, 70), fill="black", width=3)
        picture.convert(mode).save(folder / f"{number}.png")
    rows = [
        {"problem": "In <image>, find x.", "images": ["0.png"], "answer": "5"},
        {"problem": "Compare.", "images": ["0.png", "1.png"], "answer": "6"},
        {"problem": "Find y.", "images": ["2.png"], "answer": "7"},
        {"problem": "Add 3 and 4.", "images": [], "answer": "8"},
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def read_by_verl(path: Path, tmp_path: Path, **settings: Any) -> RLHFDataset:
    """The data set as verl's trainer makes it, with the toy's processor."""
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = OmegaConf.to_container(hydra.compose("ppo_trainer").data, resolve=True)
    config = OmegaConf.create({**config, "cache_dir": str(tmp_path / "verl"), **settings})
    tokenizer, processor = hf_tokenizer(STARTING_POLICY), hf_processor(STARTING_POLICY)
    assert processor is not None
    return RLHFDataset(str(path), tokenizer, config, processor)


def pictures_of(data: RLHFDataset, number: int) -> list[Image.Image]:
    """The pictures of a row as an agent loop gets them."""
    messages = data[number]["raw_prompt"]
    found = RLHFDataset.process_vision_info(messages, image_patch_size=14, config=data.config)
    return asyncio.run(found)[0]


def test_verl_reads_prompts_pictures_and_answers(mine: Path, tmp_path: Path) -> None:
    request = VerlFileRequest(str(mine), min_pixels=784, max_pixels=5000)
    data = read_by_verl(write_verl_file(request, tmp_path / "train.parquet").path, tmp_path)
    assert len(data) == 4
    rows = [data[number] for number in range(4)]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["5", "6", "7", "8"]
    kinds = [
        [part["type"] for part in row["raw_prompt"][-1]["content"]]
        if isinstance(row["raw_prompt"][-1]["content"], list)
        else "text"
        for row in rows
    ]
    assert kinds == [
        ["text", "image", "text"],
        ["image", "image", "text"],
        ["image", "text"],
        "text",
    ]
    assert [len(pictures_of(data, number)) for number in range(3)] == [1, 2, 1]
    # The transparent picture is black on white, within the limits that the file holds.
    (picture,) = pictures_of(data, 2)
    assert picture.mode == "RGB"
    assert 784 <= picture.width * picture.height <= 5000
    assert np.asarray(picture).mean() > 200


def test_a_batch_of_verls_loader(mine: Path, tmp_path: Path) -> None:
    made = write_verl_file(VerlFileRequest(str(mine), min_pixels=784), tmp_path / "train.parquet")
    data = read_by_verl(made.path, tmp_path)
    batch = next(iter(DataLoader(data, batch_size=4, collate_fn=collate_fn)))
    assert list(batch["data_source"]) == [str(mine)] * 4
    assert [info["split"] for info in batch["extra_info"]] == ["train"] * 4


def test_verl_leaves_out_long_prompts_by_their_pictures(mine: Path, tmp_path: Path) -> None:
    request = VerlFileRequest(str(mine), format_instruction="", min_pixels=20000, max_pixels=40000)
    made = write_verl_file(request, tmp_path / "train.parquet")
    # A picture of 20,000 to 40,000 pixels is 24 to 52 tokens, the words are under 30.
    data = read_by_verl(made.path, tmp_path, filter_overlong_prompts=True, max_prompt_length=82)
    assert [data[number]["index"] for number in range(len(data))] == [0, 2, 3]
    tight = read_by_verl(made.path, tmp_path, filter_overlong_prompts=True, max_prompt_length=24)
    assert [tight[number]["index"] for number in range(len(tight))] == [3]


@pytest.mark.skipif(not OVERLAY.exists(), reason="the shared data does not lie beside the project")
def test_real_problems(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["verl-data", str(OVERLAY), "--output_dir", str(out), "--train_split", ""]
    words += ["--max_rows", "40", "--skip_broken"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert not (out / "train.parquet").exists()
    data = read_by_verl(out / "test.parquet", tmp_path)
    assert 35 <= len(data) <= 40
    for number in range(len(data)):
        (picture,) = pictures_of(data, number)
        # Each side is a multiple of 28 pixels, so the limits hold up to rounding.
        assert 0.95 * 262144 <= picture.width * picture.height <= 4194304
        stored = Image.open(io.BytesIO(data.dataframe[number]["images"][0]["bytes"]))
        assert picture.width / picture.height == pytest.approx(stored.width / stored.height, 0.15)
