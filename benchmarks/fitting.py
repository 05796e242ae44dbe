"""Medians with intervals, and slopes, of measured times: plain functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Median:
    """A median with an interval that covers the true one with a known probability.

    Attributes:
        value: the sample's median.
        low, high: order statistics around it.
        coverage: at least 0.95 where the sample is large enough; else that of the whole range.
    """

    value: float
    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float]) -> Median:
    """The median and the narrowest symmetric pair of order statistics that covers 95%.

    Each of n independent values lies below the true median with probability 1/2, so the pair
    (k-th smallest, k-th largest) misses it with probability 2 P(Binomial(n, 1/2) < k).
    """
    ordered, n = sorted(values), len(values)
    below, best, covers = 0.0, 0, 1 - 2 * 0.5**n
    for k in range(n // 2):
        below += math.comb(n, k) * 0.5**n
        if 1 - 2 * below < 0.95:
            break
        best, covers = k, 1 - 2 * below
    return Median(statistics.median(ordered), ordered[best], ordered[n - 1 - best], covers)


@dataclass(frozen=True)
class Line:
    """A least-squares line, and the share of the variance that it explains."""

    slope: float
    intercept: float
    r_squared: float


def linear_fit(x: Sequence[float], y: Sequence[float]) -> Line:
    """y = intercept + slope x."""
    if len(set(x)) < 2:
        raise ValueError(f"a line needs two different x; got {list(x)}.")
    slope, intercept = np.polyfit(x, y, 1)
    residual = np.asarray(y) - (intercept + slope * np.asarray(x))
    total = float(np.square(np.asarray(y) - np.mean(y)).sum())
    r_squared = 1 - float(np.square(residual).sum()) / total if total > 0 else 1.0
    return Line(float(slope), float(intercept), r_squared)


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent b of y = a x^b, by least squares on the logarithms."""
    return linear_fit(np.log(x), np.log(y)).slope
