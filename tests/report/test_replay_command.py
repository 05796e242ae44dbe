"""`fastrl replay` from the command line."""

import json
from pathlib import Path

import pytest
import typer
from report_files import write_lines
from typer.testing import CliRunner

from fastrl.report.commands import register

ROWS = [{"uid": g, "score": i % 2, "text": f"answer {i}"} for g in range(3) for i in range(4)]
FIELDS = ["--fields", "group=uid,reward=score,completion=text"]


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return app


def test_table_and_file(app: typer.Typer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", ROWS)
    words = ["replay", str(path), *FIELDS, "--phases", "gen=30,update=70"]
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "table.md")])
    assert result.exit_code == 0, result.output
    assert "differential 0.2" in result.output
    table = (tmp_path / "table.md").read_text()
    assert (
        "| differential | threshold 0.2 | 50.0% | 2.00 | 2 | 50.0% | 0.0% | 0.333 | 1.54x |"
        in table
    )
    assert "Amdahl bound (nothing kept): 3.33x" in table


def test_json(app: typer.Typer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", ROWS)
    result = CliRunner().invoke(app, ["replay", str(path), *FIELDS, "--json"])
    content = json.loads(result.output)
    assert content["facts"]["groups"] == 3
    assert content["rules"][2]["kept_share"] == 0.5
    assert content["phases"] is None


def test_errors_are_one_line(app: typer.Typer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", ROWS)
    for words in (["--fields", "group"], ["--thresholds", "2"], ["--phases", "x=1"], []):
        result = CliRunner().invoke(app, ["replay", str(path), *words])
        assert result.exit_code == 2
        assert result.output.startswith("error: ")
