"""Against real model outputs and real golds; skipped where the data does not lie beside."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fastrl.geometry.grading import GoldError, default_grader, equivalent, is_correct
from fastrl.geometry.grading.answers import read_gold

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
MODEL_OUTPUTS = DATA / "r1v_model_outputs"
FORMALGEO = DATA / "geo_formalgeo7k_text" / "problems.jsonl.gz"
needs_outputs = pytest.mark.skipif(not MODEL_OUTPUTS.exists(), reason=f"no {MODEL_OUTPUTS}")
needs_formalgeo = pytest.mark.skipif(not FORMALGEO.exists(), reason=f"no {FORMALGEO}")
ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (MODEL_OUTPUTS / name).read_text().splitlines()]


def boxed(row: dict[str, Any]) -> str:
    """The completion as our format would have it: the tagged answer, else the recorded one."""
    tagged = ANSWER_TAG.findall(row["response"])
    answer = tagged[-1] if tagged else row["recorded_extracted"]
    return "" if answer is None else rf"\boxed{{{answer}}}"


@needs_outputs
def test_the_recorded_labels_of_geoqa_outputs_are_matched() -> None:
    rows = read_lines("geoqa_test_754x2.jsonl")
    agreed = [
        is_correct(boxed(row), row["ground_truth"]) == row["recorded_correct"] for row in rows
    ]
    assert len(rows) == 1508
    assert sum(agreed) / len(agreed) >= 0.97


@needs_outputs
def test_the_recorded_labels_of_counting_outputs_are_matched() -> None:
    rows = read_lines("superclevr_200x2.jsonl")
    for row in rows:
        extracted = row["recorded_extracted"]
        completion = "" if extracted is None else rf"\boxed{{{extracted}}}"
        assert is_correct(completion, str(row["ground_truth"])) == row["derived_correct"]


def ways_to_write(gold: str) -> list[str]:
    """The gold answer as a policy would box it: LaTeX, with and without a degree mark or unit."""
    value = re.sub(r"√", r"\\sqrt", gold).replace("π", r"\pi ")
    value = re.sub(r"°|(?:平方)?(?:米|厘米)|海里|秒|小时|[cm]?m(?:\^\{?2\}?\^?|²)?$", "", value)
    return [
        value,
        rf"{value}^\circ",
        rf"{value}\text{{ cm}}",
        rf"{value}\,\text{{cm}}^2",
        f"${value}$",
    ]


@needs_outputs
def test_no_gold_of_the_geoqa_test_set_is_a_false_negative() -> None:
    golds = {row["ground_truth"] for row in read_lines("geoqa_test_754x2.jsonl")}
    missed = [
        (gold, answer)
        for gold in golds
        for answer in [gold, *ways_to_write(gold)]
        if not is_correct(rf"\boxed{{{answer}}}", gold)
    ]
    assert missed == []


@needs_outputs
def test_no_two_golds_of_the_geoqa_test_set_are_confused() -> None:
    golds = sorted({row["ground_truth"] for row in read_lines("geoqa_test_754x2.jsonl")})
    floats = [read_gold(gold).value.floats[0] for gold in golds]  # type: ignore[union-attr]
    for gold, value in zip(golds, floats, strict=True):
        for answer, other in zip(golds, floats, strict=True):
            assert equivalent(answer, gold) == math.isclose(value, other, rel_tol=1e-12)
    assert default_grader().counts.timeouts == 0


@needs_formalgeo
def test_golds_of_formalgeo_are_read_with_their_value() -> None:
    unread = []
    with gzip.open(FORMALGEO, "rt") as lines:
        for row in map(json.loads, lines):
            try:
                value = read_gold(row["answer"]).value
            except GoldError:
                unread.append(row["answer"])
                continue
            assert value is not None
            assert value.floats[0] == pytest.approx(row["answer_value"], abs=1e-6)
    # A complex logarithm and the names of four points.
    assert unread == ["tan(I*(log(85)-log(-36+77*I))/2)", "('D','A','E','B')"]
