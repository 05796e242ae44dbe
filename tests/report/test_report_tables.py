"""The report's tables from run folders written by hand: every cell is known."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from report_runs import write_comparison, write_run
from rich.console import Console

from fastrl.report.arms import band, by_arm, ratio_interval, seconds_to_reward
from fastrl.report.cells import Table, markdown, terminal
from fastrl.report.figures import report_figures
from fastrl.report.page import build_report
from fastrl.report.run_folders import find_runs
from fastrl.report.tables import report_tables
from fastrl.report.tiles import summary_tiles


def tables_of(*paths: Path, against: str | None = None) -> dict[str, Table]:
    runs, _ = find_runs(paths)
    return {table.title: table for table in report_tables(by_arm(runs, against))}


def row(table: Table, name: str) -> dict[str, str]:
    return next(dict(zip(table.header, r, strict=True)) for r in table.rows if r[0] == name)


def test_result(tmp_path: Path) -> None:
    table = tables_of(write_comparison(tmp_path / "c"))["Result"]
    plain, pruned = row(table, "none"), row(table, "differential")
    assert table.rows[0][0] == "none"
    assert plain["rule"] == "plain, n = 4"
    assert pruned["rule"] == "differential 0.2, kept"
    assert (plain["seeds"], plain["updates"], plain["kept"]) == ("2", "4", "100.0%")
    assert pruned["accuracy before"] == "25.0% ± 0.0"
    assert pruned["after"] == "85.0% ± 7.1"  # 80 and 90
    assert pruned["reward at the end"] == "0.800"
    assert (pruned["kept"], pruned["rollouts per prompt"]) == ("25.0%", "4.0")


def test_accuracy_is_compared_seed_by_seed(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    plains, others = (0.60, 0.70, 0.80), (0.63, 0.71, 0.82)
    for seed, (one, other) in enumerate(zip(plains, others, strict=True), start=1):
        write_run(folder / f"none-seed{seed}", seed=seed, after=one)
        write_run(folder / f"pruned-seed{seed}", rule="differential", seed=seed, after=other)
    write_run(folder / "single-seed2", rule="random", seed=2, after=0.65)
    write_run(folder / "longer-seed1", rule="random", rewards=(0.1,) * 5)
    report = build_report([folder])
    table = next(table for table in report.tables if table.title == "Result")
    # +3, +1 and +2 points: mean 2, deviation 1, t with 2 degrees of freedom. The seeds themselves
    # lie 10 points apart.
    half = 4.303 / math.sqrt(3)
    told = f"+2.0 [{2 - half:+.1f}, {2 + half:+.1f}]"
    assert told == "+2.0 [-0.5, +4.5]"
    name = "points against plain"
    assert row(table, "pruned")[name] == told
    assert row(table, "none")[name] == row(table, "longer")[name] == "-"
    assert row(table, "single")[name] == "-5.0 (one seed)"
    assert "± is the standard deviation over seeds, in points" in table.note
    assert "95% interval (Student's t on the differences)" in table.note
    for text in (report.html, report.markdown):
        assert told in text
        assert name in text
    assert row(tables_of(folder, against="pruned")["Result"], "none")["points against pruned"] == (
        f"-2.0 [{-2 - half:+.1f}, {-2 + half:+.1f}]"
    )


def test_speed(tmp_path: Path) -> None:
    tables = tables_of(write_comparison(tmp_path / "c"))
    plain, pruned = row(tables["Speed"], "none"), row(tables["Speed"], "differential")
    assert (plain["training seconds"], pruned["training seconds"]) == ("250.0", "50.0")
    assert plain["faster than plain"] == "1"
    # Ratios 2 and 8: geometric mean 4; logs ln 2 apart from it, t with 1 degree of freedom.
    half = 12.706 * (math.sqrt(2) * math.log(2)) / math.sqrt(2)
    assert (
        pruned["faster than plain"] == f"4.00x [{4 / math.exp(half):.2f}, {4 * math.exp(half):.2f}]"
    )
    # Plain spends 20 + 20 of 250 s in what pruning shortens, mean over its seeds.
    assert pruned["Amdahl bound"] == f"{250 / 210:.2f}x"
    assert pruned["expected at this kept share"] == f"{250 / (250 - 0.75 * 40):.2f}x"
    assert pruned["seconds to plain's reward"] == "50.0"
    assert [r[3] for r in tables["Seeds"].rows] == ["1.00x", "1.00x", "2.00x", "8.00x"]


def test_what_is_expected_is_of_the_rollouts_that_plain_generates(tmp_path: Path) -> None:
    # Plain spends 40 of 100 s in what pruning shortens. Adaptive rollouts generate 4 of plain's 8
    # and keep 2 of them: a quarter of plain's work, half of their own.
    folder = tmp_path / "c"
    write_run(folder / "none-seed1", seconds=100.0, update=20.0)
    write_run(folder / "adaptive-seed1", rule="differential", seconds=40.0, kept=2.0, generated=4.0)
    speed = tables_of(folder)["Speed"]
    found = row(speed, "adaptive")
    assert found["expected at this kept share"] == f"{100 / (60 + 40 / 4):.2f}x" == "1.43x"
    assert found["Amdahl bound"] == "1.67x"
    assert row(tables_of(folder)["Result"], "adaptive")["kept"] == "50.0%"
    assert (
        "adaptive rollouts and shared prefixes shorten others too and may pass both" in speed.note
    )


@pytest.mark.parametrize(
    "config",
    [{"num_generations": 8}, {"per_device_train_batch_size": 16}, {"steps_per_generation": 2}],
)
def test_another_batch_than_plains_has_no_expected_speed(
    tmp_path: Path, config: dict[str, int]
) -> None:
    settings = {"num_generations": 4, "per_device_train_batch_size": 8, "steps_per_generation": 1}
    folder = tmp_path / "c"
    write_run(folder / "none-seed1", update=20.0, **settings)
    for name, own in (("other", config), ("same", {})):
        pruned = {"rule": "differential", "kept": 4.0, "seconds": 50.0}
        write_run(folder / f"{name}-seed1", **pruned, **{**settings, **own})
    runs, _ = find_runs([folder])
    arms = by_arm(runs)
    tables = {table.title: table for table in report_tables(arms)}
    other, same = row(tables["Speed"], "other"), row(tables["Speed"], "same")
    assert (other["expected at this kept share"], other["Amdahl bound"]) == ("-", "-")
    assert (same["expected at this kept share"], same["Amdahl bound"]) == ("1.25x", "1.67x")
    figure = next(figure for figure in report_figures(arms) if figure.name == "speedup")
    # Once in the legend, once at the arm that has a bound.
    assert figure.svg.count('class="limit"') == 2
    tiles = {
        name: summary_tiles([arms[0], arm], None)[0]
        for name, arm in zip(
            ("other", "same"), sorted(arms[1:], key=lambda arm: arm.name), strict=True
        )
    }
    assert tiles["other"].detail == "other against none, same updates"
    assert tiles["same"].detail == "same against none, same updates; Amdahl bound 1.67x"


def test_any_arm_can_be_the_one_to_compare_with(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path / "c")
    for seed in (1, 2):
        write_run(folder / f"half-seed{seed}", seed=seed, rule="random", seconds=100.0, kept=4.0)
    tables = tables_of(folder, against="differential")
    assert [r[0] for r in tables["Speed"].rows] == ["differential", "none", "half"]
    assert tables["Speed"].header[2] == "faster than differential"
    assert "Faster than differential: geometric mean" in tables["Speed"].note
    half, plain = row(tables["Speed"], "half"), row(tables["Speed"], "none")
    assert half["faster than differential"] == "0.50x [0.50, 0.50]"
    assert plain["faster than differential"].startswith("0.25x [")
    # What pruning could give is told of plain training alone.
    assert half["Amdahl bound"] == plain["expected at this kept share"] == "-"
    assert half["seconds to differential's reward"] == "100.0"
    assert tables["Seeds"].header[3] == "faster than differential"
    with pytest.raises(ValueError, match="--against odd: no run of such an arm; expected one of d"):
        tables_of(folder, against="odd")


def test_phases(tmp_path: Path) -> None:
    table = tables_of(write_comparison(tmp_path / "c"))["Time per phase"]
    assert row(table, "none")["updates"] == "20.0 (8%)"
    assert row(table, "none")["all"] == "250.0"
    assert row(table, "differential")["old log-probs"] == "5.0 (10%)"


def test_settings_and_machine(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", weight_decay=0.1, adam_beta1=0.9)
    two = write_run(tmp_path / "b", weight_decay=0.2, adam_beta1=0.9, seed=5)
    tables = tables_of(one, two)
    assert row(tables["Settings"], "weight_decay") == {
        "setting": "weight_decay",
        "a": "0.1",
        "b": "0.2",
    }
    names = [r[0] for r in tables["Settings"].rows]
    assert "recipe" in names
    assert not {"adam_beta1", "seed"} & set(names)
    assert ("held-out pictures", "64") in tables["Versions and machine"].rows
    assert "Seeds" not in tables


def test_runs_of_another_length_are_not_compared(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "none")
    longer = write_run(tmp_path / "longer", rule="differential", rewards=(0.1,) * 5, kept=4.0)
    speed = row(tables_of(plain, longer)["Speed"], "longer")
    assert speed["faster than plain"] == "-"
    assert speed["seconds to plain's reward"] == "never"


def test_time_to_a_reward(tmp_path: Path) -> None:
    runs, _ = find_runs([write_run(tmp_path / "a")])
    assert seconds_to_reward(runs[0], 0.6) == 75.0
    assert seconds_to_reward(runs[0], 0.81) is None


def test_bands_over_seeds(tmp_path: Path) -> None:
    for seed, rewards in ((1, (0.0, 1.0)), (2, (1.0, 3.0))):
        write_run(tmp_path / f"a-seed{seed}", seed=seed, rewards=rewards)
    arm = by_arm(find_runs([tmp_path])[0])[0]
    found = band(arm, lambda b: b.step, lambda b: b.reward)
    assert found is not None
    np.testing.assert_allclose(found.x_M, [1, 2])
    np.testing.assert_allclose(found.mean_M, [0.5, 2.0])
    np.testing.assert_allclose([found.low_M, found.high_M], [[0, 1], [1, 3]])


def test_long_runs_are_averaged_not_sampled(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rewards=(0.0, 1.0) * 200)
    arm = by_arm(find_runs([tmp_path])[0])[0]
    found = band(arm, lambda b: b.step, lambda b: b.reward, num_bins=10)
    assert found is not None
    assert len(found.x_M) == 10
    np.testing.assert_allclose(found.mean_M, 0.5, atol=0.03)


def test_one_seed_has_no_interval() -> None:
    assert ratio_interval([]) is None
    found = ratio_interval([2.0])
    assert found is not None
    assert (found.mean, found.low) == (2.0, None)


def test_unfinished_and_empty_runs_are_told(tmp_path: Path) -> None:
    running = write_run(tmp_path / "running")
    (running / "summary.json").unlink()
    with (running / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "sec')
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "config.yaml").write_text("seed: 1\n")
    runs, notes = find_runs([tmp_path])
    assert [run.arm for run in runs] == ["running"]
    assert notes == [
        "running is not finished: 4 updates so far.",
        "started has made no update yet: left out.",
    ]
    assert row(tables_of(tmp_path)["Result"], "running")["after"] == "-"


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run in it"):
        find_runs([tmp_path])
    run = write_run(tmp_path / "a")
    with pytest.raises(ValueError, match="arm 'a' has seed 1 already"):
        by_arm(find_runs([run, run])[0])
    (run / "summary.json").write_text("{")
    with pytest.raises(ValueError, match=r"summary\.json: cannot be read"):
        find_runs([run])


def test_markdown_escapes_cells() -> None:
    text = markdown(Table("T", ("a", "b"), (("x|y", "<b>\n2"),), "Note."))
    assert text == "## T\n\n| a | b |\n| --- | --: |\n| x\\|y | &lt;b> 2 |\n\nNote.\n"


def shown(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(terminal(table, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_table_lies_on_its_side_where_it_is_too_wide() -> None:
    table = Table("T", ("arm", "seconds"), (("plain", "1 [2, 3]"), ("pruned", "10")))
    wide = [line.split() for line in shown(table, 40)]
    assert wide[2:3] + wide[4:6] == [
        ["arm", "seconds"],
        ["plain", "1", "[2,", "3]"],
        ["pruned", "10"],
    ]
    long = Table("T", ("arm", "s", "updates", "kept"), (("plain", "1", "2", "3"),))
    # Upright it needs 5 + 1 + 7 + 4 characters, 3 more a column and 1: 30.
    assert shown(long, 30)[2].split() == ["arm", "s", "updates", "kept"]
    narrow = [line.split() for line in shown(long, 29)]
    assert narrow[2:3] + narrow[4:7] == [
        ["arm", "plain"],
        ["s", "1"],
        ["updates", "2"],
        ["kept", "3"],
    ]


def test_a_narrow_terminal_cuts_no_digit(tmp_path: Path) -> None:
    lines = shown(tables_of(write_comparison(tmp_path / "c"))["Result"], 60)
    words = [line.split() for line in lines]
    assert ["arm", "none", "differential"] in words
    assert ["kept", "100.0%", "25.0%"] in words
    assert "\u2026" not in "".join(lines)
