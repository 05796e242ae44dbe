"""FastRL's settings in a verl run: the keys under `trainer.fastrl`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastrl.core import PruningRule
from fastrl.core.named import count_problems, flag_problems, named_rule, rule_problems


def _setting(default: object, help_text: str) -> object:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class FastRLSettings:
    """What FastRL does in a run; on the command line `+trainer.fastrl.<name>=<value>`.

    Each field's metadata has its help text.
    """

    prune_rule: str = _setting(  # type: ignore[assignment]
        "differential",
        "Which rollouts of a group are kept: 'differential' (FastRL), 'top_advantage' (CPPO), "
        "'max_variance' (PODS), 'random', or 'none' (verl, untouched).",
    )
    similarity_threshold: float = _setting(  # type: ignore[assignment]
        0.2,
        "For 'differential': a rollout with the same advantage as its seed is kept when the "
        "Jaccard similarity of their token sets is below this (0 keeps one per advantage).",
    )
    keep_fraction: float = _setting(  # type: ignore[assignment]
        0.5,
        "For 'top_advantage', 'max_variance' and 'random': the share of each group to keep.",
    )
    weighting: str = _setting(  # type: ignore[assignment]
        "exact",
        "'exact': the gradient equals the full batch's in expectation (the logged loss is that "
        "of the kept rows). 'kept' (published): every kept rollout counts 1; 'top_advantage' and "
        "'max_variance' need it.",
    )
    drop_uninformative: bool = _setting(  # type: ignore[assignment]
        False, "Drop groups whose rollouts all have advantage zero."
    )
    adaptive_rollouts: bool = _setting(  # type: ignore[assignment]
        False,
        "Let the number of rollouts per prompt follow what pruning kept (published: on).",
    )
    min_generations: int = _setting(  # type: ignore[assignment]
        2, "The fewest rollouts per prompt that adaptive rollouts may reach."
    )
    start_step: int = _setting(  # type: ignore[assignment]
        0, "Prune only after so many steps."
    )
    seed: int = _setting(  # type: ignore[assignment]
        0, "Of the draws of weighting 'exact' and of 'random'."
    )

    @property
    def prunes(self) -> bool:
        """Whether any step leaves rollouts out."""
        return self.prune_rule != "none"

    def rule(self) -> PruningRule:
        """The rule that the settings name."""
        return named_rule(
            self.prune_rule,
            similarity_threshold=self.similarity_threshold,
            keep_fraction=self.keep_fraction,
        )


SETTINGS = {setting.name: setting for setting in dataclasses.fields(FastRLSettings)}


def read_settings(given: object) -> tuple[FastRLSettings, list[str]]:
    """Settings from a mapping, and every problem with it.

    Args:
        given: the container under `trainer.fastrl`, or None where the run names no setting.

    Returns:
        The settings (the defaults where a value is missing or unknown names were given) and one
        line a problem: field, value, remedy.
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        problem = f"expected keys such as +trainer.fastrl.prune_rule=differential, found {given!r}"
        return FastRLSettings(), [problem]
    problems = [
        f"{name} = {value!r}: there is no such setting; there are {', '.join(SETTINGS)}"
        for name, value in given.items()
        if name not in SETTINGS
    ]
    settings = FastRLSettings(**{name: given[name] for name in given if name in SETTINGS})
    problems += rule_problems(
        settings.prune_rule,
        settings.similarity_threshold,
        settings.keep_fraction,
        settings.weighting,
    )
    counts = {"min_generations": 2, "start_step": 0, "seed": 0}
    problems += count_problems(
        {name: (getattr(settings, name), least) for name, least in counts.items()}
    )
    flags = ("drop_uninformative", "adaptive_rollouts")
    problems += flag_problems({name: getattr(settings, name) for name in flags})
    return settings, problems
