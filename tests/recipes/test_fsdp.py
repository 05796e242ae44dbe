"""DAPO's recipe under its FSDP2 settings, two gloo processes: the weights are those under DDP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from recipe_runs import pictures_folder, small_recipe
from safetensors.torch import load_file

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.recipes import launch_configs
from process_runs import train_on_two

FSDP_SCRIPT = Path(__file__).with_name("fsdp_on_cpu.py")
pytestmark = pytest.mark.slow


def fsdp_environment() -> dict[str, str]:
    """What `accelerate launch` makes of the shipped configuration."""
    settings = yaml.safe_load(launch_configs()["fsdp_8gpu"].read_text())["fsdp_config"]
    environment = {"ACCELERATE_USE_FSDP": "true"}
    for name, value in settings.items():
        environment[name.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
    return environment


def launch(recipe: str, folder: Path, *words: str) -> None:
    """`fastrl train` as a launcher starts it, with shards."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc_per_node", "2", str(FSDP_SCRIPT), "train", recipe),
            *("--output_dir", str(folder), *words),
        ],
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "OMP_NUM_THREADS": "1",
            **fsdp_environment(),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_sharded_weights_are_those_of_ddp_and_a_resumed_run_ends_there(tmp_path: Path) -> None:
    recipe = small_recipe(
        tmp_path / "small.yaml",
        "geometry3k_dapo",
        pictures_folder(tmp_path / "pictures"),
        learning_rate=1e-3,
        similarity_threshold=0.0,
        max_steps=4,
    )
    plain, sharded = tmp_path / "plain", tmp_path / "sharded"
    train_on_two(recipe, plain)
    launch(recipe, sharded)
    assert (sharded / "checkpoint-2" / "pytorch_model_fsdp.bin").exists()
    start = load_file(STARTING_POLICY / "model.safetensors")
    expected, found = weights(plain), weights(sharded)
    assert set(start) == set(expected) <= set(found)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
    moved = max((tensor - start[name]).abs().max().item() for name, tensor in expected.items())
    assert moved > 1e-3

    # As a kill after the third update would have left it.
    for gone in ("checkpoint-4", "model"):
        shutil.rmtree(sharded / gone)
    summary = json.loads((sharded / "summary.json").read_text())
    del summary["finished"]
    (sharded / "summary.json").write_text(json.dumps(summary))
    launch(recipe, sharded, "--resume")
    again = weights(sharded)
    assert all(torch.equal(again[name], tensor) for name, tensor in found.items())
