"""prune(): one rule applied to one generation batch."""

from __future__ import annotations

import numpy as np

from fastrl.core.draws import GroupDraws, seed_problems
from fastrl.core.groups import Groups
from fastrl.core.refill import refill_rows
from fastrl.core.rollouts import Rollouts, Selection
from fastrl.core.rules import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    TopAdvantagePruning,
    Weighting,
)
from fastrl.core.validation import is_int, raise_problems

__all__ = [
    "DifferentialPruning",
    "KeepAll",
    "MaxVariancePruning",
    "PruningRule",
    "RandomPruning",
    "TopAdvantagePruning",
    "Weighting",
    "prune",
]


def prune(
    rollouts: Rollouts,
    rule: PruningRule,
    multiple_of: int = 1,
    weighting: Weighting = "kept",
    seed: int | tuple[int, ...] = 0,
    drop_uninformative: bool = False,
) -> Selection:
    """Choose which rollouts reach log-probs and update, and how much each counts.

    Args:
        rollouts: N rollouts in G groups.
        rule: what to keep of each group.
        multiple_of: the kept total is refilled to a multiple of this, as far as rows last; when
            they run out, the host pads.
        weighting: "kept": every kept row weighs 1 (the published behaviour; biased towards
            rare outcomes). "exact": the weighted sum over kept rows has the full batch's sum as
            its expectation; rows added by refill weigh 0.
        seed: an int or a tuple such as (run_seed, step), none negative; used by "exact" and
            by RandomPruning. The same seed gives the same selection on every rank.
        drop_uninformative: drop a group whole when all its advantages round to zero (to the
            rule's `decimals`). Such a group has no policy gradient; under a KL or entropy term
            it still has one of theirs. A group of equal advantages other than zero stays.

    Returns:
        The selection of K rows. K is 0 for an empty batch or when every group was dropped.

    Raises:
        ValueError: lists every setting that is wrong, or a weighting the rule does not have.

    Source: the FastRL paper, differential-aware advantage pruning; "exact" is this library's.
    """
    problems = seed_problems(seed)
    if not is_int(multiple_of) or multiple_of < 1:
        problems.append(f"multiple_of = {multiple_of!r}: expected an integer of at least 1")
    if weighting not in ("kept", "exact"):
        problems.append(f"weighting = {weighting!r}: expected 'kept' or 'exact'")
    if not isinstance(rule, PruningRule):
        problems.append(f"rule = {rule!r}: expected an instance such as DifferentialPruning()")
    elif weighting == "exact" and not rule.has_exact_weights:
        problems.append(
            f"weighting = 'exact': {type(rule).__name__} always leaves the same rows out, so no"
            " weights make it unbiased; use weighting='kept', or DifferentialPruning or"
            " RandomPruning"
        )
    raise_problems("prune", problems)

    groups = Groups.of(rollouts.group_ids)
    informative_G = groups.informative(rollouts.advantages, rule.decimals)
    choice = rule.choose(rollouts, groups, GroupDraws(seed, groups.ids_G), weighting)

    dropped_N = ~informative_G[groups.group_of_N] & bool(drop_uninformative)
    choice.keep_N[dropped_N] = False
    choice.reason_N[dropped_N] = "no_contrast"
    choice.duplicate_of_N[dropped_N] = -1
    choice.similarity_N[dropped_N] = np.nan
    num_before_refill = int(np.count_nonzero(choice.keep_N))

    added = refill_rows(
        groups.group_of_N, rollouts.advantages, choice.keep_N, ~dropped_N, int(multiple_of)
    )
    choice.keep_N[added] = True
    choice.reason_N[added] = "refill"
    choice.weights_N[added] = 0.0 if weighting == "exact" else 1.0

    keep_K = np.flatnonzero(choice.keep_N).astype(np.int64)
    kept_G = np.bincount(groups.group_of_N[keep_K], minlength=len(groups.ids_G))
    return Selection(
        keep=keep_K,
        weights=choice.weights_N[keep_K],
        num_before_refill=num_before_refill,
        kept_per_group=kept_G.astype(np.int64),
        reason=choice.reason_N,
        duplicate_of=choice.duplicate_of_N,
        similarity=choice.similarity_N,
        group_ids=groups.ids_G,
        informative_per_group=informative_G,
    )
