"""The reward of the tests: how many digits an answer has, in three levels; every call is logged."""

import json
import os
from pathlib import Path

LOG = Path(os.environ["FASTRL_TEST_PASSES"]) / "rewards.jsonl"


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **ignored: object
) -> float:
    digits = sum(letter.isdigit() for letter in solution_str)
    score = 1.0 if digits >= 4 else 0.5 if digits == 3 else 0.0
    return logged(score, extra_info["index"], solution_str)


def alike_at_first(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **ignored: object
) -> float:
    """The same for every answer of a first step of 24; from then on as above."""
    if len(LOG.read_text().splitlines() if LOG.exists() else ()) < 24:
        return logged(1.0, extra_info["index"], solution_str)
    return compute_score(data_source, solution_str, ground_truth, extra_info)


def logged(score: float, index: int, answer: str) -> float:
    line = {"index": index, "answer": answer, "score": score}
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return score
