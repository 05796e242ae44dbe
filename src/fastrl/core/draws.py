"""Random draws that every rank and every resume repeats."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core.rollouts import IntArray
from fastrl.core.validation import is_int


def seed_problems(seed: object) -> list[str]:
    """What is wrong with a seed: an int or a tuple of ints, none negative."""
    parts = seed if isinstance(seed, tuple) else (seed,)
    problems = [
        f"seed = {seed!r}: {part!r} is not a non-negative integer"
        for part in parts
        if not is_int(part) or part < 0
    ]
    return problems if parts else ["seed = (): give at least one integer"]


class GroupDraws:
    """One generator a group, made from the seed and a stable hash of the group's id.

    A group's draws depend on the seed, on its id and on its own members in row order; not on
    the other groups of the batch, nor on how rows of different groups interleave. Python's
    `hash` is salted per process, so it would not do.

    Args:
        seed: an int or a tuple such as (run_seed, step), none negative.
        ids_G: (G,) group ids, ints or strings; int 3 and np.int64(3) are the same id.
    """

    def __init__(self, seed: int | tuple[int, ...], ids_G: npt.NDArray[Any]) -> None:
        self._seed = tuple(int(part) for part in (seed if isinstance(seed, tuple) else (seed,)))
        self._ids: list[int | str] = ids_G.tolist()

    def generator(self, group: int) -> np.random.Generator:
        """A fresh generator for the group at this position in ascending id."""
        group_id = self._ids[group]
        kind = "str" if isinstance(group_id, str) else "int"
        digest = hashlib.blake2b(f"{kind}:{group_id}".encode("utf-8", "surrogatepass")).digest()
        return np.random.default_rng((*self._seed, int.from_bytes(digest[:16], "little")))

    def positions(self, group_of_B: IntArray, sizes_B: IntArray) -> IntArray:
        """(B,) one uniform position in [0, size) for each bucket.

        Args:
            group_of_B: (B,) each bucket's group, ascending; buckets of a group in a fixed order.
            sizes_B: (B,) rows in each bucket.
        """
        positions_B = np.zeros(len(sizes_B), dtype=np.int64)
        groups, starts = np.unique(group_of_B, return_index=True)
        ends = np.append(starts[1:], len(sizes_B))
        for group, start, end in zip(groups.tolist(), starts, ends, strict=True):
            positions_B[start:end] = self.generator(group).integers(0, sizes_B[start:end])
        return positions_B

    def subset(self, group: int, size: int, count: int) -> IntArray:
        """(count,) distinct positions in [0, size), every subset equally likely."""
        return self.generator(group).permutation(size)[:count].astype(np.int64)
