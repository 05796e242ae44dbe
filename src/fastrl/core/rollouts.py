"""Rollouts in, Selection out."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrl.core.validation import MAX_LISTED, describe_rows, is_int, is_number, raise_problems

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
TokenRow: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, init=False)
class Rollouts:
    """One generation batch of N rollouts, validated and in canonical types.

    Rows may come in any order and groups may have any sizes: a group is the set of rows that
    share an id, never a block of the batch.

    Args:
        group_ids: (N,) integers or strings; one id a prompt *occurrence* (the same question
            twice in a batch is two groups).
        advantages: (N,) finite numbers, computed by the host from the statistics of the full
            group. For advantages per token pass the mean over the completion's tokens. Kept in
            float64 whatever comes in.
        completion_ids: N ragged rows of integer token ids, without padding. Rows may be empty.
            NumPy integer arrays are used as they are (fast); lists are converted.

    Raises:
        ValueError: lists every problem found, each with its field, row and value.

    Source: the FastRL paper, advantage pruning (the input of one pruning step).
    """

    group_ids: npt.NDArray[Any]
    advantages: FloatArray
    completion_ids: tuple[TokenRow, ...]

    def __init__(
        self,
        group_ids: Sequence[int] | Sequence[str] | npt.NDArray[Any],
        advantages: npt.ArrayLike,
        completion_ids: Sequence[Sequence[int] | npt.NDArray[Any]] | npt.NDArray[Any],
    ) -> None:
        problems: list[str] = []
        group_ids_N = _canonical_group_ids(group_ids, problems)
        advantages_N = _canonical_advantages(advantages, problems)
        token_rows = _canonical_tokens(completion_ids, problems)
        lengths = {
            "group_ids": len(group_ids_N),
            "advantages": len(advantages_N),
            "completion_ids": len(token_rows),
        }
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length} rows" for name, length in lengths.items())
            problems.append(f"lengths disagree: {told}; give one of each per rollout")
        raise_problems("Rollouts", problems)
        object.__setattr__(self, "group_ids", group_ids_N)
        object.__setattr__(self, "advantages", advantages_N)
        object.__setattr__(self, "completion_ids", token_rows)

    def __len__(self) -> int:
        """N, the number of rollouts."""
        return len(self.advantages)


@dataclass(frozen=True, eq=False)
class Selection:
    """Which of N rollouts in G groups go on to log-probs and update, and why. K rows are kept.

    Attributes:
        keep: (K,) int64, ascending row numbers.
        weights: (K,) float64, the factor of each kept row's whole loss (policy term and KL).
        num_before_refill: rows that the rule itself kept.
        kept_per_group: (G,) int64, refill included, groups in ascending id.
        reason: (N,) str. "seed": stands for its bucket of equal advantages; "different": same
            advantage as its seed, but another path; "duplicate": not kept, repeats its seed;
            "refill": kept only to reach the multiple; "no_contrast": its group was dropped
            whole; "rule": kept or dropped by a rule without buckets (`keep` tells which).
        duplicate_of: (N,) int64, the kept row that a "duplicate" or "refill" row repeats;
            -1 if none.
        similarity: (N,) float64, Jaccard similarity to the seed of the row's bucket, for every
            member but the seed; NaN where there is none.
        group_ids: (G,) the ids that `kept_per_group` and `informative_per_group` belong to.
        informative_per_group: (G,) bool, False where all advantages round to zero: such a group
            moves the policy through KL or entropy only. Told whether or not it was dropped.
    """

    keep: IntArray
    weights: FloatArray
    num_before_refill: int
    kept_per_group: IntArray
    reason: npt.NDArray[np.str_]
    duplicate_of: IntArray
    similarity: FloatArray
    group_ids: npt.NDArray[Any]
    informative_per_group: BoolArray


def _as_vector(
    field: str, values: Any, problems: list[str], hint: str = ""
) -> npt.NDArray[Any] | None:
    """`values` as a 1-D array, or None with a problem noted."""
    try:
        array = np.asarray(values)
    except ValueError:  # NumPy's answer to rows of different lengths
        problems.append(f"{field}: ragged; expected (N,), one value per rollout{hint}")
        return None
    if array.ndim != 1:
        problems.append(f"{field}: shape {array.shape}; expected (N,), one per rollout{hint}")
        return None
    return array


def _canonical_group_ids(group_ids: Any, problems: list[str]) -> npt.NDArray[Any]:
    array = _as_vector("group_ids", group_ids, problems)
    if array is None:
        return np.zeros(len(group_ids) if isinstance(group_ids, Sized) else 0, dtype=np.int64)
    if not len(array):
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind in "iu":
        return array.copy()
    # NumPy turns a list of mixed types into strings or floats: look at what was given.
    given = group_ids.tolist() if isinstance(group_ids, np.ndarray) else list(group_ids)
    found = len(problems)
    is_str = [isinstance(value, str) for value in given]
    odd = [row for row, value in enumerate(given) if not is_str[row] and not is_int(value)]
    problems += describe_rows("group_ids", odd, given, "expected an integer or a string")
    if not odd and any(is_str) and not all(is_str):
        rarer = 2 * sum(is_str) <= len(given)
        rows = [row for row, value in enumerate(is_str) if value == rarer]
        problems += describe_rows("group_ids", rows, given, "integers and strings are mixed")
    # NumPy strips trailing NULs, which would merge two groups.
    nul = [row for row, value in enumerate(given) if is_str[row] and value.endswith("\0")]
    problems += describe_rows("group_ids", nul, given, "a string id may not end in NUL")
    wide = [r for r, value in enumerate(given) if is_int(value) and not -(2**63) <= value < 2**63]
    problems += describe_rows("group_ids", wide, given, "does not fit in 64 bits")
    if len(problems) > found:
        return np.zeros(len(given), dtype=np.int64)
    return np.asarray(given, dtype=np.str_ if all(is_str) else np.int64)


def _canonical_advantages(advantages: Any, problems: list[str]) -> FloatArray:
    hint = " (of advantages per token pass the mean over the completion)"
    array = _as_vector("advantages", advantages, problems, hint)
    if array is None:
        return np.zeros(len(advantages) if isinstance(advantages, Sized) else 0)
    if array.dtype.kind not in "fiu":
        given = array.tolist()
        odd = [row for row, value in enumerate(given) if not is_number(value)]
        problems += describe_rows("advantages", odd, given, "not a number")
        if odd:
            return np.zeros(len(given))
    advantages_N = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(advantages_N)).tolist()
    problems += describe_rows("advantages", bad, advantages_N, "not finite")
    return advantages_N


def _canonical_tokens(completion_ids: Any, problems: list[str]) -> tuple[TokenRow, ...]:
    complaints: list[str] = []
    rows = tuple(_token_row(row, tokens, complaints) for row, tokens in enumerate(completion_ids))
    problems += complaints[:MAX_LISTED]
    if len(complaints) > MAX_LISTED:
        problems.append(f"completion_ids: {len(complaints) - MAX_LISTED} more rows with a problem")
    return rows


def _token_row(number: int, tokens: Any, complaints: list[str]) -> TokenRow:
    empty = np.empty(0, dtype=np.int64)
    try:
        row = np.asarray(tokens)
    except ValueError:  # NumPy's answer to rows of different lengths
        complaints.append(f"completion_ids[{number}] = {tokens}: ragged; expected 1-D")
        return empty
    if row.ndim != 1:
        complaints.append(f"completion_ids[{number}]: shape {row.shape}; expected 1-D")
        return empty
    if not row.size:
        return empty
    if row.dtype.kind not in "iu":
        values = row.tolist()
        position = next((i for i, value in enumerate(values) if not _is_whole(value)), 0)
        complaints.append(
            f"completion_ids[{number}][{position}] = {values[position]!r} (row of {row.dtype}):"
            " token ids are integers"
        )
        return empty
    # Set arithmetic needs a signed type of at least 32 bits, and only which ids are equal.
    return row if row.dtype in (np.int32, np.int64) else row.astype(np.int64)


def _is_whole(value: object) -> bool:
    return is_int(value) or (isinstance(value, float) and value.is_integer())
