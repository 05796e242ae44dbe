"""What a trainer holds of a data set does not grow with it."""

import gc
from pathlib import Path

import pytest
from picture_files import write_jsonl
from PIL import Image

from fastrl.geometry.datasets import load_geometry
from fastrl.geometry.rewards import accuracy_reward
from fastrl.geometry.toy import STARTING_POLICY
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer

STATUS = Path("/proc/self/status")
SIDE, PICTURES = 800, 150
DECODED = SIDE * SIDE * 3 * PICTURES / 1e6  # megabytes


def private_memory() -> float:
    """Megabytes that this process has to itself; pages of mapped files are not counted."""
    gc.collect()
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024 / 1e6


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = []
    for number in range(PICTURES):
        Image.new("RGB", (SIDE, SIDE), (number % 256, 0, 0)).save(tmp_path / f"{number}.png")
        rows.append({"problem": "x?", "image": f"{number}.png", "answer": str(number)})
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    trainer = FastGRPOTrainer(
        model=str(STARTING_POLICY),
        reward_funcs=[accuracy_reward],
        args=FastGRPOConfig(
            output_dir=str(tmp_path / "out"),
            use_cpu=True,
            bf16=False,
            report_to="none",
            per_device_train_batch_size=16,
            num_generations=8,
            shuffle_dataset=False,
        ),
        train_dataset=load_geometry(str(path)).for_training(),
    )
    before = private_memory()
    highest, met = before, []
    for batch in trainer.get_train_dataloader():
        met += [row["answer"] for row in batch[::8]]
        # Eight rollouts, one picture.
        assert all(row["images"][0] is batch[0]["images"][0] for row in batch[:8])
        highest = max(highest, private_memory())
    assert met == [str(number) for number in range(PICTURES)]
    # Two batches of two pictures, and what PIL needs beside them; all of them would be 288 MB.
    assert highest - before < DECODED / 5
