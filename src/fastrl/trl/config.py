"""FastGRPOConfig: every field of TRL's GRPOConfig, and those that say what FastRL does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trl import GRPOConfig

from fastrl.core import PruningRule
from fastrl.core.named import count_problems, flag_problems, named_rule, rule_problems
from fastrl.core.validation import is_int


def _setting(default: object, help_text: str) -> object:
    return field(default=default, metadata={"help": help_text})


@dataclass
class FastRLArguments:
    """The fields that FastRL adds to a GRPO config.

    Mix it into a config class of your own (`class MyConfig(FastRLArguments, MyGRPOConfig)`) when
    your trainer, wrapped by `with_fastrl`, needs more fields than `FastGRPOConfig` has.

    Raises:
        ValueError: on construction, listing every field that is wrong.
    """

    prune_rule: str = _setting(  # type: ignore[assignment]
        "differential",
        "Which rollouts of a group are kept: 'differential' (FastRL), 'top_advantage' (CPPO), "
        "'max_variance' (PODS), 'random', or 'none' (TRL, untouched).",
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
        "'exact': the gradient equals the full batch's in expectation (the logged loss is still "
        "that of the kept rows). 'kept' (published): every kept rollout counts 1; "
        "'top_advantage' and 'max_variance' need it.",
    )
    drop_uninformative: bool = _setting(  # type: ignore[assignment]
        False, "Drop groups whose rollouts all have advantage zero."
    )
    adaptive_rollouts: bool = _setting(  # type: ignore[assignment]
        False,
        "Let the number of rollouts per prompt follow what pruning kept (published: on; it saves "
        "generation, and cost accuracy where it was measured).",
    )
    min_generations: int = _setting(  # type: ignore[assignment]
        2, "The fewest rollouts per prompt that adaptive rollouts may reach."
    )
    steps_per_epoch: int | None = _setting(  # type: ignore[assignment]
        None,
        "Generation batches in one pass over the prompts, for adaptive rollouts; found from the "
        "data set unless it is iterable.",
    )
    shared_prefix: Literal["auto", True, False] = _setting(  # type: ignore[assignment]
        "auto",
        "Compute the log-probs of a prompt's rollouts behind one copy of the prompt and its "
        "pictures: the same numbers, less work. 'auto': where it pays, unless prune_rule='none' "
        "leaves TRL untouched. True: always. Models that cannot are scored TRL's way.",
    )
    start_step: int = _setting(  # type: ignore[assignment]
        0, "Prune only after so many generation batches."
    )

    dynamic_sampling: bool = _setting(  # type: ignore[assignment]
        False,
        "Replace groups without contrast by groups of further prompts until the batch is full "
        "(DAPO); works with every prune_rule, 'none' too.",
    )
    max_resamples: int = _setting(  # type: ignore[assignment]
        8,
        "Further rounds of generation per batch at most, for dynamic_sampling; then training goes "
        "on with the groups that have contrast.",
    )
    contrast: str = _setting(  # type: ignore[assignment]
        "sum",
        "What must differ within a group, for dynamic_sampling: 'sum' (the weighted sum of the "
        "rewards), or the name of one reward function, such as 'accuracy_reward'.",
    )

    def fastrl_problems(self) -> list[str]:
        """Every FastRL field that is wrong, in words: field, value, remedy."""
        problems = rule_problems(
            self.prune_rule, self.similarity_threshold, self.keep_fraction, self.weighting
        )
        counts = {"min_generations": 2, "steps_per_epoch": 1, "start_step": 0, "max_resamples": 1}
        if self.steps_per_epoch is None:
            del counts["steps_per_epoch"]
        problems += count_problems(
            {name: (getattr(self, name), least) for name, least in counts.items()}
        )
        flags = ("drop_uninformative", "adaptive_rollouts", "dynamic_sampling")
        problems += flag_problems({name: getattr(self, name) for name in flags})
        if self.shared_prefix != "auto" and not isinstance(self.shared_prefix, bool):
            problems.append(
                f"shared_prefix = {self.shared_prefix!r}: expected 'auto', true or false"
            )
        if not isinstance(self.contrast, str) or not self.contrast:
            problems.append(
                f"contrast = {self.contrast!r}: expected 'sum' or the name of a reward function"
            )
        return problems

    def __post_init__(self) -> None:
        super_post_init = getattr(super(), "__post_init__", None)
        if super_post_init is not None:
            super_post_init()
        problems = self.fastrl_problems()
        num_generations = getattr(self, "num_generations", None)
        if (
            num_generations is not None
            and is_int(self.min_generations)
            and self.min_generations > num_generations
        ):
            problems.append(
                f"min_generations = {self.min_generations!r}: more than "
                f"num_generations = {num_generations!r}"
            )
        if problems:
            raise ValueError("FastRL's settings: " + "; ".join(problems) + ".")


@dataclass
class FastGRPOConfig(FastRLArguments, GRPOConfig):  # type: ignore[misc]
    """TRL's GRPOConfig with FastRL's fields; the defaults of both are the vetted ones.

    Raises:
        ValueError: on construction, listing every field that is wrong.
    """


def build_rule(args: FastRLArguments) -> PruningRule:
    """The rule that a config names."""
    return named_rule(
        args.prune_rule,
        similarity_threshold=args.similarity_threshold,
        keep_fraction=args.keep_fraction,
    )
