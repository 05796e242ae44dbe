"""What one generation batch was, and what pruning made of it: for logs, files and observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core import Selection


@dataclass(frozen=True)
class GenerationRecord:
    """One scored generation batch of N rollouts, of all processes, before anything was dropped.

    Attributes:
        step: optimiser updates made before it.
        generation_step: generation batches before it.
        num_generations: rollouts per prompt.
        prompts: N prompts, as text.
        completions: N completions, as text.
        rewards: a (N,) array per reward function; NaN where it did not apply.
        reward_N: (N,) weighted sums of the rewards.
        advantages_N: (N,) advantages, from the statistics of the full group.
        selection: which rows are kept, and why.
        pictures_G: the pictures of each prompt, as its row holds them.
    """

    step: int
    generation_step: int
    num_generations: int
    prompts: list[str]
    completions: list[str]
    rewards: dict[str, npt.NDArray[np.float64]]
    reward_N: npt.NDArray[np.float64]
    advantages_N: npt.NDArray[np.float64]
    selection: Selection
    pictures_G: tuple[tuple[Any, ...], ...] = ()

    @property
    def kept_N(self) -> npt.NDArray[np.bool_]:
        """(N,) whether each row is kept."""
        kept_N = np.zeros(len(self.completions), dtype=np.bool_)
        kept_N[self.selection.keep] = True
        return kept_N

    def metrics(self) -> dict[str, float]:
        """The `fastrl/*` metrics of this batch, phase times aside."""
        kept_G = self.selection.kept_per_group
        return {
            "fastrl/generated": float(len(self.completions)),
            "fastrl/kept": float(len(self.selection.keep)),
            "fastrl/kept_before_refill": float(self.selection.num_before_refill),
            "fastrl/kept_per_prompt": float(kept_G.mean()),
            "fastrl/max_kept_per_prompt": float(kept_G.max()),
            "fastrl/num_generations": float(self.num_generations),
            "fastrl/groups_without_contrast": float(
                1 - self.selection.informative_per_group.mean()
            ),
            "fastrl/reward": float(np.nanmean(self.reward_N)),
        }


def weighted_rewards(
    rewards_NF: npt.NDArray[np.float64], weights_F: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(N,) weighted sums over F reward functions; NaN where none of them applied."""
    reward_N: npt.NDArray[np.float64] = np.nansum(rewards_NF * weights_F, axis=1)
    reward_N[np.isnan(rewards_NF).all(axis=1)] = np.nan
    return reward_N


def row_pictures(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The pictures of a data set row, in `image` (one) or `images` (a list), as TRL has it."""
    images = row.get("images") or []
    pictures = [*images, row.get("image")] if isinstance(images, list) else [images]
    return tuple(picture for picture in pictures if picture is not None)


def as_text(messages: Any) -> str:
    """A prompt or completion as text: conversations turn by turn, pictures as `<image>`."""
    if isinstance(messages, str):
        return messages
    turns = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "".join(
                "<image>" if part.get("type") == "image" else str(part.get("text") or "")
                for part in content
            )
        turns.append(content)
    return "\n".join(turns)
