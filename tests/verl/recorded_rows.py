"""What a training's records say row by row, and what should be there."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_runs import Run
from transformers import AutoTokenizer


def groups_of_steps(run: Run) -> Iterator[dict[int, list[float]]]:
    """Step by step the rewards of every prompt, of all rollouts that were graded."""
    told = run.rewards
    for metrics in run.metrics:
        count = int(metrics["fastrl/generated"])
        groups = defaultdict(list)
        for line in told[:count]:
            groups[line["index"]].append(line["score"])
        told = told[count:]
        yield groups
    assert told == []


def full_group_advantages(scores: list[float]) -> list[float]:
    values = np.array(scores)
    return list((values - values.mean()) / (values.std(ddof=1) + 1e-6))


Row = tuple[int, ...]


def advantages_of_groups(run: Run, assets: Path) -> dict[tuple[int, Row], dict[Row, float]]:
    """(step, prompt) -> answer -> its advantage among all rollouts of that prompt."""
    tokenizer = AutoTokenizer.from_pretrained(assets / "model")
    score_of = {line["answer"]: line["score"] for line in run.rewards}
    answers: dict[tuple[int, Row], dict[int, Row]] = defaultdict(dict)
    for told in run.rollouts:
        group = answers[told["step"], tuple(told["prompt"])]
        group[told["session"]] = tuple(told["answer"])
    wanted = {}
    for name, group in answers.items():
        texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in group.values()]
        values = full_group_advantages([score_of[text] for text in texts])
        wanted[name] = dict(zip(group.values(), values, strict=True))
    return wanted


def check_advantages_row_by_row(
    wanted: dict[tuple[int, Row], dict[Row, float]], step: int, passes: list[dict[str, Any]]
) -> None:
    """Each row that a step trains on has its own full group's advantage, at every token."""
    found = defaultdict(set)
    for told in passes:
        for prompt, answer, advantages, mask in zip(
            told["prompts"], told["responses"], told["advantages"], told["masks"], strict=True
        ):
            if any(mask):
                value = wanted[step, tuple(prompt)][tuple(answer)]
                assert advantages == pytest.approx([value] * len(mask), abs=1e-5)
                found[tuple(prompt)].add(round(value, 4))
    assert len(found) == 4
    for prompt, values in found.items():
        # Every bucket of equal advantages has its seed there: nothing that was learnt is lost.
        assert values == {round(value, 4) for value in wanted[step, prompt].values()}


def rows_of(passes: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """The answers that went through passes; verl's padding rows, which nothing counts, aside."""
    return [
        tuple(answer)
        for told in passes
        for answer, mask in zip(told["responses"], told["masks"], strict=True)
        if any(mask)
    ]


def answer_lengths(run: Run) -> dict[tuple[int, Row, int], int]:
    """(step, prompt, session) -> tokens of the rollout."""
    return {
        (told["step"], tuple(told["prompt"]), told["session"]): len(told["answer"])
        for told in run.rollouts
    }
