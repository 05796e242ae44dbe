"""Points of the shared-prefix benchmark: ratios by hand, and nothing measured twice."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import shared_prefix
from shared_prefix import Point, Setting, chosen_form, main, run_points, table_row

SETTING = Setting("random", 64, 1, "cpu", "float32", "split", False)
FOUND: dict[str, Any] = {
    "largest_difference": 0.00001,
    "step": {
        "seconds": {"trl": [3.0, 4.0, 9.0], "shared": [1.0, 2.0, 3.0]},
        "bytes": {"trl": 400, "shared": 100},
    },
    "forward": {
        "seconds": {"trl": [1.0] * 3, "shared": [0.5] * 3},
        "bytes": {"trl": 0, "shared": 0},
    },
}


def options_of(path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        rollouts=[2, 4], pictures=[0], tokens=[8], prompt=32, rounds=3, jsonl=path
    )


def test_a_point_as_a_row_of_the_table() -> None:
    point = Point(rollouts=4, picture_tokens=0, prompt_tokens=21, completion_tokens=4)
    assert point.token_ratio == pytest.approx(100 / 40)
    assert table_row(point, FOUND) == [
        *("0", "4", "4", "2.50"),
        *("3.00 [2.00, 3.00]", "2.000", "2.00 [2.00, 2.00]", "0.500", "0.25", "1e-05"),
    ]


def test_points_of_the_file_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Point] = []

    def measure(model: Any, point: Point, form: str, rounds: int) -> dict[str, Any]:
        measured.append(point)
        return FOUND

    monkeypatch.setattr(shared_prefix, "build_policy", lambda options: "model")
    monkeypatch.setattr(shared_prefix, "measure", measure)
    path = tmp_path / "folder" / "points.jsonl"
    first = run_points(options_of(path), SETTING)
    assert [point.rollouts for point in measured] == [2, 4]
    assert run_points(options_of(path), SETTING) == first
    assert len(measured) == 2
    # Of another setting they say nothing.
    run_points(options_of(path), Setting("random", 64, 1, "cuda", "float32", "split", False))
    assert len(measured) == 4
    assert len(path.read_text().splitlines()) == 4
    assert json.loads(path.read_text().splitlines()[0])["point"]["rollouts"] == 2


TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny Llama."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **TEXT)).save_pretrained(folder)
    return str(folder)


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["shared_prefix.py", *words])
    return main()


def test_a_language_model_is_measured_on_text_alone(
    language_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "points.jsonl"
    words = ("--policy", language_model, "--quick", "--jsonl", str(path))
    assert run_main(monkeypatch, *words) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["point"]["picture_tokens"] for line in lines] == [0, 0]
    assert [line["point"]["rollouts"] for line in lines] == [2, 4]
    assert max(line["found"]["largest_difference"] for line in lines) < 5e-5


def test_pictures_alone_cannot_be_asked_of_a_language_model(
    language_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, "--policy", language_model, "--pictures", "64")
    assert "--pictures 0" in capsys.readouterr().err


def test_the_drawn_policy_is_measured_with_pictures_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "points.jsonl"
    assert run_main(monkeypatch, "--quick", "--jsonl", str(path)) == 0
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["point"]["picture_tokens"] for line in found] == [0, 0, 16, 16]
    assert max(line["found"]["largest_difference"] for line in found) < 5e-5


def test_an_unknown_form_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, "--quick", "--form", "varlen")
    told = capsys.readouterr().err
    assert "'varlen'" in told
    assert "flash-attn varlen" in told


def test_the_form_is_chosen_for_the_policys_own_heads(
    language_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))

    def form(policy: str, width: int = 128, given: str | None = None) -> str:
        return chosen_form(
            argparse.Namespace(
                form=given, policy=policy, width=width, layers=1, device="cuda", dtype="float32"
            )
        )

    assert form("random") == "torch flex"
    assert form("random", width=96) == "split"  # four heads of 24
    assert form(language_model) == "split"  # of 8
    assert form(language_model, given="torch flex") == "torch flex"
