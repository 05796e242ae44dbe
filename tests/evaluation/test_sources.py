"""Data sets by name and by path."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fastrl.evaluation.questions import Question, conversation, fingerprint
from fastrl.evaluation.sources import SOURCES, load_questions, open_configuration
from fastrl.geometry.datasets import FORMAT_INSTRUCTION, KNOWN_DATASETS, DatasetError

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def write_rows(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_toy_draws_its_held_out_stream() -> None:
    questions = load_questions("toy", limit=3).questions
    assert [question.id for question in questions] == [f"held-out/0/{n}" for n in range(3)]
    assert all(question.tags["family"] for question in questions)
    assert questions[0].text != ""
    assert FORMAT_INSTRUCTION not in questions[0].text
    assert fingerprint(load_questions("toy", limit=3).questions) == fingerprint(questions)
    assert fingerprint(load_questions("toy", limit=3, seed=1).questions) != fingerprint(questions)


def test_geometry_data_of_ones_own(tmp_path: Path) -> None:
    Image.new("RGB", (30, 30)).save(tmp_path / "a.png")
    path = write_rows(
        tmp_path / "test.jsonl",
        [
            {"problem": "<image>How long?", "images": ["a.png"], "answer": "3", "level": 2},
            {"problem": "And now?", "images": ["a.png"], "answer": "4", "level": 1},
        ],
    )
    questions = load_questions(path).questions
    assert [question.id for question in questions] == ["0", "1"]
    assert questions[0].text == f"<image>How long?\n{FORMAT_INSTRUCTION}"
    assert questions[0].rule.boxed_only
    assert questions[0].tags == {"level": ("2",)}
    assert len(load_questions(path, limit=1).questions) == 1
    assert load_questions(path, instruction="Box it.").questions[1].text == "And now?\nBox it."
    assert load_questions(path, instruction="").questions[1].text == "And now?"


def test_the_test_file_of_geoqa(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (30, 30)).save(tmp_path / "images" / "0.png")
    row = {"image_path": "./images/0.png", "question": "Which angle?", "ground_truth": "140°"}
    path = write_rows(tmp_path / "geoqa_test_prompts.jsonl", [row])
    (question,) = load_questions("geoqa", path).questions
    assert question.answer == "140°"
    assert question.pictures[0].open().size == (30, 30)
    assert fingerprint(load_questions("geoqa8k", path).questions) == fingerprint([question])


def test_every_short_name_means_the_same_in_training() -> None:
    # geoqa8k_solutions has no split to evaluate on.
    trained_on = {n: p for n, p in KNOWN_DATASETS.items() if n != "geoqa8k_solutions"}
    assert trained_on.keys() == {"geometry3k", "geoqa", "geoqa8k"}
    assert {name: SOURCES[name].place for name in trained_on} == trained_on
    assert SOURCES["geoqa"] == SOURCES["geoqa8k"]


def test_unknown_names_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="expected one of toy, geometry3k, geoqa"):
        load_questions("geometry4k")
    with pytest.raises(DatasetError, match=r"row 0: .*'sure'"):
        load_questions(write_rows(tmp_path / "a.jsonl", [{"problem": "?", "answer": "sure"}]))


def test_published_sizes() -> None:
    sizes = {name: source.published for name, source in SOURCES.items()}
    assert sizes["geometry3k"] == 601
    assert sizes["geoqa"] == 754
    assert sizes["mathvista"] == 1000


def test_completions_may_be_as_long_as_in_training() -> None:
    lengths = {name: SOURCES[name].max_new_tokens for name in ("geometry3k", "geoqa", "geoqa8k")}
    assert lengths == {"geometry3k": 2048, "geoqa": 4096, "geoqa8k": 4096}


def test_pictures_go_where_the_words_say() -> None:
    a, b = object(), object()
    question = Question("1", "see <image> and <image>.", "3", pictures=(a, b))  # type: ignore[arg-type]
    assert conversation(question, "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see "},
                {"type": "image"},
                {"type": "text", "text": " and "},
                {"type": "image"},
                {"type": "text", "text": "."},
            ],
        },
    ]
    assert conversation(Question("1", "2 + 2?", "4"))[0]["content"] == "2 + 2?"


README = """---
configs:
- config_name: testmini
  data_files:
  - split: testmini
    path: testmini.parquet
- config_name: testmini_text_only
  data_files:
  - split: testmini_text_only
    path: testmini_text-only.parquet
---
"""


def test_one_of_several_configurations(tmp_path: Path) -> None:
    # MathVerse is published so: two configurations, none of them the default.
    (tmp_path / "README.md").write_text(README)
    for name, count in (("testmini", 3), ("testmini_text-only", 2)):
        pq.write_table(pa.table({"answer": ["A"] * count}), tmp_path / f"{name}.parquet")
    found = open_configuration(str(tmp_path), "testmini", "testmini")
    assert [row["answer"] for row in found] == ["A"] * 3
    with pytest.raises(DatasetError, match="configuration 'testmini', split 'test': cannot be had"):
        open_configuration(str(tmp_path), "testmini", "test")
    assert SOURCES["mathverse"].config == "testmini"


def test_variants_under_one_id_are_numbered(tmp_path: Path) -> None:
    rows = [
        {"id": name, "question": "?", "ground_truth": "3", "answer_type": "float"}
        for name in ("1", "2", "1", "2", "1")
    ]
    path = write_rows(tmp_path / "a.jsonl", rows)
    questions = load_questions("dynamath", path).questions
    assert [question.id for question in questions] == ["1", "2", "1/2", "2/2", "1/3"]
    assert [question.group for question in questions] == ["1", "2", "1", "2", "1"]


@pytest.mark.skipif(not DATA.exists(), reason="the shared data does not lie beside the project")
def test_real_geometry3k_test_problems() -> None:
    path = DATA / "geo3k_test_overlay" / "test.jsonl"
    questions, skipped = load_questions("geometry3k", str(path), skip_broken=True)
    assert len(questions) == 553
    assert len(skipped) == 1
    assert "('D','A','E','B')" in skipped[0]
    assert {len(question.pictures) for question in questions} == {1}
    assert questions[0].answer == "60"
