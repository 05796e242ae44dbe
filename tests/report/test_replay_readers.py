"""Readers of rollout logs: what they accept, and what they say of the rest."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_files import write_lines
from report_runs import rollout, write_rollouts

from fastrl.report.formats import ReadOptions
from fastrl.report.logged import LoggedRollouts
from fastrl.report.reading import read_logs
from fastrl.report.rows import read_rows
from fastrl.report.tokens import tokenise

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def trl_rows(step: int, prompts: str, size: int = 2, start: float = 0.0) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "prompt": [{"role": "user", "content": prompt}],
            "completion": [{"role": "assistant", "content": f"{prompt} {i} {start}"}],
            "accuracy": float(i % 2),
            "format": 0.5 if i else None,
            "note": "text",
            "advantage": 0.5 - i + start,
        }
        for prompt in prompts
        for i in range(size)
    ]


def verl_rows(prompts: str, step: int = 1) -> list[dict[str, Any]]:
    return [
        {"input": p, "output": f"{p}{i}", "score": float(i % 2), "step": step, "gts": "7"}
        for i, p in enumerate(prompts)
    ]


def groups_of(logged: LoggedRollouts) -> list[int]:
    return logged.group_N.tolist()


def test_trl_completions(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "completions"
    write_table(folder / "completions_00001.parquet", trl_rows(1, "ab"))
    write_table(folder / "completions_00005.parquet", trl_rows(5, "ba", start=1.0))
    logged = read_logs([tmp_path / "out"])
    assert logged.formats == ("TRL completions",)
    assert groups_of(logged) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert logged.rollouts[1].prompt == "a"
    assert logged.rollouts[1].completion == "a 1 0.0"
    assert logged.rewards_N[:2].tolist() == [0.0, 1.5]  # a null part does not apply
    assert logged.advantages_N[:2].tolist() == [0.5, -0.5]
    assert logged.are_advantages_logged
    assert "Rewards read from: accuracy, format." in logged.notes


def test_trl_writes_a_batch_again_at_every_log(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        path = tmp_path / f"completions_{step:05d}.parquet"
        write_table(path, trl_rows(step, "ab", start=float(step > 2)))
    logged = read_logs([tmp_path])
    assert len(logged.rollouts) == 8
    assert any("1 file(s) repeat" in note for note in logged.notes)


def test_one_prompt_twice_is_two_groups(tmp_path: Path) -> None:
    path = write_table(tmp_path / "c.parquet", trl_rows(1, "aab", size=4))
    assert groups_of(read_logs([path])) == [0] * 4 + [1] * 4 + [2] * 4
    halves = read_logs([path], ReadOptions(num_generations=2))
    assert halves.sizes_G.tolist() == [2] * 6
    with pytest.raises(ValueError, match=r"row 1: this prompt has 8 rows .* group size 3"):
        read_logs([path], ReadOptions(num_generations=3))


def test_reward_columns_can_be_named_and_weighted(tmp_path: Path) -> None:
    path = write_table(tmp_path / "c.parquet", trl_rows(1, "ab"))
    logged = read_logs([path], ReadOptions(rewards={"accuracy": 2.0}))
    assert logged.rewards_N.tolist() == [0.0, 2.0, 0.0, 2.0]
    with pytest.raises(ValueError, match=r"no field 'style'.*accuracy.*--fields style="):
        read_logs([path], ReadOptions(rewards={"style": 1.0}))


def test_incomplete_groups_are_an_error(tmp_path: Path) -> None:
    path = write_table(tmp_path / "c.parquet", trl_rows(1, "ab", size=3)[:-1])
    with pytest.raises(ValueError, match=r"step 1 have 2, 3 rows each.*--num_generations"):
        read_logs([path])


def test_verl_dump_in_any_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "10.jsonl", verl_rows("abba", step=10))
    write_lines(tmp_path / "9.jsonl", verl_rows("aabb", step=9))
    logged = read_logs([tmp_path])
    assert logged.formats == ("verl rollout dump",)
    assert [r.step for r in logged.rollouts[::4]] == [9, 10]
    assert logged.sizes_G.tolist() == [2, 2, 2, 2]
    assert not logged.are_advantages_logged
    assert np.allclose(np.abs(logged.advantages_N), 0.5 / (0.5**0.5 + 1e-4))


def test_half_written_verl_dump(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "1.jsonl", verl_rows("aabbcc"), end="")
    path.write_text(path.read_text()[:-5])
    logged = read_logs([path])
    assert logged.sizes_G.tolist() == [2, 2]
    told = " ".join(logged.notes)
    assert f"{path}, line 6: half-written last line, skipped." in told
    assert "cut-off end left incomplete were left out" in told


def test_verl_rows_without_a_field(tmp_path: Path) -> None:
    rows = verl_rows("aabb")
    del rows[2]["output"]
    path = write_lines(tmp_path / "1.jsonl", rows)
    with pytest.raises(ValueError, match="line 3: no field 'output'; it has gts, input"):
        read_logs([path])


def test_our_own_rollouts(tmp_path: Path) -> None:
    row = {"step": 4, "generation_step": 1, "group": 0, "row": 0, "prompt": "p", "kept": True}
    row |= {"completion": "c", "reward": 1.0, "advantage": 0.25, "reason": "seed"}
    for step in (0, 1):
        path = tmp_path / "run" / "rollouts" / f"generation_{step:06d}.parquet"
        write_table(path, [{**row, "generation_step": step}] * 3)
    logged = read_logs([tmp_path / "run"])
    assert logged.formats == ("FastRL rollouts",)
    assert logged.sizes_G.tolist() == [3, 3]
    assert logged.advantages_N.tolist() == [0.25] * 6


def test_pictures_of_our_own_rollouts_are_not_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_rollouts(tmp_path, 0, [rollout(row, picture=b"png") for row in range(4)])
    (file,) = (tmp_path / "rollouts").iterdir()
    rows, _ = read_rows(file)
    assert len(rows) == 4
    assert "picture" not in rows[0].values


def test_generic_rows(tmp_path: Path) -> None:
    rows = [
        {"group": "x", "rewards": {"right": 1, "form": 0.5}, "token_ids": [3, 4], "advantage": 1},
        {"group": 7, "reward": 0, "token_ids": [], "advantage": -1, "step": 3},
    ]
    logged = read_logs([write_lines(tmp_path / "g.jsonl", rows)])
    assert logged.rewards_N.tolist() == [1.5, 0.0]
    assert logged.advantages_N.tolist() == [1.0, -1.0]
    tokens = tokenise(logged)
    assert tokens.source == "logged token ids"
    assert [row.tolist() for row in tokens.rows] == [[3, 4], []]


def test_generic_group_a_row_with_other_names(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl.gz"
    row = {"question": "q", "responses": ["one two", "one, two"], "score": [0, 1]}
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    fields = {"completions": "responses", "rewards": "score"}
    logged = read_logs([path], ReadOptions(fields=fields))
    assert groups_of(logged) == [0, 0]
    tokens = tokenise(logged)
    assert tokens.source == "words and punctuation marks"
    assert [row.tolist() for row in tokens.rows] == [[0, 1], [0, 2, 1]]
    with pytest.raises(ValueError, match="no field 'answers'; it has question, responses, score"):
        read_logs([path], ReadOptions(fields={"completions": "answers"}))


def test_lists_of_different_lengths(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", [{"completions": ["a", "b"], "rewards": [1]}])
    with pytest.raises(ValueError, match=r"line 1: .*completions 2, rewards 1"):
        read_logs([path])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"group": 1, "completion": "x"}], "line 1: no field 'reward'.*--fields reward="),
        ([{"reward": 1, "completion": "x"}], "line 1: no field 'group', and no 'prompt'"),
        ([{"group": 1, "reward": "high", "completion": "x"}], "reward = 'high': expected a number"),
        ([{"group": 1, "reward": 1, "token_ids": [0.5]}], "token_ids: expected a list of integers"),
        ([{"group": 1, "reward": 1, "step": "last"}], "step = 'last': expected a whole number"),
        (
            [{"group": 1, "reward": 1}, {"group": 1, "reward": 1, "step": float("nan")}],
            "line 2: step = nan: expected a whole number",
        ),
        (
            [{"group": 1, "reward": 1, "step": float("-inf")}],
            "line 1: step = -inf: expected a whole number",
        ),
        (
            [{"input": "q", "output": "a", "score": 1, "uid": ["x", "y"]}],
            r"line 1: uid = \['x', 'y'\]: expected text or a number",
        ),
        (
            [{"generation_step": 0, "group": [], "completion": "a", "advantage": 0, "reward": 1}],
            r"line 1: group = \[\]: expected text or a number",
        ),
        ([[1, 2]], "line 1: a JSON list; expected an object"),
        (
            [{"group": 1, "reward": 1, "advantage": 0}, {"group": 1, "reward": 1}],
            "line 2: no advantage, but other rows have one",
        ),
        ([{"group": 1, "reward": 1, "advantage": float("inf")}], "line 1: advantage is inf"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: list[Any], told: str) -> None:
    path = write_lines(tmp_path / "bad.jsonl", rows)
    with pytest.raises(ValueError, match=told) as caught:
        read_logs([path])
    assert str(path) in str(caught.value)


def test_text_is_needed_where_there_are_no_ids(tmp_path: Path) -> None:
    logged = read_logs([write_lines(tmp_path / "g.jsonl", [{"group": 1, "reward": 1}])])
    with pytest.raises(ValueError, match="line 1: no completion text"):
        tokenise(logged)


def test_nan_rewards(tmp_path: Path) -> None:
    rows = [{"group": g, "reward": r, "completion": "x"} for g in "ab" for r in (1.0, 0.0)]
    rows[3]["reward"] = float("nan")
    path = write_lines(tmp_path / "g.jsonl", rows)
    with pytest.raises(ValueError, match=r"line 4: reward is nan .*--drop_nan"):
        read_logs([path])
    logged = read_logs([path], ReadOptions(drop_nan=True))
    assert logged.rewards_N.tolist() == [1.0, 0.0]
    assert "1 group(s) with a NaN reward were left out." in logged.notes


def test_named_groups_of_several_sizes(tmp_path: Path) -> None:
    rows = [{"group": g, "reward": 1, "completion": "x"} for g in (1, 1, 1, 2, 2)]
    path = write_lines(tmp_path / "g.jsonl", rows)
    assert "Group sizes differ: 2 to 3 rollouts." in read_logs([path]).notes
    with pytest.raises(ValueError, match=r"line 4: its group has 2 rollouts, not .* 3"):
        read_logs([path], ReadOptions(num_generations=3))


def test_groups_that_were_logged_twice_are_told(tmp_path: Path) -> None:
    rows = [
        {"group": group, "prompt": prompt, "reward": i, "completion": f"{text} {i}"}
        for group, prompt, text in (
            ("a", "p", "x"),
            ("b", "p", "y"),  # other words
            ("c", "q", "x"),  # another question
            ("d", "p", "x"),  # a again
        )
        for i in range(2)
    ]
    told = "1 of 4 groups repeat an earlier one word for word, rewards included"
    assert any(told in note for note in read_logs([write_lines(tmp_path / "a.jsonl", rows)]).notes)
    fresh = write_lines(tmp_path / "b.jsonl", rows[:-2])
    assert not any("repeat" in note for note in read_logs([fresh]).notes)
    # Answers that are all alike come up again by chance.
    alike = [{"group": g, "reward": 1, "completion": "yes"} for g in "aabb"]
    path = write_lines(tmp_path / "c.jsonl", alike)
    assert not any("repeat" in note for note in read_logs([path]).notes)


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps({"group": 1, "reward": 1, "completion": "x"}).encode())
    path = tmp_path / "rollouts.jsonl.gz"
    # Behind the ten bytes of the header: the stream itself makes no sense.
    for content in (whole[:10] + b"\xff" * 20, whole[:-12], b"no gzip at all"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"rollouts\.jsonl\.gz: not a whole gzip file \("):
            read_logs([path])


def test_broken_files_are_named(tmp_path: Path) -> None:
    middle = tmp_path / "middle.jsonl"
    middle.write_text('{"group": 1, "reward": 1}\n{"group": \n{"group": 1, "reward": 1}\n')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_logs([middle])
    cut = write_table(tmp_path / "cut.parquet", trl_rows(1, "ab"))
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut\.parquet: not a whole Parquet file"):
        read_logs([cut])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match="holds no rollouts"):
        read_logs([tmp_path / "empty.jsonl"])
    with pytest.raises(ValueError, match="no such file"):
        read_logs([tmp_path / "absent.jsonl"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"unknown type '\.txt'"):
        read_logs([tmp_path / "notes.txt"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="a folder without rollout logs"):
        read_logs([tmp_path / "folder"])
