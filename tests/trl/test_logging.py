"""TRL's completions table shows the full group, with what became of every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from test_resuming import ADAPTIVE
from tiny_runs import make_trainer, text_rows, token_reward


def tables(out: str) -> dict[int, pd.DataFrame]:
    """The completions tables by step."""
    return {
        int(path.stem.rsplit("_", 1)[1]): pd.read_parquet(path)
        for path in sorted((Path(out) / "completions").glob("*.parquet"))
    }


def test_the_table_is_the_full_group(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, log_completions=True, similarity_threshold=0.0)
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    found = tables(out)
    assert found.keys() >= {1, 2, 3, 4}
    for step, record in ((1, records[0]), (2, records[0]), (3, records[1])):
        assert found[step]["completion"].tolist() == record.completions
        assert found[step]["kept"].tolist() == record.kept_N.tolist()
        assert found[step]["reason"].tolist() == record.selection.reason.tolist()
        assert found[step]["advantage"].tolist() == record.advantages_N.tolist()
        assert 0 < found[step]["kept"].sum() < 16


def test_rows_of_an_evaluation_are_neither_kept_nor_dropped(text_model: str, out: str) -> None:
    trainer = make_trainer(
        text_model,
        out,
        log_completions=True,
        eval_dataset=text_rows(1),
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
        max_steps=4,
    )
    trainer.train()
    found = tables(out)
    # The evaluation after step 1 wrote the table of step 1 again, its rows last.
    assert len(found[1]) == 16
    assert found[1]["kept"].isna().tolist() == [False] * 12 + [True] * 4
    assert found[1]["reason"].isna().tolist() == [False] * 12 + [True] * 4
    # The next generation batch starts a table of its own.
    assert found[3]["kept"].isna().tolist() == [False] * 12 + [True] * 4
    assert found[3]["completion"].iloc[0] not in found[1]["completion"].iloc[:12].tolist()


def test_fewer_rollouts_leave_no_rows_of_the_batch_before(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, log_completions=True, **ADAPTIVE)
    records: list[Any] = []
    trainer.rollout_observers.append(records.append)
    trainer.train()
    smaller = [record for record in records if record.num_generations < 4]
    assert smaller
    found = tables(out)
    for record in smaller:
        table = found[record.step + 1]
        assert table["completion"].tolist() == record.completions
        assert table["kept"].tolist() == record.kept_N.tolist()


def test_columns_of_the_user_stay(text_model: str, out: str) -> None:
    def reward(completion_ids: Any, log_extra: Any, log_metric: Any, **kwargs: Any) -> list[float]:
        log_extra("length", [len(ids) for ids in completion_ids])
        log_metric("mine", 3.0)
        return token_reward(completion_ids)

    trainer = make_trainer(text_model, out, log_completions=True, reward=reward, max_steps=2)
    trainer.train()
    assert len(tables(out)[1]["length"]) == 16
    assert trainer.recorder.values("mine") == [3.0]
