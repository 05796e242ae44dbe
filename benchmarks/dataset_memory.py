"""Memory and time of a geometry data set, from opening it to a pass of the trainer's loader.

    python benchmarks/dataset_memory.py [--pictures 5000]

Pictures are generated, stored as JSONL with paths, as parquet, and as a saved data set, and each is
read in a process of its own: checked row by row, then walked once through the data loader of a real
GRPOTrainer (8 rollouts a prompt, 16 prompts a batch). Memory is what the process has to itself
(RssAnon); pages of memory-mapped files, which the system takes back when it needs them, are told
apart (RssFile). Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Parquet is converted once, to a file that is mapped into memory; the second time it is there.
FORMS = {"jsonl": "jsonl", "parquet": "parquet", "parquet, again": "parquet", "saved": "saved"}
SIZE = (640, 480)
MEGABYTE = 1 << 20


def memory() -> tuple[float, float]:
    """Private memory and pages of files, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))


def generate(folder: Path, count: int) -> None:
    """Line drawings with some noise, about as large on disk as scanned figures."""
    import numpy as np
    from datasets import Dataset, Image, List, disable_progress_bars
    from PIL import Image as Pictures
    from PIL import ImageDraw

    disable_progress_bars()
    rng = np.random.default_rng(0)
    (folder / "jsonl" / "images").mkdir(parents=True)
    with (folder / "jsonl" / "train.jsonl").open("w") as file:
        for number in range(count):
            noise = rng.integers(248, 256, (SIZE[1] // 8, SIZE[0] // 8, 3), dtype=np.uint8)
            picture = Pictures.fromarray(noise).resize(SIZE, Pictures.Resampling.NEAREST)
            draw = ImageDraw.Draw(picture)
            for _ in range(6):
                corners = rng.integers(0, SIZE[1], 4).tolist()
                draw.line(corners, fill="black", width=2)
            draw.text((10, 10), str(number), fill="black")
            picture.save(folder / "jsonl" / "images" / f"{number}.png", compress_level=1)
            row = {
                "problem": f"<image>Find x in figure {number}.",
                "images": [f"images/{number}.png"],
                "answer": str(number),
            }
            file.write(json.dumps(row) + "\n")

    def rows():
        for line in (folder / "jsonl" / "train.jsonl").open():
            row = json.loads(line)
            content = (folder / "jsonl" / row["images"][0]).read_bytes()
            yield {**row, "images": [{"bytes": content, "path": None}]}

    cache = str(folder / "cache")
    typed = Dataset.from_generator(rows, cache_dir=cache).cast_column("images", List(Image()))
    (folder / "parquet").mkdir()
    typed.to_parquet(folder / "parquet" / "train.parquet")
    typed.save_to_disk(folder / "saved")


def measure(path: Path, work: Path) -> dict[str, float]:
    """One form, in this process."""
    import datasets

    datasets.config.HF_DATASETS_CACHE = str(work / "cache")
    datasets.disable_progress_bars()
    from fastrl.geometry.datasets import load_geometry
    from fastrl.geometry.rewards import accuracy_reward
    from fastrl.geometry.toy import STARTING_POLICY
    from fastrl.trl import FastGRPOConfig, FastGRPOTrainer

    at_start, _ = memory()
    started = time.perf_counter()
    data = load_geometry(str(path), "train")
    checked = time.perf_counter() - started
    after_check, _ = memory()
    trainer = FastGRPOTrainer(
        model=str(STARTING_POLICY),
        reward_funcs=[accuracy_reward],
        args=FastGRPOConfig(
            output_dir=str(work / "out"),
            use_cpu=True,
            bf16=False,
            report_to="none",
            per_device_train_batch_size=128,
            num_generations=8,
        ),
        train_dataset=data.for_training(),
    )
    with_model, _ = memory()
    highest, files, pictures = with_model, 0.0, 0
    started = time.perf_counter()
    for batch in trainer.get_train_dataloader():
        pictures += len({id(row["images"][0]) for row in batch})
        private, mapped = memory()
        highest, files = max(highest, private), max(files, mapped)
    passed = time.perf_counter() - started
    return {
        "pictures": pictures,
        "check_ms": checked / len(data.rows) * 1e3,
        "pass_ms": passed / pictures * 1e3,
        "check_mb": after_check - at_start,
        "pass_mb": highest - with_model,
        "files_mb": files,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--measure", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    decoded = SIZE[0] * SIZE[1] * 3 / MEGABYTE
    print(
        "| form | pictures | on disk, MB | decoded, MB | check, ms a row | pass, ms a picture",
        end="",
    )
    print(" | check, MB more | pass, MB more | mapped files, MB |")
    print("|" + "---|" * 9)
    for count in (arguments.pictures // 10, arguments.pictures):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            generate(folder, count)
            stored = sum(file.stat().st_size for file in (folder / "jsonl").rglob("*.png"))
            for form, place in FORMS.items():
                words = [sys.executable, __file__, "--measure", str(folder / place), str(folder)]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"| {form} | {count:,} | {stored / MEGABYTE:,.0f} | {count * decoded:,.0f} "
                    f"| {found['check_ms']:.1f} | {found['pass_ms']:.1f} | {found['check_mb']:.0f} "
                    f"| {found['pass_mb']:.0f} | {found['files_mb']:,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
