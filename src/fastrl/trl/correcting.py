"""vLLM samples with other numbers than the model trains with: the ratio that corrects for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SamplingCorrection:
    """TRL's importance-sampling correction, for rows that were kept.

    Attributes:
        mode: TRL's `vllm_importance_sampling_mode`: a ratio per token or one per sequence; ratios
            outside the bounds are truncated to them, or masked (0: the token or row is left out).
        clip_min, clip_max: the bounds; None where there is none.
    """

    mode: str
    clip_min: float | None
    clip_max: float | None

    def ratio(
        self, old_RT: torch.Tensor, sampling_RT: torch.Tensor, mask_RT: torch.Tensor
    ) -> torch.Tensor:
        """(R, T) or, per sequence, (R, 1) factors of the loss; never NaN.

        Args:
            old_RT: (R, T) log-probs of the model before the update.
            sampling_RT: (R, T) log-probs that the engine sampled with; NaN where it gave none:
                such a token is not corrected.
            mask_RT: (R, T) the tokens that the loss counts.

        Source: TRL's documentation of the four modes.
        """
        # Not a product: NaN times zero is NaN.
        gap_RT = torch.where(mask_RT.bool(), old_RT - sampling_RT, 0.0).nan_to_num(nan=0.0)
        if self.mode.startswith("sequence"):
            gap_RT = gap_RT.sum(dim=1, keepdim=True)
        ratio = gap_RT.exp()
        if self.mode.endswith("truncate"):
            return ratio.clamp(min=self.clip_min, max=self.clip_max)
        lowest = -math.inf if self.clip_min is None else self.clip_min
        highest = math.inf if self.clip_max is None else self.clip_max
        return ratio.masked_fill((ratio < lowest) | (ratio > highest), 0.0)


class SamplingGap:
    """How far the engine's log-probs are from the model's, over the kept rows of a batch.

    Sums and extremes of this process; `sums` and `extremes` are what processes add up and compare.
    """

    def __init__(self) -> None:
        self.gap_sum = self.gap_count = self.ratio_sum = self.ratio_count = 0.0
        self.gap_max = self.ratio_max = -math.inf
        self.ratio_min = math.inf

    def add(
        self,
        old_RT: torch.Tensor,
        sampling_RT: torch.Tensor,
        mask_RT: torch.Tensor,
        ratio: torch.Tensor,
    ) -> None:
        """Take in rows; arguments as those of `SamplingCorrection.ratio`, and what it returned."""
        counted_RT = mask_RT.bool()
        gap = (old_RT - sampling_RT).abs()[counted_RT]
        gap = gap[~gap.isnan()].double()
        ratios = (ratio.flatten() if ratio.shape[1] == 1 else ratio[counted_RT]).double()
        self.gap_sum += float(gap.sum())
        self.gap_count += len(gap)
        self.ratio_sum += float(ratios.sum())
        self.ratio_count += len(ratios)
        if len(gap):
            self.gap_max = max(self.gap_max, float(gap.max()))
        if len(ratios):
            self.ratio_max = max(self.ratio_max, float(ratios.max()))
            self.ratio_min = min(self.ratio_min, float(ratios.min()))

    def sums(self) -> list[float]:
        """What is added up over processes."""
        return [self.gap_sum, self.gap_count, self.ratio_sum, self.ratio_count]

    def extremes(self) -> list[float]:
        """What the largest of all processes is taken of."""
        return [self.gap_max, self.ratio_max, -self.ratio_min]


def gap_metrics(sums: list[float], extremes: list[float]) -> dict[str, float]:
    """TRL's metrics of the difference, under TRL's names; zero where no row was kept.

    Args:
        sums, extremes: a `SamplingGap`'s, over all processes.
    """
    gap_sum, gap_count, ratio_sum, ratio_count = sums
    gap_max, ratio_max, ratio_min = (
        value if math.isfinite(value) else 0.0 for value in (extremes[0], extremes[1], -extremes[2])
    )
    return {
        "sampling/sampling_logp_difference/mean": gap_sum / max(gap_count, 1.0),
        "sampling/sampling_logp_difference/max": gap_max,
        "sampling/importance_sampling_ratio/min": ratio_min,
        "sampling/importance_sampling_ratio/mean": ratio_sum / max(ratio_count, 1.0),
        "sampling/importance_sampling_ratio/max": ratio_max,
    }
