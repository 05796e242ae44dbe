"""Logged rollouts in one shape, whoever logged them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.report.rows import Row


@dataclass
class Rollout:
    """One logged rollout.

    Attributes:
        where: file and line, for messages.
        step: the generation batch that it belongs to.
        group: key of its group; None until groups are found by prompt.
        prompt: as text; may be empty.
        completion: as text, None where only token ids were logged.
        token_ids: None where only text was logged.
        reward: NaN where no reward was logged.
        advantage: None where it was not logged.
    """

    where: str
    step: int
    group: Hashable
    prompt: str
    completion: str | None
    token_ids: list[int] | None
    reward: float
    advantage: float | None = None


@dataclass(frozen=True)
class LoggedRollouts:
    """N logged rollouts in G groups.

    Attributes:
        formats: what was read, in words.
        rollouts: N rollouts.
        group_N: (N,) int64 group numbers, in order of appearance.
        advantages_N: (N,) float64, as logged or GRPO's.
        are_advantages_logged: whether the file gave them.
        notes: what the reader did that a user should know.
    """

    formats: tuple[str, ...]
    rollouts: list[Rollout]
    group_N: npt.NDArray[np.int64]
    advantages_N: npt.NDArray[np.float64]
    are_advantages_logged: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def rewards_N(self) -> npt.NDArray[np.float64]:
        """(N,) rewards."""
        return np.array([rollout.reward for rollout in self.rollouts], dtype=np.float64)

    @property
    def sizes_G(self) -> npt.NDArray[np.int64]:
        """(G,) rollouts per group."""
        return np.bincount(self.group_N).astype(np.int64)


def assemble(
    formats: Sequence[str],
    rollouts: list[Rollout],
    notes: Sequence[str],
    num_generations: int | None,
    drop_nan: bool,
) -> LoggedRollouts:
    """Check N grouped rollouts and give them advantages.

    Args:
        formats: what was read, in words.
        rollouts: every one with its group.
        notes: of the readers.
        num_generations: the size every group must have; None for any.
        drop_nan: leave groups out that hold a NaN reward; otherwise they are an error.

    Raises:
        ValueError: NaN rewards, a group of another size, or advantages for some rows only.
    """
    notes = list(notes)
    bad = {rollout.group for rollout in rollouts if not math.isfinite(rollout.reward)}
    if bad and not drop_nan:
        first = next(r for r in rollouts if not math.isfinite(r.reward))
        raise ValueError(
            f"{first.where}: reward is {first.reward} ({len(bad)} group(s) hold such a value): "
            "score these rollouts, or leave their groups out with --drop_nan."
        )
    if bad:
        rollouts = [rollout for rollout in rollouts if rollout.group not in bad]
        notes.append(f"{len(bad)} group(s) with a NaN reward were left out.")
    if not rollouts:
        raise ValueError("no rollouts are left: every group holds a NaN reward.")
    _check_sizes(rollouts, num_generations, notes)
    _tell_repeated(rollouts, notes)
    numbers: dict[Hashable, int] = {}
    group_N = np.array([numbers.setdefault(r.group, len(numbers)) for r in rollouts], np.int64)
    without = [rollout for rollout in rollouts if rollout.advantage is None]
    if without and len(without) < len(rollouts):
        raise ValueError(
            f"{without[0].where}: no advantage, but other rows have one ({len(without)} of "
            f"{len(rollouts)} lack it): give all of them or none."
        )
    if without:
        rewards_N = np.array([rollout.reward for rollout in rollouts], dtype=np.float64)
        advantages_N = grpo_advantages(rewards_N, group_N)
    else:
        advantages_N = np.array([r.advantage for r in rollouts], dtype=np.float64)
    for row in np.flatnonzero(~np.isfinite(advantages_N)).tolist():
        raise ValueError(
            f"{rollouts[row].where}: advantage is {advantages_N[row]}; leave the row's group out."
        )
    return LoggedRollouts(
        tuple(formats), rollouts, group_N, advantages_N, not without, tuple(notes)
    )


def _check_sizes(rollouts: list[Rollout], num_generations: int | None, notes: list[str]) -> None:
    sizes = Counter(rollout.group for rollout in rollouts)
    if num_generations is not None:
        wrong = {group: size for group, size in sizes.items() if size != num_generations}
        for group, size in wrong.items():
            first = next(rollout for rollout in rollouts if rollout.group == group)
            raise ValueError(
                f"{first.where}: its group has {size} rollouts, not --num_generations "
                f"{num_generations} ({len(wrong)} such group(s) of {len(sizes)}): give the true "
                "number, or leave the option out."
            )
    if min(sizes.values()) != max(sizes.values()):
        notes.append(
            f"Group sizes differ: {min(sizes.values())} to {max(sizes.values())} rollouts."
        )


def _tell_repeated(rollouts: list[Rollout], notes: list[str]) -> None:
    """Note groups that were logged again: figures over all groups count them again."""
    groups: dict[Hashable, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    contents = [
        tuple((r.prompt, r.completion or tuple(r.token_ids or ()), r.reward) for r in group)
        for group in groups.values()
    ]
    # Groups in which most answers are the same may well come out alike by chance.
    telling = [content for content in contents if len(set(content)) > len(content) / 2]
    repeated = len(telling) - len(set(telling))
    if repeated:
        notes.append(
            f"{repeated} of {len(groups)} groups repeat an earlier one word for word, rewards "
            "included: the figures count them again."
        )


def grpo_advantages(
    rewards_N: npt.NDArray[np.float64], group_N: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """(reward - mean) / (standard deviation + 1e-4) of the full group, Bessel-corrected.

    Args:
        rewards_N: (N,) finite rewards.
        group_N: (N,) group numbers in [0, G).

    Returns:
        (N,) float64; 0 in a group of one.

    Source: GRPO, arXiv 2402.03300, with TRL's constants.
    """
    sizes_G = np.bincount(group_N)
    mean_G = np.bincount(group_N, rewards_N) / sizes_G
    centred_N = rewards_N - mean_G[group_N]
    # [0.1] * 3 has a mean that is not 0.1: noise must not become an advantage of full size.
    centred_N[np.abs(centred_N) <= 1e-12 * np.abs(rewards_N)] = 0.0
    variance_G = np.bincount(group_N, centred_N**2) / np.maximum(sizes_G - 1, 1)
    advantages: npt.NDArray[np.float64] = centred_N / (np.sqrt(variance_G)[group_N] + 1e-4)
    return advantages


def as_field(row: Row, name: str) -> Any:
    """Field `name` of a row.

    Raises:
        ValueError: the row has no such field.
    """
    if name not in row.values:
        raise ValueError(
            f"{row.where}: no field {name!r}; it has {', '.join(sorted(row.values))}. If it goes "
            f"by another name, say so: --fields {name}=THEIR_NAME."
        )
    return row.values[name]


def as_number(row: Row, name: str) -> float:
    """Field `name` of a row as a float; null is NaN.

    Raises:
        ValueError: it is absent, or no number.
    """
    value = as_field(row, name)
    if value is None:
        return math.nan
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(f"{row.where}: {name} = {value!r}: expected a number.")


def as_key(row: Row, name: str) -> Hashable:
    """Field `name` of a row, which tells groups apart.

    Raises:
        ValueError: it is absent, or neither text nor a number.
    """
    value = as_field(row, name)
    if not isinstance(value, (str, int, float)):
        raise ValueError(
            f"{row.where}: {name} = {value!r}: expected text or a number, one value a group."
        )
    return value


def as_step(row: Row) -> int:
    """Field `step` of a row as an integer, 0 where there is none.

    Raises:
        ValueError: it is no whole number.
    """
    value = row.values.get("step", 0)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # math.isfinite first: NaN and infinity have no int.
    if not is_number or not math.isfinite(value) or value != int(value):
        raise ValueError(f"{row.where}: step = {value!r}: expected a whole number.")
    return int(value)


def as_text(value: Any) -> str:
    """A prompt or completion as text; conversations turn by turn, pictures as `<image>`."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return as_text(value.get("content"))
    if isinstance(value, list):
        return "\n".join(_turn(part) for part in value)
    return str(value)


def _turn(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "image":
        return "<image>"
    if isinstance(part, dict) and "text" in part and "content" not in part:
        return str(part["text"] or "")
    return as_text(part)
