"""What each pruning rule would have kept of logged rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrl.core import (
    DifferentialPruning,
    MaxVariancePruning,
    RandomPruning,
    Rollouts,
    Selection,
    TopAdvantagePruning,
    prune,
)
from fastrl.core.rules import PruningRule, nearest_fraction
from fastrl.report.logged import LoggedRollouts
from fastrl.report.phases import PhaseSplit
from fastrl.report.tokens import Tokens

THRESHOLD = 0.2  # the published one; the other rules are given its kept share
THRESHOLDS = (0.0, 0.1, THRESHOLD, 0.3, 0.5)
DECIMALS = 4


@dataclass(frozen=True)
class RuleResult:
    """What one rule kept.

    Attributes:
        name: of the rule.
        setting: name of its setting, "threshold" or "keep_fraction".
        value: of that setting.
        kept: rollouts kept.
        kept_share: of all rollouts, in [0, 1].
        kept_per_prompt: mean over groups.
        max_kept_per_prompt: the most in one group.
        tokens_saved: share of completion tokens in rollouts that are dropped.
        values_lost: share of the distinct (rounded) advantages, counted per group, that no
            kept rollout has.
        dropped_similarity: mean similarity of the dropped rollouts to the representative of
            their advantage value; None where none was compared.
        speedup: end to end, None without a phase split.
    """

    name: str
    setting: str
    value: float
    kept: int
    kept_share: float
    kept_per_prompt: float
    max_kept_per_prompt: int
    tokens_saved: float
    values_lost: float
    dropped_similarity: float | None
    speedup: float | None


@dataclass(frozen=True)
class DataFacts:
    """What the logged groups are, before any rule.

    Attributes:
        rollouts: N.
        groups: G.
        steps: generation batches.
        tokens: completion tokens.
        token_source: where token sets come from, in words.
        advantage_source: where advantages come from, in words.
        group_sizes: (least, most) rollouts per group.
        reward_mean: over all rollouts.
        success: share of rollouts with a reward above the middle of the least and the greatest.
        without_contrast: share of groups in which every advantage rounds to zero.
        never_right: share of groups without a success.
        values_per_group: distinct rounded advantages per group, mean.
        pairs: rollouts compared with the representative of their advantage value.
        similarity_mean: over those pairs; None without any.
        similarity_quartiles: (25%, 50%, 75%); None without any.
        pairs_below: share of those pairs below the published threshold; None without any.
    """

    rollouts: int
    groups: int
    steps: int
    tokens: int
    token_source: str
    advantage_source: str
    group_sizes: tuple[int, int]
    reward_mean: float
    success: float
    without_contrast: float
    never_right: float
    values_per_group: float
    pairs: int
    similarity_mean: float | None
    similarity_quartiles: tuple[float, float, float] | None
    pairs_below: float | None


@dataclass(frozen=True)
class Replay:
    """Logged groups, and what the rules make of them."""

    facts: DataFacts
    rules: tuple[RuleResult, ...]
    phases: PhaseSplit | None
    formats: tuple[str, ...]
    notes: tuple[str, ...]


def replay(
    logged: LoggedRollouts,
    tokens: Tokens,
    phases: PhaseSplit | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    seed: int = 0,
) -> Replay:
    """Apply every rule to the logged groups, without refill and adaptive rollouts.

    Args:
        logged: N rollouts in G groups.
        tokens: N token rows.
        phases: seconds per phase of plain training, for the speed-up to expect.
        thresholds: similarity thresholds of the differential rule; 0.2 is always among them.
        seed: of the random rule.

    Raises:
        ValueError: a threshold outside [0, 1].
    """
    rollouts = Rollouts(logged.group_N, logged.advantages_N, tokens.rows)
    lengths_N = np.array([len(row) for row in tokens.rows], dtype=np.int64)
    buckets_N = _buckets(logged)
    reference = prune(rollouts, DifferentialPruning(THRESHOLD, DECIMALS))

    def result(name: str, setting: str, value: float, rule: PruningRule) -> RuleResult:
        selection = prune(rollouts, rule, seed=seed)
        return _result(
            name, setting, value, selection, lengths_N, buckets_N, reference.similarity, phases
        )

    results = [
        result("differential", "threshold", value, DifferentialPruning(value, DECIMALS))
        for value in sorted({*thresholds, THRESHOLD})
    ]
    share = len(reference.keep) / len(rollouts)
    fraction = nearest_fraction(share, len(rollouts) / len(logged.sizes_G))
    for name, rule in (
        ("top_advantage", TopAdvantagePruning(fraction)),
        ("max_variance", MaxVariancePruning(fraction)),
        ("random", RandomPruning(fraction)),
    ):
        results.append(result(name, "keep_fraction", fraction, rule))
    facts = _facts(logged, tokens, lengths_N, buckets_N, reference)
    return Replay(facts, tuple(results), phases, logged.formats, logged.notes)


def _buckets(logged: LoggedRollouts) -> npt.NDArray[np.int64]:
    """(N,) number of each rollout's (group, rounded advantage)."""
    rounded_N = np.array([round(a, DECIMALS) for a in logged.advantages_N.tolist()]) + 0.0
    pairs = np.stack([logged.group_N.astype(np.float64), rounded_N], axis=1)
    _, bucket_N = np.unique(pairs, axis=0, return_inverse=True)
    return bucket_N.reshape(-1).astype(np.int64)


def _result(
    name: str,
    setting: str,
    value: float,
    selection: Selection,
    lengths_N: npt.NDArray[np.int64],
    buckets_N: npt.NDArray[np.int64],
    similarity_N: npt.NDArray[np.float64],
    phases: PhaseSplit | None,
) -> RuleResult:
    is_dropped_N = np.ones(len(lengths_N), dtype=np.bool_)
    is_dropped_N[selection.keep] = False
    compared = similarity_N[is_dropped_N & ~np.isnan(similarity_N)]
    share = len(selection.keep) / len(lengths_N)
    num_buckets = int(buckets_N.max()) + 1
    return RuleResult(
        name=name,
        setting=setting,
        value=value,
        kept=len(selection.keep),
        kept_share=share,
        kept_per_prompt=float(selection.kept_per_group.mean()),
        max_kept_per_prompt=int(selection.kept_per_group.max()),
        tokens_saved=float(lengths_N[is_dropped_N].sum() / max(lengths_N.sum(), 1)),
        values_lost=1 - len(np.unique(buckets_N[selection.keep])) / num_buckets,
        dropped_similarity=float(compared.mean()) if len(compared) else None,
        speedup=phases.speedup(share) if phases else None,
    )


def _facts(
    logged: LoggedRollouts,
    tokens: Tokens,
    lengths_N: npt.NDArray[np.int64],
    buckets_N: npt.NDArray[np.int64],
    reference: Selection,
) -> DataFacts:
    rewards_N, sizes_G = logged.rewards_N, logged.sizes_G
    low, high = float(rewards_N.min()), float(rewards_N.max())
    # Where all rewards are equal nothing but their sign tells success from failure.
    is_success_N = rewards_N > ((low + high) / 2 if high > low else 0.0)
    successes_G = np.bincount(logged.group_N, is_success_N, minlength=len(sizes_G))
    compared = reference.similarity[~np.isnan(reference.similarity)]
    quartiles = np.quantile(compared, [0.25, 0.5, 0.75]).tolist() if len(compared) else None
    return DataFacts(
        rollouts=len(rewards_N),
        groups=len(sizes_G),
        steps=len({rollout.step for rollout in logged.rollouts}),
        tokens=int(lengths_N.sum()),
        token_source=tokens.source,
        advantage_source=(
            "as logged"
            if logged.are_advantages_logged
            else "GRPO's, (reward - mean) / (std + 1e-4) of the full group"
        ),
        group_sizes=(int(sizes_G.min()), int(sizes_G.max())),
        reward_mean=float(rewards_N.mean()),
        success=float(is_success_N.mean()),
        without_contrast=float(1 - reference.informative_per_group.mean()),
        never_right=float((successes_G == 0).mean()),
        values_per_group=(int(buckets_N.max()) + 1) / len(sizes_G),
        pairs=len(compared),
        similarity_mean=float(compared.mean()) if len(compared) else None,
        similarity_quartiles=(quartiles[0], quartiles[1], quartiles[2]) if quartiles else None,
        pairs_below=float((compared < THRESHOLD).mean()) if len(compared) else None,
    )
