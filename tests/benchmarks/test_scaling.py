"""The scaling benchmark's plan, tables and figures, from measurements by hand."""

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from scaling import QUICK, figures, markdown, peak_memory, points, run_all, series, slopes
from step_runs import Work

STATUS = Path("/proc/self/status")
BASE = Work(prompts=8, rollouts=8, tokens=32, levels=4)


def line(work: Work, seconds: list[float], peak: float) -> dict:
    return {"work": asdict(work), "seconds": seconds, "loaded_mb": 1.0, "peak_mb": peak}


@pytest.fixture
def measured() -> list[dict]:
    """Plain takes 1 s a rollout and 10 MB; FastRL half of that."""
    return [
        line(work, [size / half, size / half, 99.0], 100 + 10 * size / half)
        for factor, work in points(BASE, {"rollouts": (2, 4, 8)})
        for size, half in [(work.rollouts, 2 if work.arm == "exact" else 1)]
    ]


def test_one_factor_is_changed_at_a_time() -> None:
    planned = list(points(BASE, {"rollouts": (2, 16), "tokens": (64,)}))
    assert planned[:2] == [
        ("rollouts", replace(BASE, rollouts=2, levels=2, arm="trl")),
        ("rollouts", replace(BASE, rollouts=2, levels=2, arm="exact")),
    ]
    assert planned[2][1] == replace(BASE, rollouts=16)
    assert planned[4][1] == replace(BASE, tokens=64)
    assert len(list(points(BASE, QUICK))) == 12


def test_series_are_medians_in_order(measured: list[dict]) -> None:
    assert series(measured[::-1], BASE, "rollouts", "trl") == [
        (2, 2.0, 120.0),
        (4, 4.0, 140.0),
        (8, 8.0, 180.0),
    ]
    # The base itself is a point of every factor; points of another base are of none.
    assert series(measured, BASE, "tokens", "trl") == [(32, 8.0, 180.0)]
    assert series(measured, replace(BASE, tokens=16), "rollouts", "trl") == []


def test_tables_tell_the_slopes(measured: list[dict]) -> None:
    text = markdown(measured, BASE, ["rollouts"])
    assert "| 4 | 4.000 | 2.000 | 2.00x | 140 | 120 |" in text
    assert "plain GRPO: time grows as rollouts per prompt to the power 1.00 (log-log fit)" in text
    assert "linear fit 0.000 s + 500.00 ms each (R2 1.000)" in text
    assert "peak memory 100 MB + 5.00 MB each" in text
    assert "to the power 0.50" in slopes([(1, 1.0, 1.0), (4, 2.0, 1.0)], "x")


def test_figures_stand_alone(measured: list[dict]) -> None:
    drawn = figures(measured, BASE, ["rollouts"])
    assert list(drawn) == ["scaling_rollouts_seconds.svg", "scaling_rollouts_memory.svg"]
    for svg in drawn.values():
        assert ET.fromstring(svg).tag.endswith("svg")


def test_finished_points_are_not_repeated(measured: list[dict], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(one) + "\n" for one in measured))
    works = [work for _, work in points(BASE, {"rollouts": (2, 4, 8)})]
    assert run_all(works, results, warmup=1, batches=1) == measured


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel tells it on Linux alone")
def test_peak_memory_is_what_the_kernel_says() -> None:
    (told,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    assert peak_memory() == pytest.approx(1024 * int(told.split()[1]), rel=0.02)
