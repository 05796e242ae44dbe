r"""The two rewards of the published runs: a correct boxed answer, and the format.

With the default weights a completion earns 1 when its last \boxed{} equals the gold answer and 0.5
when it is one <thinking> block followed by text with one box. The functions at the end of this
module have these weights; `GeometryReward` has any others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastrl.geometry.grading import GoldError, Grader, Outcome, default_grader
from fastrl.geometry.grading.boxes import count_boxes, last_box

ACCURACY_WEIGHT = 1.0
FORMAT_WEIGHT = 0.5
TIMEOUTS_METRIC = "fastrl/grading_timeouts"
ERRORS_METRIC = "fastrl/grading_errors"
_TAG = re.compile(r"<\s*(?:/\s*)?think(?:ing)?\s*>", re.IGNORECASE)
_OPEN, _CLOSE = "<thinking>", "</thinking>"


def completion_text(completion: Any) -> str:
    """The text of a completion as a host hands it to a reward function.

    Args:
        completion: a string, or chat messages, of which the last one counts; its content may be
            text, a list of parts, or nothing.
    """
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else None
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def has_format(completion: str) -> bool:
    r"""Whether it is exactly one <thinking> block with something in it, then text with one box.

    The box may follow </thinking> directly. Nothing but space may stand before the block, and no
    other such tag anywhere, however it is spelt (<think>, <Thinking >);
    "something" has at least one letter or digit. Boxes inside the thought do not count.

    Args:
        completion: the policy's text.
    """
    if completion.count(_OPEN) != 1 or completion.count(_CLOSE) != 1:
        return False
    if len(_TAG.findall(completion)) != 2:
        return False
    before, _, rest = completion.partition(_OPEN)
    thought, closed, reply = rest.partition(_CLOSE)
    if before.strip() or not closed or not any(character.isalnum() for character in thought):
        return False
    return count_boxes(reply) == 1 and last_box(reply) is not None


class GeometryReward:
    """Accuracy and format rewards with weights of one's own.

    For TRL: `reward_funcs=[reward.accuracy_reward, reward.format_reward]`, with a data set column
    `answer`. For verl: `compute_scores` in a file that `custom_reward_function.path` names.

    Args:
        accuracy_weight: the reward for a correct answer.
        format_weight: the reward for the format.
        grader: what compares answers; by default the process's own, which is exact.
    """

    def __init__(
        self,
        *,
        accuracy_weight: float = ACCURACY_WEIGHT,
        format_weight: float = FORMAT_WEIGHT,
        grader: Grader | None = None,
    ) -> None:
        self.accuracy_weight = accuracy_weight
        self.format_weight = format_weight
        self._grader = grader

    @property
    def grader(self) -> Grader:
        """What compares answers; its `counts` tell of checks that ended undecided."""
        return self._grader or default_grader()

    def accuracy_reward(
        self, completions: Sequence[Any], answer: Sequence[str], **kwargs: Any
    ) -> list[float]:
        """The accuracy weight for each correct completion, else 0. A TRL reward function.

        Checks that ended undecided (killed at the time limit, or failed) earn 0 and are logged by
        TRL as `fastrl/grading_timeouts` and `fastrl/grading_errors`, summed over the call.

        Args:
            completions: texts or chat messages.
            answer: the gold answer of each.
            **kwargs: whatever else the host passes; TRL's `log_metric` is used.

        Raises:
            GoldError: a gold answer is missing or unreadable; the message names the row.
        """
        outcomes = []
        for row, (completion, gold) in enumerate(zip(completions, answer, strict=True)):
            try:
                outcomes.append(self.grader.grade(completion_text(completion), gold))
            except GoldError as error:
                raise GoldError(f"row {row} of this batch: {error}") from error
        if log_metric := kwargs.get("log_metric"):
            log_metric(TIMEOUTS_METRIC, float(outcomes.count(Outcome.TIMEOUT)))
            log_metric(ERRORS_METRIC, float(outcomes.count(Outcome.ERROR)))
        return [self.accuracy_weight * (outcome is Outcome.CORRECT) for outcome in outcomes]

    def format_reward(self, completions: Sequence[Any], **kwargs: Any) -> list[float]:
        """The format weight for each completion in format, else 0. A TRL reward function.

        Args:
            completions: texts or chat messages.
            **kwargs: whatever else the host passes; unused.
        """
        return [self.format_weight * has_format(completion_text(item)) for item in completions]

    def compute_score(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
    ) -> float:
        """The summed reward of one completion, with verl's arguments: see `compute_scores`."""
        return self.compute_scores(data_source, solution_str, ground_truth, extra_info)["score"]

    def compute_scores(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
    ) -> dict[str, float]:
        """The reward of one completion and its parts, with verl's arguments.

        Args:
            data_source: the data set's name; named in errors.
            solution_str: the completion.
            ground_truth: the gold answer.
            extra_info: verl's extra columns; an `index` is named in errors.

        Returns:
            `score`, the summed reward; `acc` and `format`, 1 or 0 each, whatever their weights;
            `undecided`, 1 where the check was killed at its time limit or failed, so that `acc`
            is 0 without a verdict.

        Raises:
            GoldError: the gold answer is missing or unreadable; the message names the row.
        """
        try:
            outcome = self.grader.grade(solution_str, ground_truth)
        except GoldError as error:
            row = (extra_info or {}).get("index", "unknown")
            raise GoldError(f"{data_source}, row {row}: {error}") from error
        correct, formed = outcome is Outcome.CORRECT, has_format(solution_str)
        return {
            "score": self.accuracy_weight * correct + self.format_weight * formed,
            "acc": float(correct),
            "format": float(formed),
            "undecided": float(outcome in (Outcome.TIMEOUT, Outcome.ERROR)),
        }


def accuracy_reward(
    completions: Sequence[Any], answer: Sequence[str], **kwargs: Any
) -> list[float]:
    """1 for each correct completion, else 0: see `GeometryReward.accuracy_reward`."""
    return GeometryReward().accuracy_reward(completions, answer, **kwargs)


def format_reward(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """0.5 for each completion in format, else 0: see `GeometryReward.format_reward`."""
    return GeometryReward().format_reward(completions, **kwargs)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    accuracy_weight: float = ACCURACY_WEIGHT,
    format_weight: float = FORMAT_WEIGHT,
) -> float:
    """The summed reward of one completion, for verl's `custom_reward_function`.

    Args:
        data_source: the data set's name; named in errors.
        solution_str: the completion.
        ground_truth: the gold answer.
        extra_info: verl's extra columns; an `index` is named in errors.
        accuracy_weight: the reward for a correct answer (verl: `reward_kwargs`).
        format_weight: the reward for the format (verl: `reward_kwargs`).

    Raises:
        GoldError: the gold answer is missing or unreadable; the message names the row.
    """
    reward = GeometryReward(accuracy_weight=accuracy_weight, format_weight=format_weight)
    return reward.compute_score(data_source, solution_str, ground_truth, extra_info)


def compute_scores(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    accuracy_weight: float = ACCURACY_WEIGHT,
    format_weight: float = FORMAT_WEIGHT,
) -> dict[str, float]:
    """As `compute_score`, with the parts: `score` (the weighted sum), `acc`, `format`, `undecided`.

    verl reports `acc` when it validates, and can filter groups by it
    (`algorithm.filter_groups.metric=acc`).
    """
    reward = GeometryReward(accuracy_weight=accuracy_weight, format_weight=format_weight)
    return reward.compute_scores(data_source, solution_str, ground_truth, extra_info)
