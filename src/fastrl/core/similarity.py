"""Jaccard similarity between the token sets of completions, linear in the number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastrl.core.rollouts import FloatArray, IntArray, TokenRow

# Tables are indexed by token id. Vocabularies stay far below; larger or negative ids are renamed.
MAX_TABLE_SIZE = 1 << 22


def token_set_jaccard(
    completion_ids: Sequence[TokenRow], rows_P: IntArray, references_P: IntArray
) -> FloatArray:
    """Shared / all distinct tokens (Jaccard) of P pairs of completions.

    How often a token occurs, and where, does not count. Two empty completions have similarity
    1, an empty and a non-empty one 0.

    Args:
        completion_ids: ragged rows of token ids (signed, 32 bits or more; any values).
        rows_P: (P,) row numbers, one side of each pair.
        references_P: (P,) row numbers, the other side; pairs that share one are cheaper.

    Returns:
        (P,) float64 in [0, 1].

    Source: the FastRL paper, advantage pruning (the measure of "a different path").
    """
    similarity_P = np.empty(len(rows_P))
    if not len(rows_P):
        return similarity_P
    involved = np.union1d(rows_P, references_P).tolist()
    tokens, table_size = _small_token_ids({row: completion_ids[row] for row in involved})
    longest = max(len(row) for row in tokens.values())
    positions_T = np.arange(longest, dtype=np.int32)
    last_position_V = np.zeros(table_size, dtype=np.int32)
    in_reference_V = np.zeros(table_size, dtype=np.bool_)

    current = -1
    reference_set: npt.NDArray[np.integer] = np.empty(0, dtype=np.int64)
    rows, references = rows_P.tolist(), references_P.tolist()
    for pair in np.argsort(references_P, kind="stable").tolist():
        if references[pair] != current:
            current = references[pair]
            in_reference_V[reference_set] = False
            reference_set = _distinct(tokens[current], last_position_V, positions_T)
            in_reference_V[reference_set] = True
        row_set = _distinct(tokens[rows[pair]], last_position_V, positions_T)
        shared = int(np.count_nonzero(in_reference_V[row_set]))
        union = len(row_set) + len(reference_set) - shared
        similarity_P[pair] = shared / union if union else 1.0
    return similarity_P


def _distinct(
    tokens: TokenRow,
    last_position_V: npt.NDArray[np.int32],
    positions_T: npt.NDArray[np.int32],
) -> TokenRow:
    """The distinct tokens of a row: those occurrences that wrote their table entry last.

    Sorting would cost a logarithm; the table is never cleared, since every entry read was
    written for this row just before.
    """
    tokens = tokens.astype(np.int64, copy=False)  # else each of three look-ups would convert
    positions = positions_T[: len(tokens)]
    last_position_V[tokens] = positions
    distinct: TokenRow = tokens[last_position_V[tokens] == positions]
    return distinct


def _small_token_ids(tokens: dict[int, TokenRow]) -> tuple[dict[int, TokenRow], int]:
    """The same rows with ids in [0, size), and that size; renamed only where they must be."""
    # Seen as unsigned a negative id is huge, so one maximum finds both kinds of misfit.
    size = 1 + max(
        (int(row.view(f"u{row.itemsize}").max()) for row in tokens.values() if len(row)), default=0
    )
    if size <= MAX_TABLE_SIZE:
        return tokens, size
    flat = np.concatenate([row.astype(np.int64, copy=False) for row in tokens.values()])
    distinct, renamed = np.unique(flat, return_inverse=True)
    ends = np.cumsum([len(row) for row in tokens.values()])
    pieces = np.split(renamed.astype(np.int64, copy=False), ends[:-1])
    return dict(zip(tokens, pieces, strict=True)), len(distinct)
