"""The core: which rollouts are worth learning from. NumPy only, no torch, no host."""

from fastrl.core.packing import balanced_shares
from fastrl.core.pruning import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    TopAdvantagePruning,
    Weighting,
    prune,
)
from fastrl.core.rollouts import Rollouts, Selection
from fastrl.core.schedule import AdaptiveRollouts

__all__ = [
    "AdaptiveRollouts",
    "DifferentialPruning",
    "KeepAll",
    "MaxVariancePruning",
    "PruningRule",
    "RandomPruning",
    "Rollouts",
    "Selection",
    "TopAdvantagePruning",
    "Weighting",
    "balanced_shares",
    "prune",
]
