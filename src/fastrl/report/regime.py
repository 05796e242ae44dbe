"""When the method is known, or bound, to help little: warnings from the logged groups."""

from __future__ import annotations

from fastrl.report.replay import THRESHOLD, DataFacts, Replay

SUCCESS_TOO_RARE = 0.15  # weak starts (10% right) learned less from pruned groups
GROUP_TOO_SMALL = 4
MOSTLY_FLAT = 0.6
NEARLY_ALL = 0.95
NEARLY_NONE = 0.02
KEEPS_NEARLY_ALL = 0.8
LITTLE_TO_WIN = 1.3
FEW_PAIRS = 30  # fewer compared rollouts say nothing about the tokenizer


def regime_warnings(replay: Replay) -> list[str]:
    """What a user should know before trusting the numbers; one sentence or two each.

    Args:
        replay: facts and rules of one replay.
    """
    facts = replay.facts
    warnings = [*_group_warnings(facts), *_similarity_warnings(facts)]
    published = next(
        rule for rule in replay.rules if rule.name == "differential" and rule.value == THRESHOLD
    )
    if published.kept_share >= KEEPS_NEARLY_ALL:
        warnings.append(
            f"The differential rule keeps {published.kept_share:.0%}: there is little to prune. "
            f"(A group has {facts.values_per_group:.1f} distinct advantages on average; rewards "
            "on a continuous scale make every rollout its own.)"
        )
    if replay.phases and replay.phases.bound < LITTLE_TO_WIN:
        warnings.append(
            f"Generation and other phases that pruning does not touch take "
            f"{1 / replay.phases.bound:.0%} of a step: no rule can be faster than "
            f"{replay.phases.bound:.2f}x. Adaptive rollouts, which shorten generation, may."
        )
    return warnings


def _group_warnings(facts: DataFacts) -> list[str]:
    warnings = []
    if facts.success < SUCCESS_TOO_RARE:
        warnings.append(
            f"Success is rare ({facts.success:.0%} of rollouts): with so weak a signal rollouts of "
            "equal reward are not redundant, they average noise, and pruning may cost accuracy. "
            "Start from a stronger policy or easier prompts, or put the time saved into more "
            "prompts per update."
        )
    if facts.group_sizes[1] < GROUP_TOO_SMALL:
        warnings.append(
            f"Groups are small ({facts.group_sizes[1]} rollouts at most): where rewards differ at "
            "all, at least two of them stay. Pruning pays from about 8 on."
        )
    if facts.without_contrast > MOSTLY_FLAT:
        warnings.append(
            f"{facts.without_contrast:.0%} of the groups have no contrast, so most of what is "
            "kept teaches nothing (without KL and entropy terms, drop_uninformative removes it). "
            "Prompts of another difficulty would teach more than any rule."
        )
    return warnings


def _similarity_warnings(facts: DataFacts) -> list[str]:
    below, quartiles = facts.pairs_below, facts.similarity_quartiles
    if below is None or quartiles is None or facts.pairs < FEW_PAIRS:
        return []
    if below > NEARLY_ALL:
        return [
            f"Nearly all pairs of equal advantage ({below:.0%}) are less similar than "
            f"{THRESHOLD:g} for {facts.token_source}: the threshold calls everything different. "
            "Choose a lower one, or check that token sets are what you think."
        ]
    if below < NEARLY_NONE:
        return [
            f"Hardly any pair of equal advantage ({below:.1%}) is less similar than "
            f"{THRESHOLD:g} for {facts.token_source}: the threshold does nothing, one rollout per "
            f"advantage value stays. The lower quartile of the similarity is {quartiles[0]:.2f}; "
            "a threshold near it would keep the rollouts that differ most."
        ]
    return []
