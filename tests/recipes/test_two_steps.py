"""Two updates of every recipe of a published run, with the toy's policy and a few pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from peft import PeftModel
from recipe_runs import OWN_RECIPES, SHORT_NAMES, SMALL, pictures_folder, small_recipe
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText
from typer.testing import CliRunner

from fastrl.cli import app
from fastrl.evaluation.engines import EngineSettings, model_place
from fastrl.evaluation.transformers_engine import TransformersEngine
from fastrl.geometry.toy import STARTING_POLICY
from fastrl.recipes import shipped_recipes
from fastrl.recipes.reading import read_recipe

RECIPES = [name for name in shipped_recipes() if name not in (*OWN_RECIPES, *SHORT_NAMES)]
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def train(tmp_path: Path, recipe: str, *words: str) -> Path:
    """The folder of a run of two updates."""
    dataset = pictures_folder(tmp_path / "pictures")
    path = small_recipe(tmp_path / f"small_{recipe}.yaml", recipe, dataset)
    folder = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", path, "--output_dir", str(folder), *words])
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_updates(recipe: str, tmp_path: Path) -> None:
    folder = train(tmp_path, recipe)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    shipped = read_recipe(recipe).fields
    for name, value in shipped.items():
        if name not in SMALL and name != "dataset":
            assert config[name] == value, name
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        for name, value in line.items():
            assert value is None or math.isfinite(value), name
    (batch,) = [line for line in lines if "fastrl/generated" in line]
    table = pq.read_table(folder / "rollouts" / "generation_000000.parquet")
    assert batch["fastrl/generated"] == table.num_rows
    if shipped.get("dynamic_sampling"):
        # It found groups whose answers differ, and the batch is as large as any.
        assert batch["fastrl/generated"] == 8 + 4 * batch["fastrl/resample_rounds"]
        assert batch["fastrl/batch_filled"] == 1
    else:
        assert batch["fastrl/generated"] == 8
    assert max(line["grad_norm"] for line in lines) > 0
    assert batch["learning_rate"] == shipped["learning_rate"]
    is_lora = "lora_r" in shipped
    assert (folder / "model" / "adapter_model.safetensors").exists() == is_lora
    assert (folder / "model" / "model.safetensors").exists() != is_lora


def test_an_adapter_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    folder = train(tmp_path, "geometry3k_grpo_lora", "--learning_rate", "0.01")
    saved = load_file(folder / "model" / "adapter_model.safetensors")
    # Seven layers in each of the four blocks of the language model, none of the vision tower.
    assert len(saved) == 2 * 7 * 4
    assert all("language_model" in name for name in saved)
    assert {tensor.shape[0] for name, tensor in saved.items() if "lora_A" in name} == {32}
    moved = [name for name, tensor in saved.items() if "lora_B" in name and tensor.abs().max() > 0]
    assert moved

    base = AutoModelForImageTextToText.from_pretrained(STARTING_POLICY, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, folder / "model").merge_and_unload()
    start = AutoModelForImageTextToText.from_pretrained(STARTING_POLICY, dtype=torch.float32)
    changed = {
        name
        for (name, before), after in zip(start.named_parameters(), merged.parameters(), strict=True)
        if not torch.equal(before, after)
    }
    assert changed
    assert not any("visual" in name for name in changed)

    # `fastrl evaluate` finds the adapter in the run's folder, and loads it onto its base.
    assert model_place(str(folder)) == str(folder / "model")
    engine = TransformersEngine(EngineSettings(str(folder)))
    loaded = dict(engine.model.named_parameters())
    found = [name for name in loaded if "lora_B" in name]
    assert len(found) == 7 * 4
    assert max(loaded[name].abs().max().item() for name in found) == pytest.approx(
        max(tensor.abs().max().item() for name, tensor in saved.items() if "lora_B" in name)
    )


def test_targets_that_match_nothing_are_told(tmp_path: Path) -> None:
    dataset = pictures_folder(tmp_path / "pictures")
    path = small_recipe(
        tmp_path / "small.yaml",
        "geometry3k_grpo_lora",
        dataset,
        lora_target_modules=["no_such_layer"],
    )
    words = ["train", path, "--output_dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "no_such_layer" in result.stderr
