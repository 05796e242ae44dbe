"""Grade boxed answers to geometry questions, for training: hard to fool, bounded in time."""

from .answers import GoldError
from .boxes import extract_answer
from .grader import (
    Grader,
    GradingCounts,
    Outcome,
    default_grader,
    equivalent,
    is_correct,
)

__all__ = [
    "GoldError",
    "Grader",
    "GradingCounts",
    "Outcome",
    "default_grader",
    "equivalent",
    "extract_answer",
    "is_correct",
]
