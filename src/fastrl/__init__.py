"""FastRL decides which rollouts are worth learning from; the host does everything else."""

from fastrl.core import (
    AdaptiveRollouts,
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    RandomPruning,
    Rollouts,
    Selection,
    TopAdvantagePruning,
    prune,
)

__version__ = "0.1.0"

__all__ = [
    "AdaptiveRollouts",
    "DifferentialPruning",
    "KeepAll",
    "MaxVariancePruning",
    "RandomPruning",
    "Rollouts",
    "Selection",
    "TopAdvantagePruning",
    "__version__",
    "prune",
]
