"""verl's seconds under the names that FastRL uses on every host."""

from __future__ import annotations

from collections.abc import Mapping

# verl's names of what is timed within a step.
PHASES = {
    "generate": "gen",
    "reward": "reward",
    "prune": "prune",
    "old_logps": "old_log_prob",
    "ref_logps": "ref",
    "update": "update_actor",
}
# Timed within a step, but no training.
OUTSIDE = ("save_checkpoint",)


def phase_seconds(timing: Mapping[str, float]) -> dict[str, float]:
    """`fastrl/time/*` of a step; a second belongs to one phase.

    Rule-based rewards are computed while verl still generates: they are part of "generate".
    "other" is what remains of the step, the new weights' way to the rollout engine included.

    Args:
        timing: verl's seconds by its own names; "step" is the whole step.
    """
    seconds = {name: float(timing.get(verl_name, 0.0)) for name, verl_name in PHASES.items()}
    whole = timing.get("step", 0.0) - sum(timing.get(name, 0.0) for name in OUTSIDE)
    seconds["other"] = max(0.0, whole - sum(seconds.values()))
    return {f"fastrl/time/{name}": value for name, value in seconds.items()}
