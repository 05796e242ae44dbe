"""The recipe of a language model on geometry in words, and the script that makes its data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastrl.geometry.datasets import load_geometry
from fastrl.geometry.rewards import accuracy_reward, format_reward
from fastrl.recipes.reading import read_recipe
from fastrl.runs.recipe import build_arguments

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "formalgeo_text.py"
PUBLISHED = ROOT.parent / "shared" / "data" / "geo_formalgeo7k_text" / "problems.jsonl.gz"


def problem(number: int, **fields: Any) -> dict[str, Any]:
    """A problem as FormalGeo7K publishes it."""
    return {
        "source": f"GeoQA-{number}",
        "problem_level": 2,
        "problem_text_en": f"As shown in the diagram, ∠A{'BCDEF'[number]}O={number + 10}°. "
        f"Find the measure of ∠A{'BCDEF'[number]}P.",
        "problem_answer": str(number + 20),
        **fields,
    }


def make(published: Path, out: Path) -> str:
    words = [sys.executable, str(SCRIPT), "--problems", str(published), "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_the_recipe_shows_is_what_it_rewards() -> None:
    run, config = build_arguments(read_recipe("formalgeo_smollm2").fields, {}, "out")
    assert isinstance(run.examples, dict)
    replies = list(run.examples.values())
    assert format_reward(replies) == [0.5, 0.5]
    assert accuracy_reward(replies, answer=["50", "35"]) == [1.0, 1.0]
    # One update a generation batch of 4 whole groups: TRL then needs no old log-probs.
    assert config.steps_per_generation == config.gradient_accumulation_steps
    assert config.per_device_train_batch_size * config.steps_per_generation == 4 * 8


def test_problems_as_published_become_a_data_set(tmp_path: Path) -> None:
    published = tmp_path / "problems"
    published.mkdir()
    problems = [problem(n) for n in range(5)]
    problems += [
        problem(0, problem_answer="99"),  # the same text again
        problem(1, source="Geometry3k-1"),
        problem(1, problem_level=5),
        problem(1, problem_answer="sqrt(3)"),
        problem(1, problem_text_en="As shown in the diagram, AB=3. Find the length of line BC."),
        problem(1, problem_text_en="∠AOB=1°, " * 20 + "Find the measure of ∠BOC."),
    ]
    for number, content in enumerate(problems):
        (published / f"{number}.json").write_text(json.dumps(content))
    told = make(published, tmp_path / "out")
    rows = {
        split: [json.loads(line) for line in (tmp_path / "out" / f"{split}.jsonl").open()]
        for split in ("train", "test")
    }
    found = rows["train"] + rows["test"]
    assert f"train.jsonl: {len(rows['train'])} problems" in told
    assert sorted(row["answer"] for row in found) == ["20", "21", "22", "23", "24"]
    assert {"problem": "∠ABO=10°. Find the measure of ∠ABP.", "answer": "20"} in found
    (tmp_path / "empty").mkdir()
    assert "no problem of this kind" in make(tmp_path / "empty", tmp_path / "none")


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"{PUBLISHED} is absent: data not mounted")
def test_the_published_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    make(PUBLISHED, tmp_path)
    train = load_geometry(str(tmp_path), "train")
    test = load_geometry(str(tmp_path), "test")
    assert (len(train.rows), len(test.rows)) == (790, 163)
    assert not {row.problem for row in train.rows} & {row.problem for row in test.rows}
    assert train.rows[0].problem == "∠GBD=120°, FE∥HG. Find the measure of ∠FAC."
