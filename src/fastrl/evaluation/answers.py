r"""Find the answer in a completion and judge it, by rules.

In training's own data sets only the last \boxed{} counts and the training's grader decides. The
benchmarks' protocols are looser: an answer may be stated in words, the letter of a choice or its
text may be given, and numbers are compared as the benchmark rounds them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastrl.evaluation.questions import LETTERS, Question, Rule
from fastrl.geometry.grading import GoldError, Grader, Outcome, extract_answer
from fastrl.geometry.grading.answers import read_gold, read_letter, read_values
from fastrl.geometry.grading.boxes import count_boxes, last_box
from fastrl.geometry.grading.cleaning import clean
from fastrl.geometry.grading.expressions import UnreadableError

LONGEST_LINE = 80  # characters of a last line that may be nothing but an answer
DIGITS = 9  # significant digits in which two wrong numbers are one vote

_THOUGHT_END = re.compile(r"</think(?:ing)?>")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# Space is optional once a place, and not found again from within itself: what a pattern may match
# in two ways, or from each of many starts, takes quadratic time on a policy's flood of spaces.
_STATED = re.compile(
    r"\b(?:answer|option|choice)(?:\s*\*\*)?\s*(?:is|=|:)(?:\s*\*\*)?(?:\s*:)?\s*(?=\S)",
    re.IGNORECASE,
)
# Around an answer in a sentence: "option B because ...", "approximately 8.66".
_LEAD = re.compile(r"^(?:option|choice|letter|approximately|about|roughly)\s+", re.IGNORECASE)
_REASON = re.compile(r"(?:[,;]|(?<!\s))\s+(?:because|since|as|so|which|where)\b.*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?:\s|$)")
_LOOSE_LETTER = re.compile(r"\(?([A-Za-z])\)?[.:)]?")
_CURRENCY = re.compile(r"^\s*\\?[$€£]\s*(?=[\d.])|(?<!\s)\s*\\?%\s*$")


@dataclass(frozen=True)
class Verdict:
    """What became of one completion.

    Attributes:
        answer: what it answers, as written; None without an answer.
        vote: the answer in one spelling, for majority votes; None without an answer.
        outcome: how it was judged.
    """

    answer: str | None
    vote: str | None
    outcome: Outcome


def judge(completion: str, question: Question, grader: Grader) -> Verdict:
    """Find and judge the answer of a completion.

    Args:
        completion: the policy's text, anything at all.
        question: what was asked.
        grader: decides where values are compared exactly.

    Raises:
        GoldError: the question's right answer cannot be read; see `gold_problem`.
    """
    rule = question.rule
    if rule.in_thought:
        answer = last_box(completion)
    elif rule.boxed_only:
        answer = extract_answer(completion)
    else:
        answer = find_answer(completion, question)
    if answer is None:
        return Verdict(None, None, Outcome.NO_ANSWER)
    if question.choices or rule.kind == "choice":
        letter = chosen_letter(answer, question.choices, grader)
        right = letter is not None and letter == question.answer
        return Verdict(answer, letter or _spelling(answer), _outcome(right))
    if rule.kind == "exact":
        return Verdict(answer, _spelling(answer), _exact(answer, question.answer, grader))
    right = _by_rule(answer, question.answer, rule)
    return Verdict(answer, _spelling(answer), _outcome(right))


def gold_problem(question: Question) -> str | None:
    """What is wrong with a question's right answer, in words; None where it can be used."""
    gold, kind = question.answer, question.rule.kind
    if not gold.strip():
        return "the right answer is missing"
    if question.choices:
        known = LETTERS[: len(question.choices)]
        return (
            None
            if gold in tuple(known)
            else f"the right answer {gold!r} is none of {', '.join(known)}"
        )
    if kind == "choice":
        return None if gold in tuple(LETTERS) else f"the right answer {gold!r} is no letter"
    if kind == "exact" and question.rule.boxed_only:
        try:
            read_gold(gold)
        except GoldError as error:
            return str(error)
    if kind in ("integer", "near") and _number(gold) is None:
        return f"the right answer {gold!r} is no number"
    return None


def find_answer(completion: str, question: Question) -> str | None:
    r"""The answer of a completion that need not be in a box.

    In this order: the last box; the last <answer> tag; what follows the last "answer is",
    "answer:" or "option is"; a last line that is nothing but a letter or a value. A thought that
    is still open has answered nothing, and a thought that was closed is not searched.
    """
    boxed = extract_answer(completion)
    if boxed is not None or count_boxes(completion):
        return boxed
    for tag in ("thinking", "think"):
        if completion.rfind(f"<{tag}>") > completion.rfind(f"</{tag}>"):
            return None
    reply = _THOUGHT_END.split(completion)[-1].strip()
    if tagged := _TAGGED.findall(reply):
        return str(tagged[-1]).strip() or None
    if stated := list(_STATED.finditer(reply)):
        rest = reply[stated[-1].end() :].split("\n", 1)[0]
        told = _REASON.sub("", _tidy(_SENTENCE_END.split(rest)[0]))
        return _LEAD.sub("", told) or None
    line = _tidy(reply.rsplit("\n", 1)[-1])
    return line if 0 < len(line) <= LONGEST_LINE and _is_answer(line, question) else None


def chosen_letter(answer: str, choices: Sequence[str], grader: Grader) -> str | None:
    """The letter that an answer chooses, by letter or by the choice's text; None for neither.

    A letter counts before a text. A text must be one choice's, or have the value of exactly one.
    """
    letters = LETTERS[: len(choices)] if choices else LETTERS
    loose = _LOOSE_LETTER.fullmatch(clean(answer))
    letter = read_letter(answer) or (loose[1].upper() if loose else None)
    if letter is not None and letter in letters:
        return letter
    same = [row for row, text in enumerate(choices) if _words(text) == _words(answer)]
    if not same:
        same = [row for row, text in enumerate(choices) if _same_value(answer, text, grader)]
    return letters[same[0]] if len(same) == 1 else None


def _outcome(right: bool) -> Outcome:
    return Outcome.CORRECT if right else Outcome.WRONG


def _exact(answer: str, gold: str, grader: Grader) -> Outcome:
    try:
        return grader.compare(answer, gold)
    except GoldError:
        # Benchmarks have answers in words ("Tuesday"); training's golds were checked before.
        return _outcome(_words(answer) == _words(gold))


def _by_rule(answer: str, gold: str, rule: Rule) -> bool:
    if rule.kind == "list":
        return _same_list(answer, gold)
    if rule.kind == "text":
        return _words(answer) == _words(gold)
    if rule.kind == "rounded":
        numbers, wanted = _numbers(answer), _numbers(gold)
        if numbers is None or wanted is None:
            return _words(answer) == _words(gold)
        return len(numbers) == len(wanted) and all(
            round(one, rule.decimals) == round(other, rule.decimals)
            for one, other in zip(numbers, wanted, strict=True)
        )
    number, right = _number(answer), _number(gold)
    if number is None or right is None:
        return False
    if rule.kind == "integer":
        # The protocol cuts off what follows the point, rather than refuse it.
        return math.trunc(number) == math.trunc(right)
    return abs(number - right) <= rule.margin * (1 + 1e-9)


def _same_list(answer: str, gold: str) -> bool:
    try:
        one, other = ast.literal_eval(answer.strip()), ast.literal_eval(gold.strip())
    except (ValueError, SyntaxError):
        return _words(answer) == _words(gold)
    is_list = isinstance(one, list | tuple) and isinstance(other, list | tuple)
    return is_list and list(one) == list(other)


def _numbers(text: str) -> tuple[float, ...] | None:
    """The values of an answer as floats; None where it is none. A % sign is a unit here."""
    try:
        values = read_values(_CURRENCY.sub("", text))
    except UnreadableError:
        return None
    return values[-1].floats


def _number(text: str) -> float | None:
    numbers = _numbers(text)
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


def _same_value(answer: str, choice: str, grader: Grader) -> bool:
    try:
        return grader.equivalent(answer, choice)
    except GoldError:
        return False


def _words(text: str) -> str:
    """A text without what does not change its meaning: case, spacing, $, \\text and a last stop."""
    return re.sub(r"\s+", "", clean(text)).casefold().rstrip(".")


def _spelling(answer: str) -> str:
    """One spelling for answers that say the same."""
    letter = read_letter(answer)
    if letter is not None:
        return letter
    numbers = _numbers(answer)
    if numbers is None:
        return _words(answer)
    return ",".join(f"{number:.{DIGITS}g}" for number in numbers)


def _tidy(text: str) -> str:
    """Without Markdown's marks around it and a full stop behind it."""
    return text.strip().rstrip(".").strip("*_` ").rstrip(".").strip()


def _is_answer(line: str, question: Question) -> bool:
    if question.choices or question.rule.kind == "choice":
        loose = _LOOSE_LETTER.fullmatch(clean(line))
        is_choice = any(_words(line) == _words(choice) for choice in question.choices)
        return loose is not None or read_letter(line) is not None or is_choice
    if question.rule.kind == "list":
        return line.startswith("[") and line.endswith("]")
    return _numbers(line) is not None or _words(line) == _words(question.answer)
