"""A recipe of a published run, made small: the toy's policy and a handful of pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from fastrl.geometry.toy.figures import figures

# The recipes that are no published run.
OWN_RECIPES = ("toy_geometry", "formalgeo_smollm2")
# Second names of published runs: tests of values compare them, nothing runs them twice.
SHORT_NAMES = {"geometry3k": "geometry3k_grpo", "geoqa8k": "geoqa8k_grpo"}

# In place of model, data, engine and sizes; what is learnt, and how, is the recipe's.
SMALL: dict[str, Any] = {
    "model": "toy",
    "model_init_kwargs": None,
    "min_pixels": 784,
    "max_pixels": 50176,
    "use_vllm": False,
    "use_cpu": True,
    "bf16": False,
    "format_instruction": "",  # the toy's policy does not know it
    "max_completion_length": 32,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 2,
    "max_steps": 2,
    "save_steps": 2,
}


def pictures_folder(folder: Path, pictures: int = 8) -> Path:
    """A data set of the toy's figures, as files: its policy is right now and then."""
    folder.mkdir()
    rows = []
    for number, figure in enumerate(figures(pictures, seed=7)):
        figure.picture.save(folder / f"{number}.png")
        row = {
            "problem": figure.question,
            "images": [f"{number}.png"],
            "answer": str(figure.answer),
        }
        rows.append(json.dumps(row) + "\n")
    (folder / "train.jsonl").write_text("".join(rows))
    return folder


def small_recipe(path: Path, recipe: str, dataset: Path, **changes: Any) -> str:
    """Write a recipe that starts from a shipped one; returns its path."""
    fields = {"base": recipe, **SMALL, "dataset": str(dataset), **changes}
    path.write_text(yaml.safe_dump(fields))
    return str(path)
