"""A toy that is real: geometry pictures, a Qwen2.5-VL of a million parameters, two rewards."""

from pathlib import Path

from fastrl.geometry.toy.dataset import toy_dataset
from fastrl.geometry.toy.figures import FAMILIES, Figure, draw_figure, figures
from fastrl.geometry.toy.rewards import accuracy_reward, format_reward

# The policy that ships with the package; `docs/toy.md` tells how it was made.
STARTING_POLICY = Path(__file__).parent / "starting_policy"

__all__ = [
    "FAMILIES",
    "STARTING_POLICY",
    "Figure",
    "accuracy_reward",
    "draw_figure",
    "figures",
    "format_reward",
    "toy_dataset",
]
