"""The reward of the tests: how many digits an answer has, in three levels; every call is logged."""

import json
import os
from pathlib import Path


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **ignored: object
) -> float:
    digits = sum(letter.isdigit() for letter in solution_str)
    score = 1.0 if digits >= 4 else 0.5 if digits == 3 else 0.0
    line = {"index": extra_info["index"], "answer": solution_str, "score": score}
    with (Path(os.environ["FASTRL_TEST_PASSES"]) / "rewards.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return score
