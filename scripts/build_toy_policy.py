"""Build the toy's starting policy from nothing, and score the weights that are stored.

About 25 minutes on two CPU cores, seeded. Writes the policy (bf16 safetensors), its training log
and a card with recipe, checksum and accuracies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.geometry.toy.evaluation import evaluate_policy, reading_accuracy
from fastrl.geometry.toy.pretrain import PretrainRecipe, pretrain

LOG = Path(__file__).resolve().parents[1] / "docs" / "toy_pretraining.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=STARTING_POLICY, help="folder of the policy")
    parser.add_argument("--log", type=Path, default=LOG, help="where a copy of the log is kept")
    parser.add_argument("--seed", type=int, default=0, help="of weights and pictures")
    parser.add_argument("--pictures", type=int, default=2000, help="held-out pictures to score")
    parser.add_argument(
        "--card_only", action="store_true", help="score the policy in --out again, without training"
    )
    options = parser.parse_args()
    # One core trains, the other draws pictures.
    torch.set_num_threads(1)
    console = Console()
    recipe = PretrainRecipe(seed=options.seed)
    started = time.perf_counter()
    if not options.card_only:
        pretrain(recipe, options.out, on_report=lambda entry: console.print(entry))
        shutil.move(options.out / "pretrain.jsonl", options.log)
    seconds = time.perf_counter() - started
    card = score(options.out, options.pictures)
    card["recipe"] = asdict(recipe)
    if not options.card_only:
        card["training_seconds"] = round(seconds)
    (options.out / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    console.print(card)


def score(folder: Path, pictures: int) -> dict[str, object]:
    """Accuracies of the stored weights, and the checksum that names them."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(folder)
    weights = (folder / "model.safetensors").read_bytes()
    return {
        "sha256": hashlib.sha256(weights).hexdigest(),
        "bytes": len(weights),
        "parameters": sum(p.numel() for p in model.parameters()),
        "labels_read_right": round(reading_accuracy(model, processor, pictures), 4),
        "held_out": evaluate_policy(model, processor, pictures=pictures).as_dict(),
    }


if __name__ == "__main__":
    main()
