"""Rules and weightings by name, and the checks that every host's configuration shares."""

from __future__ import annotations

from collections.abc import Mapping

from fastrl.core.rules import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    TopAdvantagePruning,
)
from fastrl.core.validation import is_int, is_number

PRUNE_RULES = ("differential", "top_advantage", "max_variance", "random", "none")
WEIGHTINGS = ("kept", "exact")


def named_rule(
    prune_rule: str, *, similarity_threshold: float = 0.2, keep_fraction: float = 0.5
) -> PruningRule:
    """The rule of a name; a setting that the rule does not take is left aside.

    Args:
        prune_rule: one of `PRUNE_RULES`.
        similarity_threshold: of "differential", in [0, 1].
        keep_fraction: of "top_advantage", "max_variance" and "random", in (0, 1].

    Raises:
        ValueError: no rule has that name, or a setting is out of range.
    """
    if prune_rule == "differential":
        return DifferentialPruning(similarity_threshold=similarity_threshold)
    if prune_rule == "top_advantage":
        return TopAdvantagePruning(keep_fraction=keep_fraction)
    if prune_rule == "max_variance":
        return MaxVariancePruning(keep_fraction=keep_fraction)
    if prune_rule == "random":
        return RandomPruning(keep_fraction=keep_fraction)
    if prune_rule == "none":
        return KeepAll()
    raise ValueError(f"prune_rule = {prune_rule!r}: expected one of {', '.join(PRUNE_RULES)}")


def rule_problems(
    prune_rule: object, similarity_threshold: object, keep_fraction: object, weighting: object
) -> list[str]:
    """What is wrong with the settings that choose and shape a rule: field, value, remedy."""
    problems = []
    if prune_rule not in PRUNE_RULES:
        problems.append(f"prune_rule = {prune_rule!r}: expected one of {', '.join(PRUNE_RULES)}")
    if not is_number(similarity_threshold) or not 0 <= similarity_threshold <= 1:
        problems.append(
            f"similarity_threshold = {similarity_threshold!r}: expected a number in [0, 1]"
        )
    if not is_number(keep_fraction) or not 0 < keep_fraction <= 1:
        problems.append(f"keep_fraction = {keep_fraction!r}: expected a number in (0, 1]")
    if weighting not in WEIGHTINGS:
        problems.append(f"weighting = {weighting!r}: expected 'kept' or 'exact'")
    elif weighting == "exact" and prune_rule in ("top_advantage", "max_variance"):
        problems.append(
            f"weighting = 'exact' does not exist for prune_rule = {prune_rule!r}, which "
            "always leaves the same rollouts out; use weighting='kept'"
        )
    return problems


def count_problems(counts: Mapping[str, tuple[object, int]]) -> list[str]:
    """What is wrong with settings that count something.

    Args:
        counts: name -> (value given, the least that is allowed).
    """
    return [
        f"{name} = {value!r}: expected an integer of at least {least}"
        for name, (value, least) in counts.items()
        if not is_int(value) or value < least
    ]


def flag_problems(flags: Mapping[str, object]) -> list[str]:
    """What is wrong with settings that are true or false."""
    return [
        f"{name} = {value!r}: expected true or false"
        for name, value in flags.items()
        if not isinstance(value, bool)
    ]
