"""Which rows of a chunk share their prompt, and the one packed row that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrl.trl.shared_prefix.layout import GroupSpans, IntArray, PackedLayout

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Packing:
    """A chunk of B rows, W tokens wide, as one row of T tokens.

    Flat numbers are those of `ids.reshape(-1)`: row x W + column.

    Attributes:
        source_T: (T,) flat number of each token of the packed row.
        target_T: (T,) flat number of the token whose log-prob stands there, -1 for none.
        group_T: (T,) number of its group among `first_rows`.
        step_T: (T,) its place in its sequence, prompt included, padding left out.
        layout: who sees whom.
        first_rows: a row of each group, whose prompt and pictures stand for all.
        scored_rows: rows that have a token to score.
        host_tokens: B x W, what the host would compute.
    """

    source_T: IntArray
    target_T: IntArray
    group_T: IntArray
    step_T: IntArray
    layout: PackedLayout
    first_rows: tuple[int, ...]
    scored_rows: int
    host_tokens: int

    @property
    def ratio(self) -> float:
        """r = K (P + L) / (P - 1 + K (L + 1)) for K rollouts; the host's padding counts above."""
        return self.host_tokens / (len(self.source_T) + self.scored_rows)

    @property
    def saves(self) -> bool:
        """Whether the host would compute more: a prompt twice, or padding."""
        return self.ratio > 1.0


def group_rows(
    ids_BW: IntArray,
    mask_BW: BoolArray,
    completion_width: int,
    same_pictures: Callable[[int, int], bool] | None = None,
) -> list[list[int]]:
    """Rows with the same prompt tokens and pictures, in order of appearance.

    Args:
        ids_BW, mask_BW: (B, W) prompts and completions, and which tokens are not padding.
        completion_width: columns of the completions, the last ones.
        same_pictures: whether two rows have the same pictures, asked only where tokens agree;
            None without any.
    """
    width = ids_BW.shape[1] - completion_width
    alike: dict[bytes, list[list[int]]] = {}
    groups: list[list[int]] = []
    for row in range(len(ids_BW)):
        used = mask_BW[row, :width]
        # The mask too: where the padding differs, so do the positions that the host gives.
        key = used.tobytes() + ids_BW[row, :width][used].tobytes()
        candidates = alike.setdefault(key, [])
        same = (rows for rows in candidates if not same_pictures or same_pictures(rows[0], row))
        group = next(same, None)
        if group is None:
            group = []
            candidates.append(group)
            groups.append(group)
        group.append(row)
    return groups


def pack_rows(
    ids_BW: IntArray,
    mask_BW: BoolArray,
    completion_width: int,
    same_pictures: Callable[[int, int], bool] | None = None,
    num_images: Sequence[int] | None = None,
) -> Packing:
    """Lay out a chunk: every prompt once, and behind it the completions of its rows.

    A completion's first log-prob is the prompt's last token's: that token stands before each
    completion. The last token of a completion predicts nothing that is asked for, and is left out.
    Prompts without a completion token are left out too, unless the chunk would have none or lose
    its only pictures: then one prompt stays, so that the whole model takes part.

    Args:
        ids_BW, mask_BW: (B, W) as the host calls the model; no prompt may be empty.
        completion_width: columns of the completions, the last ones.
        same_pictures: whether two rows have the same pictures; None without any.
        num_images: pictures of each row; None without any.
    """
    width = ids_BW.shape[1]
    start = width - completion_width
    builder = _Builder(width)
    groups = group_rows(ids_BW, mask_BW, completion_width, same_pictures)
    first_rows = []
    for rows in _worth_computing(groups, mask_BW[:, start:], num_images):
        prompt = np.flatnonzero(mask_BW[rows[0], :start])
        completions = {row: start + np.flatnonzero(mask_BW[row, start:]) for row in rows}
        builder.add(prompt, {row: cols for row, cols in completions.items() if len(cols)}, rows[0])
        first_rows.append(rows[0])
    return builder.packing(tuple(first_rows), ids_BW.size)


def _worth_computing(
    groups: list[list[int]], completions_BC: BoolArray, num_images: Sequence[int] | None
) -> list[list[int]]:
    chosen = [rows for rows in groups if completions_BC[rows].any()]
    if num_images is not None and not any(num_images[rows[0]] for rows in chosen):
        chosen += [rows for rows in groups if num_images[rows[0]]][:1]
    return chosen or groups[:1]


class _Builder:
    """Groups put into a packed row one after another."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.sources: list[IntArray] = []
        self.targets: list[IntArray] = []
        self.steps: list[IntArray] = []
        self.spans: list[GroupSpans] = []
        self.length = 0
        self.scored_rows = 0

    def add(self, prompt: IntArray, completions: dict[int, IntArray], first_row: int) -> None:
        """A prompt and the completions behind it, as columns of their rows."""
        begin = self.length
        # One completion alone is an ordinary sequence, and costs what it does in the host.
        is_shared = len(completions) > 1
        whole = prompt[:-1] if completions else prompt
        self._put(first_row, whole, np.full(len(whole), -1), np.arange(len(whole)))
        prefix = (begin, self.length if is_shared else begin)
        spans = []
        for row, columns in completions.items():
            at = self.length
            tokens = np.concatenate([prompt[-1:], columns[:-1]])
            steps = len(prompt) - 1 + np.arange(len(columns))
            self._put(row, tokens, row * self.width + columns, steps)
            spans.append((at if is_shared else begin, self.length))
        self.spans.append(GroupSpans(prefix, tuple(spans) or ((begin, self.length),)))
        self.scored_rows += len(completions)

    def _put(self, row: int, columns: IntArray, targets: IntArray, steps: IntArray) -> None:
        self.sources.append(row * self.width + columns)
        self.targets.append(targets)
        self.steps.append(steps)
        self.length += len(columns)

    def packing(self, first_rows: tuple[int, ...], host_tokens: int) -> Packing:
        """What was put, as one row."""
        ends = [group.spans[-1][1] for group in self.spans]
        return Packing(
            source_T=np.concatenate(self.sources),
            target_T=np.concatenate(self.targets),
            group_T=np.repeat(np.arange(len(ends)), np.diff([0, *ends])),
            step_T=np.concatenate(self.steps),
            layout=PackedLayout(tuple(self.spans), self.length),
            first_rows=first_rows,
            scored_rows=self.scored_rows,
            host_tokens=host_tokens,
        )
