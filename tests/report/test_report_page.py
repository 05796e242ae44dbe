"""The HTML page: complete, self-contained, and safe with hostile completions."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from report_runs import rollout, write_comparison, write_rollouts, write_run
from typer.testing import CliRunner

from fastrl.report.browser import MOST_CHARACTERS, picture_uri, share_pictures, why
from fastrl.report.charts import _ticks
from fastrl.report.commands import register
from fastrl.report.page import build_report

pytest.importorskip("pyarrow")

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u2028&"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def data_of(html: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])


def test_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    report = build_report([write_comparison(tmp_path / "c")])
    tags = Tags()
    tags.feed(report.html)
    names = [tag for tag, _ in tags.found]
    assert names.count("svg") == len(report.figures) == 7
    assert not {"link", "iframe", "object", "embed"} & set(names)
    sources = [v for _, a in tags.found for k, v in a.items() if k in ("src", "href", "srcset")]
    assert sources == ["#result", "#training", "#tables", "#browser", "#settings"]
    assert not re.search(r"url\(|@import|fetch\(|innerHTML", report.html)
    assert "default-src 'none'" in report.html
    assert "hub_token" not in report.html
    assert "4.00x" in report.html
    assert "4.00x" in report.markdown


def test_figures_are_xml_and_stand_alone(tmp_path: Path) -> None:
    for figure in build_report([write_comparison(tmp_path / "c")]).figures:
        root = ET.fromstring(figure.standalone())
        assert root.tag.endswith("svg")
        assert root.find("{http://www.w3.org/2000/svg}style") is not None
        assert "nan" not in figure.svg


def test_completions_cannot_leave_their_place(tmp_path: Path) -> None:
    run = write_run(tmp_path / HOSTILE.replace("/", "_")[:40], recipe=HOSTILE)
    write_rollouts(run, 0, [rollout(0, completion=HOSTILE, prompt=HOSTILE)])
    report = build_report([run])
    tags = Tags()
    tags.feed(report.html)
    assert [tag for tag, _ in tags.found].count("script") == 2
    assert "img" not in [tag for tag, _ in tags.found]
    group = data_of(report.html)["groups"][0]
    assert group["prompt"] == HOSTILE
    assert group["rollouts"][0]["completion"] == HOSTILE
    assert "<script" not in report.markdown
    for figure in report.figures:
        ET.fromstring(figure.svg)


def test_groups_are_drawn_evenly_and_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rule="differential")
    for generation in range(10):
        write_rollouts(run, generation, [rollout(i) for i in range(8)])
    html = build_report([run], num_groups=5).html
    assert "5 of 20 groups, evenly over a." in html
    assert [g["step"] for g in data_of(html)["groups"]] == [0, 8, 20, 28, 36]
    assert data_of(build_report([run], num_groups=0).html)["groups"] == []


def test_a_plain_and_a_pruned_run_share_the_groups(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path / "c")
    for name in ("none-seed1", "none-seed2", "differential-seed1"):
        write_rollouts(folder / name, 0, [rollout(i) for i in range(40)])
    data = data_of(build_report([folder], num_groups=6).html)
    assert data["runs"] == ["none-seed1", "differential-seed1"]  # the first seed of each arm
    assert data["first"] == "differential-seed1"
    assert [g["run"] for g in data["groups"]] == ["none-seed1"] * 3 + ["differential-seed1"] * 3
    assert data["groups"][0]["rollouts"][0]["why"] == "nothing is pruned"


def test_rollouts_of_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rule="differential")
    rows = [
        rollout(4),
        rollout(5, reason="duplicate", kept=False, duplicate_of=4, similarity=0.75),
        rollout(6, reward=float("nan"), completion="x" * (MOST_CHARACTERS + 7)),
    ]
    write_rollouts(run, 0, rows)
    html = build_report([run]).html
    first, second, third = data_of(html)["groups"][0]["rollouts"]
    assert first["why"] == "stands for its advantage value"
    assert (second["why"], second["kept"]) == ("repeats #1, similarity 0.75", False)
    assert (second["other"], second["similarity"], first["other"]) == (1, 0.75, None)
    assert third["reward"] is None
    assert (len(third["completion"]), third["full_length"]) == (MOST_CHARACTERS, 4007)
    assert "Completions are cut at 4,000 characters." in html


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"reason": "different", "similarity": 0.125},
            "same advantage, another path, similarity 0.12",
        ),
        (
            {"reason": "refill", "duplicate_of": 7, "similarity": 1.0},
            "fills the batch up; repeats #2, similarity 1.00",
        ),
        ({"reason": "refill", "duplicate_of": -1}, "fills the batch up"),
        ({"reason": "no_contrast"}, "its group has no contrast"),
        ({"reason": "rule"}, "by the rule's choice"),
    ],
)
def test_reasons(row: dict, told: str) -> None:
    assert why(row, {7: 2}) == told


PNG = b"\x89PNG\r\n\x1a\n"


def test_a_picture_of_several_groups_is_there_once(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path / "c")
    for name in ("none-seed1", "differential-seed1"):
        rows = [rollout(i, picture=PNG + bytes([i // 4]) if i % 4 == 0 else None) for i in range(8)]
        write_rollouts(folder / name, 0, [*rows, rollout(8, picture=None)])
    data = data_of(build_report([folder]).html)
    assert data["pictures"] == [picture_uri(PNG + b"\0"), picture_uri(PNG + b"\1")]
    assert [group.get("picture") for group in data["groups"]] == [0, 1, None] * 2


def test_too_many_pictures_are_left_out_evenly() -> None:
    groups = [{"picture": f"{number:0100d}"} for number in range(8)]
    pictures, without = share_pictures(groups, most=450)
    assert (len(pictures), without) == (4, 4)
    assert [group.get("picture") for group in groups] == [None, 0, None, 1, None, 2, None, 3]
    groups = [{"picture": "a"}, {"picture": "a"}, {}]
    assert share_pictures(groups, most=1) == (["a"], 0)
    assert groups == [{"picture": 0}, {"picture": 0}, {}]


def test_pictures_left_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastrl.report.browser.share_pictures", lambda groups: ([], 3))
    run = write_run(tmp_path / "a")
    write_rollouts(run, 0, [rollout(0)])
    html = build_report([run]).html
    assert "To keep the page small, 3 group(s) are shown without their picture." in html


def test_rollouts_per_prompt_are_drawn_where_they_vary(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    assert "num_generations" not in [f.name for f in build_report([run]).figures]
    lines = (run / "metrics.jsonl").read_text()
    changed = lines.replace('"fastrl/num_generations": 4.0', '"fastrl/num_generations": 3.0', 1)
    (run / "metrics.jsonl").write_text(changed)
    assert "num_generations" in [f.name for f in build_report([run]).figures]


def test_pictures_that_cannot_run() -> None:
    png = b"\x89PNG\r\n\x1a\n123"
    assert picture_uri(png) == "data:image/png;base64,iVBORw0KGgoxMjM="
    assert picture_uri({"bytes": b"\xff\xd8\xff0"}) == "data:image/jpeg;base64,/9j/MA=="
    assert picture_uri(b"<svg onload=alert(1)>") is None
    assert picture_uri("https://example.org/a.png") is None
    assert picture_uri(None) is None
    assert picture_uri(png * 100_000) is None


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 8.0, [0, 2, 4, 6, 8]),
        (0.69, 1.47, [0.6, 0.8, 1.0, 1.2, 1.4, 1.6]),
        (0.0, 0.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert _ticks(low, high) == pytest.approx(ticks)


def test_command_writes_page_tables_and_figures(tmp_path: Path) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    run = write_run(tmp_path / "a")
    page = tmp_path / "out" / "page.html"
    words = ["report", str(run), "--output", str(page), "--figures", str(tmp_path / "out" / "f")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert page.read_text().startswith("<!doctype html>")
    assert "![Time per phase](f/phases.svg)" in page.with_suffix(".md").read_text()
    assert (tmp_path / "out" / "f" / "phases.svg").exists()
    for words in ([str(tmp_path / "absent")], [str(run), "--output", "page.txt"]):
        result = CliRunner().invoke(app, ["report", *words])
        assert result.exit_code == 2
        assert result.output.startswith("error: ")
