"""A recipe's script trains the toy policy on pictures: real verl, Ray and FSDP, on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from cpu_runs import Run, cpu_overrides, run_command

pytest.importorskip("qwen_vl_utils")

from fastrl.geometry.datasets.verl_files import VerlFileRequest, write_verl_file
from fastrl.geometry.toy import STARTING_POLICY, figures
from fastrl.recipes import verl_recipes

pytestmark = pytest.mark.slow

PROMPTS, GROUP = 4, 8
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# What a CPU and the toy's policy need; all else is the recipe's.
SMALL = [
    f"data.train_batch_size={PROMPTS}",
    "data.max_prompt_length=160",
    "data.max_response_length=24",
    "data.filter_overlong_prompts_workers=1",
    f"actor_rollout_ref.model.path={STARTING_POLICY}",
    f"{ACTOR}.ppo_mini_batch_size=2",
    f"{ACTOR}.ppo_max_token_len_per_gpu=1024",
    f"{ACTOR}.optim.lr=1e-3",
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu=2048",
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=2048",
    "trainer.total_epochs=1",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight of the toy's pictures with questions, as files for verl."""
    folder = tmp_path_factory.mktemp("figures")
    rows = []
    for number, figure in enumerate(figures(2 * PROMPTS, seed=3)):
        figure.picture.save(folder / f"{number}.png")
        rows.append({"problem": figure.question, "image": f"{number}.png", "answer": figure.answer})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = VerlFileRequest(
        str(folder / "train.jsonl"), format_instruction="", min_pixels=784, max_pixels=50176
    )
    for name in ("train", "test"):
        write_verl_file(request, folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One epoch of two steps of Geometry3K's GRPO script, on the toy's pictures."""
    folder = tmp_path_factory.mktemp("run")
    script = ["bash", str(verl_recipes()["geometry3k_grpo"]), str(data)]
    words = [*cpu_overrides(folder, ranks=1), f"{ROLLOUT}.name=cpu_pictures", *SMALL]
    run = run_command([*script, *words], folder, modules="cpu_pictures")
    assert run.returncode == 0, run.log[-5000:]
    return run


def test_every_metric_is_a_number(run: Run) -> None:
    assert [line["training/global_step"] for line in run.metrics] == [1, 2]
    for line in run.metrics:
        assert all(math.isfinite(value) for value in line.values())
        assert line["fastrl/generated"] == PROMPTS * GROUP
        assert 0 <= line["fastrl/reward"] <= 1.5


def test_the_prompts_have_pictures_in_them(run: Run) -> None:
    image_token = json.loads((STARTING_POLICY / "config.json").read_text())["image_token_id"]
    assert len(run.rollouts) == 2 * PROMPTS * GROUP
    assert min(rollout["prompt"].count(image_token) for rollout in run.rollouts) > 4


def test_actor_and_sampler_see_the_same_pictures(run: Run) -> None:
    """A picture too many, too few or exchanged would give other log-probs."""
    for line in run.metrics:
        assert line["training/rollout_probs_diff_max"] < 1e-3
        assert line["training/rollout_actor_probs_pearson_corr"] > 0.9999


def test_only_kept_rows_are_scored_and_trained_on(run: Run) -> None:
    for line in run.metrics:
        kept = line["fastrl/kept"]
        assert PROMPTS <= kept < PROMPTS * GROUP
        assert kept % 2 == 0
    for kind in ("old", "reference", "update"):
        rows = sum(len(made["responses"]) for made in run.passes(kind))
        assert rows == sum(line["fastrl/kept"] for line in run.metrics), kind
    assert all(line["actor/grad_norm"] > 0 for line in run.metrics)
