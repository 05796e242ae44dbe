"""Held-out scores over time: curves, time to a target, equal time. Every number is by hand."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from report_runs import write_comparison, write_run, write_scores
from test_report_tables import row, tables_of

from fastrl.report.arms import Arm, by_arm, mean_interval, score_band
from fastrl.report.figures import report_figures
from fastrl.report.page import build_report
from fastrl.report.run_folders import find_runs
from fastrl.report.scores import curve, first_reach, read_scores
from fastrl.report.tables import report_tables
from fastrl.report.targets import accuracy_target, equal_time, time_to_target


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """Plain ends at 80% for both seeds; the arm gets there in a quarter of the time, or never."""
    folder = write_comparison(tmp_path / "c")
    write_scores(folder / "none-seed1", (0.2, 0.6, 0.8), seconds=100.0)
    write_scores(folder / "none-seed2", (0.2, 0.5, 0.8), seconds=400.0)
    write_scores(folder / "differential-seed1", (0.2, 0.8, 0.9), seconds=50.0)
    write_scores(folder / "differential-seed2", (0.2, 0.4, 0.6), seconds=50.0)
    return folder


def arms_of(*paths: Path) -> list[Arm]:
    return by_arm(find_runs(paths)[0])


@pytest.mark.parametrize(
    ("target", "x"), [(0.4, 5.0), (0.6, 10.0), (0.7, 25.0), (0.2, 0.0), (0.1, 0.0), (0.91, None)]
)
def test_a_target_is_reached_on_straight_lines(target: float, x: float | None) -> None:
    # Falls on its way: the first time counts.
    points = np.array([[0.0, 0.2], [10.0, 0.6], [20.0, 0.5], [30.0, 0.9]])
    found = first_reach(points, target)
    assert found == (None if x is None else pytest.approx(x))


def test_scores_of_a_killed_and_resumed_run(tmp_path: Path) -> None:
    path = write_scores(tmp_path, (0.1, 0.3, 0.5))
    line = json.loads(path.read_text().splitlines()[1]) | {"sampled": 0.4}
    with path.open("a") as file:
        file.write(json.dumps(line) + '\n{"step": 4, "sec')
    assert curve(read_scores(path), "step").tolist() == [[0, 0.1], [2, 0.4], [4, 0.5]]
    assert read_scores(tmp_path / "absent.jsonl") == []


def test_a_format_that_earned_nothing_has_no_score(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text('{"step": 1, "seconds": 2, "sampled": 0.5, "pictures": 3, "samples": 4}\n')
    (found,) = read_scores(path)
    assert (found.sampled, found.in_format, found.greedy) == (0.5, None, None)


def test_bad_scores_are_named(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text('{"step": 1, "seconds": 2, "sampled": null, "in_format": 1, "pictures": 3}\n')
    expected = r"line 1: sampled = None: expected a number; samples = None: expected a number"
    with pytest.raises(ValueError, match=expected):
        read_scores(path)
    path.write_text("{\n{}\n")
    with pytest.raises(ValueError, match="line 1: not JSON"):
        read_scores(path)


def test_bands_over_seeds(scored: Path) -> None:
    plain = arms_of(scored)[0]
    found = score_band(plain, "step")
    assert found is not None
    np.testing.assert_allclose(found.x_M, [0, 2, 4])
    np.testing.assert_allclose(found.mean_M, [0.2, 0.55, 0.8])
    by_time = score_band(plain, "seconds")
    assert by_time is not None
    # Up to the end of the shorter run; the longer is at (50, 0.275) and (100, 0.35) by then.
    np.testing.assert_allclose(by_time.x_M, [0, 50, 100])
    np.testing.assert_allclose(by_time.low_M, [0.2, 0.275, 0.35])
    np.testing.assert_allclose(by_time.high_M, [0.2, 0.6, 0.8])


def test_time_to_target_counts_seeds_that_never_get_there(scored: Path) -> None:
    plain, arm = arms_of(scored)
    found = time_to_target(plain, arm, 0.8)
    assert (found.num_runs, found.seconds, found.steps) == (2, (25.0,), (2.0,))
    assert found.ratios == {1: pytest.approx(4.0)}
    assert found.missing == "1 where the arm never reaches it"
    assert time_to_target(plain, arm, 0.85).missing == (
        "1 where plain never reaches it, 1 where neither ever reaches it"
    )
    assert time_to_target(plain, arm, 0.1).missing == "2 there from the start"
    assert time_to_target(Arm("none", plain.runs[:1]), arm, 0.5).missing == "1 without a plain run"


def test_scores_of_start_and_end_are_no_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    write_scores(run, (0.2, 0.8))
    assert arms_of(run)[0].runs[0].scores == []
    assert next(iter(report_figures(arms_of(run)))).name == "reward_time"


def test_tables(scored: Path) -> None:
    arms = arms_of(scored)
    target = accuracy_target(arms)
    assert target is not None
    assert target.accuracy == pytest.approx(0.8)
    tables = {table.title: table for table in report_tables(arms, target)}
    to_target = tables["Time to 80.0% held-out accuracy"]
    assert row(to_target, "none")["seconds"] == "250.0"
    assert "somewhat lower --target" not in to_target.note
    assert row(to_target, "differential") == {
        "arm": "differential",
        "seeds that reach it": "1 of 2",
        "seconds": "25.0",
        "updates": "2",
        "sooner than plain": "4.00x (one seed)",
        "seeds in the ratio": "1",
        "seeds without a ratio": "1 where the arm never reaches it",
    }
    assert [r[-2:] for r in tables["Seeds"].rows] == [
        ("100.0", "-"),
        ("400.0", "-"),
        ("25.0", "4.00x"),
        ("never", "-"),
    ]
    assert "seconds to plain's reward" not in tables["Speed"].header
    # At 50 s: 0.9 against 0.6, and 0.6 against 0.275.
    half = 100 * 12.706 * math.sqrt(2) * 0.0125 / math.sqrt(2)
    assert row(tables["At equal training time"], "differential") == {
        "arm": "differential",
        "seeds": "2",
        "seconds": "50.0",
        "accuracy": "75.0% ± 21.2",
        "plain's accuracy": "43.8% ± 23.0",
        "difference in points": f"+31.2 [{31.25 - half:+.1f}, {31.25 + half:+.1f}]",
    }
    assert equal_time(*arms).differences == pytest.approx([0.3, 0.325])


def test_the_interval_of_several_ratios(scored: Path) -> None:
    way = time_to_target(*arms_of(scored), 0.6)
    # Plain: 50 and 266.7 s; the arm: 16.7 and 50 s.
    assert way.ratios == {1: pytest.approx(3.0), 2: pytest.approx(16 / 3)}
    cell = row(
        next(
            table
            for table in report_tables(arms_of(scored), accuracy_target(arms_of(scored), 0.6))
            if table.title == "Time to 60.0% held-out accuracy"
        ),
        "differential",
    )["sooner than plain"]
    half = 12.706 * math.log(16 / 9) / 2
    assert cell == f"4.00x [{4 / math.exp(half):.2f}, {4 * math.exp(half):.2f}]"
    assert mean_interval([]) is None


def test_a_target_that_plain_seldom_reaches_is_told(scored: Path) -> None:
    write_scores(scored / "none-seed2", (0.2, 0.5, 0.7))
    arms = arms_of(scored)
    table = report_tables(arms, accuracy_target(arms))[1]
    assert table.title == "Time to 75.0% held-out accuracy"
    assert "Only 1 of 2 seeds of none reach it: a somewhat lower --target" in table.note


def test_a_target_is_checked(scored: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--target 90: expected an accuracy in"):
        accuracy_target(arms_of(scored), 90.0)
    bare = write_run(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"no run has held-out scores over time"):
        accuracy_target(arms_of(bare), 0.5)
    assert accuracy_target(arms_of(bare)) is None
    pruned = write_run(tmp_path / "pruned", rule="differential")
    write_scores(pruned, (0.2, 0.6, 0.8))
    assert accuracy_target(arms_of(pruned)) is None
    table = tables_of(pruned)
    assert not any("held-out accuracy" in title for title in table)


def test_an_unfinished_plain_run_does_not_lower_the_target(scored: Path) -> None:
    write_scores(scored / "none-seed2", (0.2, 0.25, 0.3))
    (scored / "none-seed2" / "summary.json").unlink()
    target = accuracy_target(arms_of(scored))
    assert target is not None
    assert target.accuracy == pytest.approx(0.8)


def test_charts_show_held_out_accuracy_where_there_is_any(scored: Path, tmp_path: Path) -> None:
    bare = write_run(tmp_path / "bare", rule="differential")
    arms = arms_of(scored, bare)
    figures = {f.name: f for f in report_figures(arms, accuracy_target(arms))}
    assert list(figures)[:3] == ["accuracy_time", "accuracy_updates", "sooner"]
    assert "64 held-out questions, 4 samples of each." in figures["accuracy_time"].note
    assert "Not scored on the way: bare." in figures["accuracy_time"].note
    assert "target 80.0%" in figures["accuracy_time"].svg
    assert "Seeds without a ratio: differential: 1 where the arm" in figures["sooner"].note
    assert "Training reward" not in figures["reward_time"].note
    figures = {f.name: f for f in report_figures(arms_of(bare))}
    assert next(iter(figures)) == "reward_time"
    assert "Training reward (no held-out scores" in figures["reward_time"].note


def test_the_page_tells_the_target(scored: Path) -> None:
    html = build_report([scored]).html
    assert re.search(r"sooner at 80\.0%</span><b>4\.00x</b><small>differential, 1 of 2", html)
    assert re.search(r"at equal training time</span><b>\+31\.2</b>", html)
    assert "sooner at 60.0%" in build_report([scored], target=0.6).html
