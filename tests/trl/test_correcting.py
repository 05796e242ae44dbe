"""The importance-sampling ratio between the model and the engine, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fastrl.trl.correcting import SamplingCorrection, SamplingGap, gap_metrics

NAN = math.nan
OLD = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, -9.0]])
SAMPLING = torch.tensor([[-1.5, -1.0, NAN], [-1.0, -2.0, NAN]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
HALF, ONE = math.exp(0.5), math.exp(1.0)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("token_truncate", [[1.5, 0.5, 1.0], [1.0, 1.5, 1.0]]),
        ("token_mask", [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]]),
        ("sequence_truncate", [[math.exp(-0.5)], [1.5]]),
        ("sequence_mask", [[math.exp(-0.5)], [0.0]]),
    ],
)
def test_the_four_modes(mode: str, wanted: list[list[float]]) -> None:
    """Gaps: 0.5, -1 and unknown; 0, 1 and masked. Bounds 0.5 and 1.5."""
    ratio = SamplingCorrection(mode, 0.5, 1.5).ratio(OLD, SAMPLING, MASK)
    assert ratio.tolist() == [pytest.approx(row) for row in wanted]


@pytest.mark.parametrize("mode", ["token_mask", "sequence_mask", "token_truncate"])
def test_a_bound_may_be_missing(mode: str) -> None:
    above = SamplingCorrection(mode, None, 1.1).ratio(OLD, SAMPLING, MASK)
    below = SamplingCorrection(mode, 0.9, None).ratio(OLD, SAMPLING, MASK)
    if mode == "token_truncate":
        assert above[0].tolist() == pytest.approx([1.1, 1 / ONE, 1.0])
        assert below[0].tolist() == pytest.approx([HALF, 0.9, 1.0])
    elif mode == "token_mask":
        assert above[0].tolist() == pytest.approx([0.0, 1 / ONE, 1.0])
        assert below[0].tolist() == pytest.approx([HALF, 0.0, 1.0])
    else:
        assert above.flatten().tolist() == pytest.approx([1 / HALF, 0.0])
        assert below.flatten().tolist() == pytest.approx([0.0, ONE])


@pytest.mark.parametrize("mode", ["token_mask", "sequence_truncate"])
def test_a_row_without_tokens_is_not_corrected(mode: str) -> None:
    """A blank row: whatever its log-probs are, its ratio is 1."""
    nothing = torch.zeros(1, 3, dtype=torch.long)
    odd = torch.tensor([[NAN, -math.inf, 5.0]])
    ratio = SamplingCorrection(mode, 0.5, 1.5).ratio(odd, torch.zeros(1, 3), nothing)
    assert set(ratio.flatten().tolist()) == {1.0}


def test_the_gap_leaves_out_what_is_masked_or_unknown() -> None:
    gap = SamplingGap()
    ratio = SamplingCorrection("token_truncate", 0.5, 1.5).ratio(OLD, SAMPLING, MASK)
    gap.add(OLD, SAMPLING, MASK, ratio)
    assert gap.sums() == pytest.approx([0.5 + 1 + 0 + 1, 4, 1.5 + 0.5 + 1 + 1 + 1.5, 5])
    metrics = gap_metrics(gap.sums(), gap.extremes())
    assert list(metrics.values()) == pytest.approx([2.5 / 4, 1.0, 0.5, 5.5 / 5, 1.5])


def test_sequence_ratios_count_once_a_row() -> None:
    gap = SamplingGap()
    ratio = SamplingCorrection("sequence_mask", 0.5, 1.5).ratio(OLD, SAMPLING, MASK)
    for row in (slice(0, 1), slice(1, 2)):  # micro-batch by micro-batch
        gap.add(OLD[row], SAMPLING[row], MASK[row], ratio[row])
    assert gap.sums()[2:] == pytest.approx([1 / HALF, 2])
    assert gap.extremes()[1:] == pytest.approx([1 / HALF, 0.0])


def test_nothing_kept_is_zero() -> None:
    gap = SamplingGap()
    assert set(gap_metrics(gap.sums(), gap.extremes()).values()) == {0.0}
