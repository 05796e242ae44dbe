"""A whole evaluation: its files, what a crash loses, and that going on gives the same result."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from fastrl.cli import app
from fastrl.evaluation.engines import Completion, Engine
from fastrl.evaluation.evaluation import Evaluation, default_folder
from fastrl.evaluation.folder import EvaluationFolder
from fastrl.evaluation.questions import Question, Rule
from fastrl.evaluation.sampling import Sampling
from fastrl.evaluation.summary import summary_table


class Drawing:
    """Answers by its seed, and dies when asked once too often."""

    batch_size = 4

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at = dies_at
        self.asked: list[int] = []

    def complete(
        self, questions: Sequence[Question], samples: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        if len(self.asked) == self.dies_at:
            raise KeyboardInterrupt
        self.asked.append(seed)
        return [
            [
                Completion(f"<thinking>a</thinking>\\boxed{{{(seed + i) % 3}}}", 5, i > 0)
                for i in range(samples)
            ]
            for _ in questions
        ]


def evaluation(folder: Path, seed: int = 0, questions: int = 5, **settings: Any) -> Evaluation:
    return Evaluation(
        [
            Question(
                f"q{row}",
                f"{row}?",
                "1",
                rule=Rule("exact", boxed_only=True),
                tags={"kind": ("odd" if row % 2 else "even",)},
            )
            for row in range(questions)
        ],
        samples=2,
        sampling=Sampling(1.0, max_new_tokens=8),
        batch_size=4,
        seed=seed,
        folder=EvaluationFolder(folder),
        settings={"model": "m", "dataset": "d", **settings},
    )


def same_engine(engine: Engine) -> Callable[[], Engine]:
    return lambda: engine


def rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "predictions").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_files_and_numbers(tmp_path: Path) -> None:
    told = []
    drawing = Drawing()
    summary = evaluation(tmp_path).execute(
        same_engine(drawing), lambda done, total: told.append((done, total))
    )
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert len(set(drawing.asked)) == 3
    found = rows(tmp_path)
    assert [(row["question_id"], row["sample"]) for row in found] == [
        (f"q{q}", s) for q in range(5) for s in range(2)
    ]
    assert [row["batch"] for row in found] == [0] * 4 + [1] * 4 + [2] * 2
    assert {row["outcome"] for row in found} <= {"correct", "wrong"}
    assert all(row["answer"] == row["vote"] for row in found)
    assert found[1]["tag/kind"] == ["even"]
    share = sum(row["correct"] for row in found) / 10
    assert summary["metrics"]["mean@2"]["value"] == pytest.approx(share)
    assert list(summary["metrics"]) == ["mean@2", "pass@2", "majority@2"]
    assert summary["shares"] == {
        "in_format": 1.0,
        "cut": 0.5,
        "without_answer": 0.0,
        "undecided": 0.0,
    }
    assert {tag: row["questions"] for tag, row in summary["by_tag"]["kind"].items()} == {
        "even": 3,
        "odd": 2,
    }
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert summary_table(summary).row_count == 7


def test_levels_are_sorted_as_numbers(tmp_path: Path) -> None:
    base = evaluation(tmp_path, questions=3)
    tagged = [
        replace(question, tags={"level": (level,)})
        for question, level in zip(base.questions, ("10", "9", "hard"), strict=True)
    ]
    summary = replace(base, questions=tagged).execute(same_engine(Drawing()))
    assert list(summary["by_tag"]["level"]) == ["9", "10", "hard"]


def test_a_crash_loses_one_batch_and_going_on_gives_the_same(tmp_path: Path) -> None:
    whole = evaluation(tmp_path / "whole").execute(same_engine(Drawing()))
    broken = evaluation(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        broken.execute(same_engine(Drawing(dies_at=2)))
    assert len(rows(tmp_path / "broken")) == 8
    assert not broken.folder.summary_path.exists()
    second = Drawing()
    summary = evaluation(tmp_path / "broken").execute(same_engine(second))
    assert len(second.asked) == 1
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert {**summary, "seconds": 0} == {**whole, "seconds": 0}


def test_a_shard_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    first = evaluation(tmp_path)
    first.execute(same_engine(Drawing()))
    expected = rows(tmp_path)
    shard = first.folder.shard(1)
    shard.write_bytes(shard.read_bytes()[:-9])
    leftover = shard.with_name(first.folder.shard(2).name + ".tmp")
    leftover.write_bytes(b"half")
    again = Drawing()
    evaluation(tmp_path).execute(same_engine(again))
    assert len(again.asked) == 1
    assert rows(tmp_path) == expected


def test_nothing_is_loaded_where_everything_is_there(tmp_path: Path) -> None:
    evaluation(tmp_path).execute(same_engine(Drawing()))

    def refuse() -> Engine:
        raise AssertionError("the model is not needed")

    assert evaluation(tmp_path).execute(refuse)["questions"] == 5


def test_other_settings_are_named(tmp_path: Path) -> None:
    evaluation(tmp_path).execute(same_engine(Drawing()))
    assert evaluation(tmp_path).resume_problems() == []
    problems = evaluation(tmp_path, seed=3, questions=4, model="n").resume_problems()
    assert [problem.split(" = ")[0] for problem in problems] == [
        "fingerprint",
        "model",
        "questions",
        "seed",
    ]
    assert "model = 'n', it was started with 'm'" in problems


def test_the_folder_is_named_after_what_it_holds() -> None:
    greedy, warm = Sampling(0.0), Sampling(0.6, 0.95)
    assert default_folder("runs/a", "geometry3k", greedy, 1) == Path(
        "evaluations/a-geometry3k-greedy"
    )
    assert default_folder("org/m", "x/test.jsonl", warm, 4).name == "m-test.jsonl-t0.6x4"


WORDS = ("evaluate", "toy", "--dataset", "toy", "--samples", "4", "--sampling", "training")
SIZE = ("--limit", "32", "--batch_size", "8")


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*WORDS, *SIZE, "--output_dir", str(folder), *words])


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_to_the_same_result(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code = "import torch; torch.set_num_threads(1); from fastrl.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *WORDS, *SIZE, "--output_dir", str(killed)],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while len(list((killed / "predictions").glob("*.parquet"))) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    written = {path: path.stat().st_mtime_ns for path in killed.rglob("*.parquet")}
    assert 3 <= len(written) < 16
    assert not (killed / "summary.json").exists()
    refused = run(killed)
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    done = run(killed, "--resume")
    assert done.exit_code == 0, done.stderr
    assert "mean@4" in done.output
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert run(whole).exit_code == 0
    assert rows(killed) == rows(whole)
    summaries = [json.loads((f / "summary.json").read_text()) for f in (killed, whole)]
    one, other = ({**summary, "seconds": 0} for summary in summaries)
    assert one == other
