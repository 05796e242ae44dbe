"""Group and rank arithmetic over interleaved, ragged groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core.rollouts import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Groups:
    """The G groups of N rows, in ascending id.

    Attributes:
        ids_G: (G,) distinct group ids, ascending.
        group_of_N: (N,) the position in `ids_G` of each row's group.
        sizes_G: (G,) rows per group, each at least 1.
    """

    ids_G: npt.NDArray[Any]
    group_of_N: IntArray
    sizes_G: IntArray

    @classmethod
    def of(cls, group_ids_N: npt.NDArray[Any]) -> Groups:
        """Find the groups of N rows from their ids, in any order."""
        ids_G, group_of_N, sizes_G = np.unique(group_ids_N, return_inverse=True, return_counts=True)
        return cls(ids_G, group_of_N.astype(np.int64), sizes_G.astype(np.int64))

    def members(self) -> list[IntArray]:
        """Per group its row numbers, ascending."""
        order_N = np.argsort(self.group_of_N, kind="stable")
        return np.split(order_N, np.cumsum(self.sizes_G)[:-1]) if len(self.sizes_G) else []

    def informative(self, advantages_N: FloatArray, decimals: int) -> BoolArray:
        """(G,) False where every advantage of the group is zero once rounded.

        The full group decides. A group of equal advantages other than zero still has a policy
        gradient, so it counts as informative.
        """
        largest_G = np.zeros(len(self.sizes_G))
        np.maximum.at(largest_G, self.group_of_N, np.abs(advantages_N))
        informative_G: BoolArray = rounded(largest_G, decimals) != 0
        return informative_G


def rounded(values: FloatArray, decimals: int) -> FloatArray:
    """`values` rounded half to even; -0.0 never stands beside 0.0.

    NumPy's own rounding scales first: it overflows for large values and misses ties by one ulp.
    """
    return np.array([round(value, decimals) for value in values.tolist()], dtype=np.float64) + 0.0


def run_starts(*sorted_keys: npt.NDArray[Any]) -> IntArray:
    """Where a new combination of the (jointly sorted) keys begins."""
    changed = np.zeros(len(sorted_keys[0]), dtype=np.bool_)
    changed[:1] = True
    for key in sorted_keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed).astype(np.int64)


def rank_in_group(group_of_N: IntArray, magnitude_N: FloatArray) -> IntArray:
    """(N,) 0 for the row of largest magnitude in its group, 1 for the next; earlier row first."""
    num_rows = len(group_of_N)
    order_N = np.lexsort((-magnitude_N, group_of_N))  # stable: ties stay in row order
    starts = run_starts(group_of_N[order_N])
    lengths = np.diff(starts, append=num_rows)
    rank_N = np.empty(num_rows, dtype=np.int64)
    rank_N[order_N] = np.arange(num_rows) - np.repeat(starts, lengths)
    return rank_N
