"""Grade answers: arithmetic in this process, symbolic checks in workers with a time limit."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import weakref
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from time import monotonic
from types import TracebackType

from .answers import Gold, Value, compare_values, read_gold, read_letter, read_values
from .boxes import extract_answer
from .expressions import Number, UnreadableError, to_latex
from .pool import WorkerError, WorkerPool, WorkerStartError

SYMBOLIC_WORKER = Path(__file__).with_name("symbolic_worker.py")
# How long a check that ended undecided is not made again: a group's repetitions come within it,
# and a machine that was merely busy gets another chance.
UNDECIDED_SECONDS = 60.0
MAX_UNDECIDED = 1024
_PLAIN_NUMBER = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?", re.ASCII)

logger = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of one grading."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """There is no box, or nothing in it."""
    TIMEOUT = "timeout"
    """The symbolic check was killed at its time limit: undecided, told as not correct."""
    ERROR = "error"
    """The symbolic check failed: undecided, told as not correct."""


class _UndecidedError(Exception):
    """A symbolic check was killed or failed: raised, so that no cache keeps it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


@dataclass(frozen=True)
class GradingCounts:
    """What a grader has done in this process so far."""

    graded: int = 0
    symbolic: int = 0
    """Gradings that arithmetic could not decide."""
    timeouts: int = 0
    errors: int = 0


class Grader:
    """Compares answers with gold answers, from any thread and in forked processes.

    Close it, or use it in a `with` statement, to end its workers before the program does.

    Args:
        tolerance: relative difference at which a number still counts as equal; 0 is exact.
        time_limit: seconds that one symbolic check may take before its process is killed.
        max_workers: the most processes for symbolic checks; they start when first needed.
        worker: the program that they run (see `pool.WorkerPool`).

    Raises:
        ValueError: a negative tolerance, or no worker or time at all.
    """

    def __init__(
        self,
        *,
        tolerance: float = 0.0,
        time_limit: float = 5.0,
        max_workers: int = 2,
        worker: Path = SYMBOLIC_WORKER,
    ) -> None:
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be at least 0 and below 1, got {tolerance}")
        self._tolerance = tolerance
        self._pool = WorkerPool(worker, size=max_workers, time_limit=time_limit)
        self._lock = threading.Lock()
        self._counts = GradingCounts()
        after_fork = weakref.WeakMethod(self._start_anew)
        os.register_at_fork(after_in_child=lambda: (method := after_fork()) and method())
        # The rollouts of a group repeat one another; a hang must not be paid for eight times.
        self._ask_once = lru_cache(maxsize=16384)(self._ask)
        self._undecided: dict[tuple[str, str], tuple[Outcome, float]] = {}

    def _start_anew(self) -> None:
        # Another thread may have held the lock at the fork, and does not exist in the child.
        self._lock = threading.Lock()
        self._counts = GradingCounts()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    @property
    def counts(self) -> GradingCounts:
        """What this grader has done in this process so far."""
        return self._counts

    @property
    def timeouts(self) -> int:
        """How many gradings in this process ended at the time limit, undecided."""
        return self._counts.timeouts

    def worker_ids(self) -> list[int]:
        """The process ids of the workers alive."""
        return self._pool.process_ids()

    def grade(self, completion: str, gold: str) -> Outcome:
        r"""Grade the last \boxed{} of a completion.

        Args:
            completion: the policy's text, anything at all.
            gold: the right answer.

        Raises:
            GoldError: the gold answer is missing or unreadable; never for the completion's sake.
        """
        answer = extract_answer(completion)
        if answer is not None:
            return self.compare(answer, gold)
        read_gold(gold)
        return self._count(Outcome.NO_ANSWER)

    def compare(self, answer: str, gold: str) -> Outcome:
        """Compare an answer with a gold answer.

        Args:
            answer: the content of a box.
            gold: the right answer.

        Raises:
            GoldError: the gold answer is missing or unreadable.
        """
        wanted = read_gold(gold)
        if wanted.value is None:
            return self._count(_verdict(read_letter(answer) == wanted.letter))
        outcome = self._plain_number(answer, wanted.value)
        if outcome is None:
            outcome = self._by_reading(answer, wanted)
        return self._count(outcome)

    def is_correct(self, completion: str, gold: str) -> bool:
        """Whether `grade` says CORRECT."""
        return self.grade(completion, gold) is Outcome.CORRECT

    def equivalent(self, answer: str, gold: str) -> bool:
        """Whether `compare` says CORRECT."""
        return self.compare(answer, gold) is Outcome.CORRECT

    def _plain_number(self, answer: str, gold: Value) -> Outcome | None:
        answer = answer.strip()
        if not _PLAIN_NUMBER.fullmatch(answer):
            return None
        number = Number(Fraction(answer))
        return self._one_value(Value((number,), (float(number.value),)), gold)

    def _by_reading(self, answer: str, gold: Gold) -> Outcome:
        assert gold.value is not None
        try:
            values = read_values(answer)
        except UnreadableError:
            return Outcome.WRONG
        for value in values:
            outcome = self._one_value(value, gold.value)
            if outcome is not Outcome.CORRECT:
                return outcome
        return Outcome.CORRECT

    def _one_value(self, value: Value, gold: Value) -> Outcome:
        equal = compare_values(value, gold)
        if equal is not True and self._tolerance and len(value.floats) == len(gold.floats):
            return _verdict(all(map(self._is_close, value.floats, gold.floats)))
        if equal is not None:
            return _verdict(equal)
        self._add(symbolic=1)
        for node, gold_node in zip(value.nodes, gold.nodes, strict=True):
            if node != gold_node:
                outcome = self._check(to_latex(node), to_latex(gold_node))
                if outcome is not Outcome.CORRECT:
                    return outcome
        return Outcome.CORRECT

    def _is_close(self, value: float, gold: float) -> bool:
        return self._tolerance > 0 and math.isclose(
            value, gold, rel_tol=self._tolerance, abs_tol=self._tolerance * 1e-6
        )

    def _check(self, answer: str, gold: str) -> Outcome:
        """The verdict of the symbolic check, kept; an undecided one for UNDECIDED_SECONDS."""
        pair = (answer, gold)
        outcome, until = self._undecided.get(pair, (Outcome.TIMEOUT, 0.0))
        if monotonic() < until:
            return outcome
        try:
            return self._ask_once(answer, gold)
        except _UndecidedError as error:
            with self._lock:
                self._undecided.pop(pair, None)  # the oldest stand first
                while len(self._undecided) >= MAX_UNDECIDED:
                    del self._undecided[next(iter(self._undecided))]
                self._undecided[pair] = (error.outcome, monotonic() + UNDECIDED_SECONDS)
            return error.outcome

    def _ask(self, answer: str, gold: str) -> Outcome:
        try:
            reply = self._pool.ask(answer, gold)
        except TimeoutError as error:
            logger.warning("symbolic check killed at its time limit: %.200s | %.200s", answer, gold)
            raise _UndecidedError(Outcome.TIMEOUT) from error
        except WorkerStartError:
            raise
        except WorkerError as error:
            reply = f"error: {error}"
        if reply.startswith("error"):
            logger.warning("symbolic check failed: %.200s | %.200s: %s", answer, gold, reply)
            raise _UndecidedError(Outcome.ERROR)
        return _verdict(reply == "equal")

    def _count(self, outcome: Outcome) -> Outcome:
        self._add(
            graded=1,
            timeouts=outcome is Outcome.TIMEOUT,
            errors=outcome is Outcome.ERROR,
        )
        return outcome

    def _add(self, graded: int = 0, symbolic: int = 0, timeouts: int = 0, errors: int = 0) -> None:
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts,
                graded=counts.graded + graded,
                symbolic=counts.symbolic + symbolic,
                timeouts=counts.timeouts + timeouts,
                errors=counts.errors + errors,
            )


def _verdict(equal: bool) -> Outcome:
    return Outcome.CORRECT if equal else Outcome.WRONG


@cache
def _shared_grader(tolerance: float) -> Grader:
    return Grader(tolerance=tolerance)


def default_grader(tolerance: float = 0.0) -> Grader:
    """The grader of this process behind the plain functions, one for each tolerance.

    Args:
        tolerance: as in `Grader`.
    """
    return _shared_grader(float(tolerance))


def equivalent(answer: str, gold: str, *, tolerance: float = 0.0) -> bool:
    r"""Whether an answer equals the gold answer.

    Args:
        answer: the content of a box, say "8\sqrt{3} cm".
        gold: the right answer: a value, or the letter of a choice.
        tolerance: relative difference at which a number still counts as equal; 0 is exact.

    Returns:
        False too where the symbolic check was killed or failed: `default_grader(tolerance).counts`
        tells how often.

    Raises:
        GoldError: the gold answer is missing or unreadable.
    """
    return default_grader(tolerance).equivalent(answer, gold)


def is_correct(completion: str, gold: str, *, tolerance: float = 0.0) -> bool:
    r"""Whether the last \boxed{} of a completion equals the gold answer.

    Args:
        completion: the policy's text, anything at all.
        gold: the right answer: a value, or the letter of a choice.
        tolerance: as in `equivalent`.

    Raises:
        GoldError: the gold answer is missing or unreadable.
    """
    return default_grader(tolerance).is_correct(completion, gold)
