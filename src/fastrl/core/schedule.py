"""AdaptiveRollouts: how many rollouts a prompt gets follows what pruning kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core.validation import describe_rows, is_int, is_number, raise_problems

STATE_VERSION = 1
SETTINGS = ("num_generations", "min_generations", "steps_per_epoch", "total_steps")


class AdaptiveRollouts:
    """The number of rollouts per prompt, lowered when pruning keeps less than it used to.

    A step is one generation batch; an epoch is one pass over the prompts. Each step records f1,
    the mean, and f2, the largest number of rows kept per prompt. At the first step of every
    epoch but the first, with a = steps so far / total steps, the means of f1 and f2 since the
    last time blend into f3 = a f1 + (1 - a) f2; the first time also sets the yardstick
    g1 = (f1 + f2) / 2. From the next step on a prompt gets n0 rollouts where f3 >= g1, else
    n0 - (g1 - f3) rounded half to even and clipped to [min_generations, n0].

    Args:
        num_generations: n0, rollouts per prompt at the start, at least `min_generations`.
        min_generations: the floor, at least 2: below it a group has no contrast.
        steps_per_epoch: generation batches in one pass over the prompts.
        total_steps: generation batches in the whole run; steps beyond it count as the last.

    Raises:
        ValueError: lists every setting that is wrong.

    Source: the FastRL paper, adaptive rollout sampling.
    """

    def __init__(
        self,
        num_generations: int,
        min_generations: int = 2,
        steps_per_epoch: int | None = None,
        total_steps: int | None = None,
    ) -> None:
        problems = []
        if not is_int(min_generations) or min_generations < 2:
            problems.append(f"min_generations = {min_generations!r}: expected at least 2")
        elif not is_int(num_generations) or num_generations < min_generations:
            problems.append(
                f"num_generations = {num_generations!r}: expected an integer of at least"
                f" min_generations = {min_generations}"
            )
        for name, value, remedy in (
            ("steps_per_epoch", steps_per_epoch, "ceil(prompts / prompts per generation batch)"),
            ("total_steps", total_steps, "steps_per_epoch * epochs"),
        ):
            if not is_int(value) or value < 1:
                problems.append(
                    f"{name} = {value!r}: expected an integer of at least 1; give {remedy}, or"
                    " for a data set without a length the number you intend, or turn adaptive"
                    " rollouts off"
                )
        raise_problems("AdaptiveRollouts", problems)
        self._settings: dict[str, int] = {
            name: int(value)
            for name, value in zip(
                SETTINGS,
                (num_generations, min_generations, steps_per_epoch, total_steps),
                strict=True,
            )
            if value is not None
        }
        self._steps_recorded = 0
        self._pending: list[tuple[float, float]] = []
        self._yardstick: float | None = None
        self._signal: float | None = None

    @property
    def num_generations(self) -> int:
        """Rollouts per prompt for the step about to run."""
        most, least = self._settings["num_generations"], self._settings["min_generations"]
        if self._signal is None or self._yardstick is None or self._signal >= self._yardstick:
            return most
        return min(most, max(least, round(most - (self._yardstick - self._signal))))

    def record(self, kept_per_group: Sequence[int] | npt.NDArray[Any]) -> None:
        """Tell what one step kept.

        Args:
            kept_per_group: (G,) rows kept of each prompt, refill included, G at least 1.

        Raises:
            ValueError: not a vector of counts, empty, or negative.
        """
        kept_G = np.asarray(kept_per_group)
        problems = []
        if kept_G.ndim != 1 or not len(kept_G):
            problems.append(f"kept_per_group: shape {kept_G.shape}; expected (G,) with G >= 1")
        elif kept_G.dtype.kind not in "iu":
            problems.append(f"kept_per_group: type {kept_G.dtype}; expected integers")
        else:
            bad = np.flatnonzero(kept_G < 0).tolist()
            problems += describe_rows("kept_per_group", bad, kept_G, "a count is not negative")
        raise_problems("AdaptiveRollouts.record", problems)
        self._pending.append((float(kept_G.sum()) / len(kept_G), float(kept_G.max())))
        step = self._steps_recorded
        self._steps_recorded += 1
        if step > 0 and step % self._settings["steps_per_epoch"] == 0:
            self._close_period()

    def _close_period(self) -> None:
        mean_kept = sum(mean for mean, _ in self._pending) / len(self._pending)
        max_kept = sum(largest for _, largest in self._pending) / len(self._pending)
        progress = min(1.0, self._steps_recorded / self._settings["total_steps"])
        self._signal = progress * mean_kept + (1 - progress) * max_kept
        if self._yardstick is None:
            self._yardstick = (mean_kept + max_kept) / 2
        self._pending = []

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, JSON-serialisable and versioned."""
        return {
            "version": STATE_VERSION,
            "settings": dict(self._settings),
            "steps_recorded": self._steps_recorded,
            "last_epoch": self._last_epoch(self._steps_recorded),
            "pending": [list(pair) for pair in self._pending],
            "yardstick": self._yardstick,
            "signal": self._signal,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; nothing changes where it is refused.

        Args:
            state: what `state_dict` gave, also after a round trip through JSON.

        Raises:
            ValueError: lists what is malformed, of another version, or differs from this
                schedule's settings.
        """
        problems = self._state_problems(state)
        raise_problems("AdaptiveRollouts.load_state_dict", problems)
        self._steps_recorded = state["steps_recorded"]
        self._pending = [(float(mean), float(largest)) for mean, largest in state["pending"]]
        self._yardstick = None if state["yardstick"] is None else float(state["yardstick"])
        self._signal = None if state["signal"] is None else float(state["signal"])

    def _last_epoch(self, steps_recorded: int) -> int:
        """The epoch (from 0) of the last step recorded; also how many periods were closed."""
        return max(0, steps_recorded - 1) // self._settings["steps_per_epoch"]

    def _state_problems(self, state: Mapping[str, Any]) -> list[str]:
        if not isinstance(state, Mapping):
            return [f"state is a {type(state).__name__}: expected what state_dict() gave"]
        if state.get("version") != STATE_VERSION:
            found = state.get("version")
            return [f"version = {found!r}: this release reads version {STATE_VERSION}"]
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            return [f"{name}: missing" for name in missing]
        problems = self._settings_problems(state["settings"])
        steps = state["steps_recorded"]
        if not is_int(steps) or steps < 0:
            return [*problems, f"steps_recorded = {steps!r}: expected an integer of at least 0"]
        last_epoch = self._last_epoch(steps)
        if state["last_epoch"] != last_epoch:
            found = state["last_epoch"]
            problems.append(f"last_epoch = {found!r}: expected {last_epoch} after {steps} steps")
        problems += _blend_problems(state, last_epoch)
        # A period closes with the first step of an epoch, which is then no longer pending.
        closed = last_epoch * self._settings["steps_per_epoch"] + 1 if last_epoch else 0
        return problems + _pending_problems(state["pending"], steps - closed)

    def _settings_problems(self, settings: object) -> list[str]:
        if not isinstance(settings, Mapping):
            return [f"settings is a {type(settings).__name__}: expected a mapping"]
        return [
            f"settings.{name} = {settings.get(name)!r}: this schedule has {own}"
            for name, own in self._settings.items()
            if settings.get(name) != own
        ]


def prolonged(state: Mapping[str, Any], schedule: AdaptiveRollouts) -> Mapping[str, Any]:
    """The state for a run of another length: its total steps become the schedule's.

    How far the run is only blends two means; a run may be prolonged, its groups may not change.

    Returns:
        The state itself where the lengths agree (or it is malformed), else a changed copy.
    """
    settings = state.get("settings")
    total_steps = schedule.state_dict()["settings"]["total_steps"]
    if not isinstance(settings, Mapping) or settings.get("total_steps", total_steps) == total_steps:
        return state
    return {**state, "settings": {**settings, "total_steps": total_steps}}


def _is_count_like(value: object) -> bool:
    return is_number(value) and bool(0 <= value < float("inf"))


def _blend_problems(state: Mapping[str, Any], last_epoch: int) -> list[str]:
    problems = []
    for name in ("yardstick", "signal"):
        value = state[name]
        if last_epoch == 0 and value is not None:
            problems.append(f"{name} = {value!r}: expected None in the first epoch")
        if last_epoch > 0 and not _is_count_like(value):
            problems.append(f"{name} = {value!r}: expected a finite number of at least 0")
    return problems


def _pending_problems(pending: object, expected_length: int) -> list[str]:
    if not isinstance(pending, Sequence) or isinstance(pending, str):
        return [f"pending is a {type(pending).__name__}: expected a list of [mean, max] pairs"]
    problems = []
    if len(pending) != expected_length:
        problems.append(f"pending has {len(pending)} records: expected {expected_length}")
    bad = [
        row
        for row, pair in enumerate(pending)
        if not isinstance(pair, Sequence)
        or len(pair) != 2
        or not all(_is_count_like(value) for value in pair)
    ]
    return problems + describe_rows("pending", bad, pending, "expected [mean, max], both >= 0")
