"""Where prompts and rollouts lie in a packed row, and who sees whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
# [start, end) in the packed row.
Span = tuple[int, int]


@dataclass(frozen=True)
class GroupSpans:
    """A prefix and what stands behind it: every span sees the prefix and itself, causally.

    Attributes:
        prefix: all of the prompt but its last token; empty where one span alone stands there.
        spans: one a rollout: the prompt's last token, then the completion.
    """

    prefix: Span
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Stretch:
    """Neighbouring queries and what they see: the prefix, and `own` up to each query itself."""

    own: Span
    prefix: Span

    @property
    def queries(self) -> int:
        """Tokens of the stretch."""
        return self.own[1] - self.own[0]

    @property
    def keys(self) -> int:
        """Tokens that its last query sees."""
        return self.prefix[1] - self.prefix[0] + self.queries


@dataclass(frozen=True)
class PackedLayout:
    """One row of `length` tokens that holds whole groups, one after another."""

    groups: tuple[GroupSpans, ...]
    length: int

    def stretches(self) -> Iterator[Stretch]:
        """Every query once, in the order of the row."""
        for group in self.groups:
            start, end = group.prefix
            if end > start:
                yield Stretch(group.prefix, (start, start))
            for span in group.spans:
                yield Stretch(span, group.prefix)

    def group_and_segment(self) -> tuple[IntArray, IntArray]:
        """(length,) number of the group, and of the segment within it: 0 is the prefix.

        A query sees a key that does not come after it, of the same group, in the prefix or in the
        query's own segment.
        """
        group_T = np.zeros(self.length, dtype=np.int64)
        segment_T = np.zeros(self.length, dtype=np.int64)
        for number, group in enumerate(self.groups):
            group_T[group.prefix[0] : group.spans[-1][1]] = number
            for segment, (start, end) in enumerate(group.spans, start=1):
                segment_T[start:end] = segment
        return group_T, segment_T
