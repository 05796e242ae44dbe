"""What samples say of a policy: pass@k, mean@k, majority@k, and how sure that is (NumPy only)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 2000
CHUNK = 100  # resamples at a time: what bounds the memory

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """A mean over questions with its 95% confidence interval.

    Attributes:
        value: the mean, between 0 and 1; low, high: the interval's ends.
        method: "wilson" or "bootstrap".
    """

    value: float
    low: float
    high: float
    method: str


def pass_at_k(correct_QS: BoolArray, k: int) -> FloatArray:
    """The chance that at least one of k samples is right, of each question.

    The unbiased estimate from S samples of which c are right: 1 - C(S - c, k) / C(S, k), the share
    of all choices of k samples that hold a right one.

    Args:
        correct_QS: (Q, S) whether each sample of each question is right.
        k: between 1 and S.

    Returns:
        (Q,) between 0 and 1.

    Raises:
        ValueError: k is out of range.
    """
    samples = correct_QS.shape[1]
    if not 1 <= k <= samples:
        raise ValueError(f"k = {k}: expected 1 to {samples}, the samples of each question.")
    choices = math.comb(samples, k)
    chance = [1.0 - math.comb(samples - right, k) / choices for right in range(samples + 1)]
    chance_S = np.array(chance, dtype=np.float64)
    chances_Q: FloatArray = chance_S[correct_QS.sum(axis=1)]
    return chances_Q


def mean_at_k(correct_QS: BoolArray) -> FloatArray:
    """The share of right samples of each question: (Q,) from (Q, S)."""
    means_Q: FloatArray = correct_QS.mean(axis=1, dtype=np.float64)
    return means_Q


def majority_at_k(votes: Sequence[Sequence[str | None]], correct_QS: BoolArray) -> FloatArray:
    """Whether the answer that most samples give is right, of each question.

    Samples without an answer do not vote. Among answers with equally many votes one is drawn, so
    the value is the share of right ones among them. A question without any vote is 0.

    Args:
        votes: Q rows of S answers, written the same where they say the same; None without one.
        correct_QS: (Q, S) whether each sample is right; all right ones count as one answer.

    Returns:
        (Q,) between 0 and 1.
    """
    values = []
    for row, correct_S in zip(votes, correct_QS, strict=True):
        wrong = Counter(
            vote
            for vote, is_right in zip(row, correct_S, strict=True)
            if vote is not None and not is_right
        )
        right = int(correct_S.sum())
        most = max([right, *wrong.values()])
        tied = sum(count == most for count in wrong.values())
        values.append(1.0 / (1 + tied) if right == most > 0 else 0.0)
    return np.array(values)


def all_right(correct_QS: BoolArray, groups: Sequence[str]) -> tuple[FloatArray, list[str]]:
    """The chance that all questions of a group are right at once (DynaMath's worst case).

    Sample s of one question meets sample s of the others, which were drawn independently.

    Args:
        correct_QS: (Q, S) whether each sample is right.
        groups: Q names; questions of one name belong together.

    Returns:
        (G,) one value a group, and the groups' names in order of appearance.
    """
    names = list(dict.fromkeys(groups))
    rows: dict[str, list[int]] = {name: [] for name in names}
    for row, name in enumerate(groups):
        rows[name].append(row)
    values = [correct_QS[rows[name]].all(axis=0).mean() for name in names]
    return np.array(values, dtype=np.float64), names


def mean_with_interval(
    values_Q: FloatArray, groups: Sequence[str] | None = None, seed: int = 0
) -> Interval:
    """The mean over questions with a 95% interval for the questions that might have been asked.

    What is drawn are groups: samples of one question, and versions of one problem, are not
    independent. Where every group is wholly right or wholly wrong (and they are of one size, or
    all agree), Wilson's interval over groups, which is also sound at 0 and 1, where a bootstrap
    would have no width. Otherwise the percentile bootstrap.

    Args:
        values_Q: (Q,) one value a question, each between 0 and 1.
        groups: Q names of what is drawn together; by default each question is alone.
        seed: of the bootstrap.

    Raises:
        ValueError: there is no question.
    """
    if len(values_Q) == 0:
        raise ValueError("There is no question to average over.")
    group_Q = np.arange(len(values_Q), dtype=np.int64)
    if groups is not None:
        _, group_Q = np.unique(np.array(groups), return_inverse=True)
    sums_G: FloatArray = np.bincount(group_Q, weights=values_Q).astype(np.float64)
    counts_G = np.bincount(group_Q).astype(np.int64)
    means_G = sums_G / counts_G
    alike = len(set(counts_G)) == 1 or len(set(means_G)) == 1
    if alike and np.isin(means_G, (0.0, 1.0)).all():
        return wilson(int(means_G.sum()), len(means_G))
    low, high = _bootstrap(sums_G, counts_G, seed)
    return Interval(float(values_Q.mean()), low, high, "bootstrap")


def wilson(right: int, total: int) -> Interval:
    """Wilson's score interval for `right` of `total`."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = right / total
    spread = z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    middle, scale = share + z**2 / (2 * total), 1 + z**2 / total
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return Interval(share, min(max(low, 0.0), share), max(min(high, 1.0), share), "wilson")


def _bootstrap(
    sums_G: FloatArray, counts_G: npt.NDArray[np.int64], seed: int
) -> tuple[float, float]:
    """The ends of the percentile interval of sum / count when groups are drawn again."""
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(RESAMPLES // CHUNK):
        drawn = rng.integers(len(sums_G), size=(CHUNK, len(sums_G)))
        means.append(sums_G[drawn].sum(axis=1) / counts_G[drawn].sum(axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)
