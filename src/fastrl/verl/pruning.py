"""From a scored generation batch to the rows that go on. Arrays only: no verl, no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastrl.core import Rollouts, Selection, Weighting, prune
from fastrl.verl.config import FastRLSettings

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """N rows of a generation batch, as they lie in the TransferQueue.

    A *session* is one rollout of a prompt. An agent loop may give several rows for it; they
    share its advantage, and it is kept or dropped whole.

    Attributes:
        keys: N keys `{uid}_{session}_{output}`; one uid a prompt occurrence.
        prompt_N: N names of prompts in the data set, which, unlike verl's uids, are the same in
            every run.
        advantages_N: (N,) from the full groups, the mean over the tokens that are trained on.
        rewards_N: (N,) sum of the row's rewards per token.
        token_rows: N rows of token ids that the policy wrote.
    """

    keys: Sequence[str]
    prompt_N: Sequence[str]
    advantages_N: FloatArray
    rewards_N: FloatArray
    token_rows: Sequence[npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What goes on of N rows in S sessions of G prompts.

    Attributes:
        keep: (K,) row numbers, prompt by prompt; which prompt comes first is drawn from the seed,
            so what an update sees does not depend on which rollout was finished first.
        weights: (K,) the factor of each kept row's whole loss.
        selection: what the core said of the sessions.
        num_generations: most sessions of a prompt.
        reward: mean reward over all S sessions, kept or not.
    """

    keep: IntArray
    weights: FloatArray
    selection: Selection
    num_generations: int
    reward: float

    def metrics(self) -> dict[str, float]:
        """The `fastrl/*` metrics of the step, phase times aside; rollouts are sessions."""
        selection = self.selection
        kept_G = selection.kept_per_group
        return {
            "fastrl/generated": float(len(selection.reason)),
            "fastrl/kept": float(len(selection.keep)),
            "fastrl/kept_before_refill": float(selection.num_before_refill),
            "fastrl/kept_per_prompt": float(kept_G.mean()),
            "fastrl/max_kept_per_prompt": float(kept_G.max()),
            "fastrl/num_generations": float(self.num_generations),
            "fastrl/groups_without_contrast": float(1 - selection.informative_per_group.mean()),
            "fastrl/reward": self.reward,
        }


@dataclass(frozen=True, order=True)
class _Session:
    """Rows of one rollout, in the order of its outputs; sessions sort by prompt, uid and number."""

    prompt: str
    uid: str
    number: int
    rows: tuple[int, ...]


def _find_sessions(keys: Sequence[str], prompt_N: Sequence[str]) -> list[_Session]:
    """The sessions of a batch, by prompt (and uid, where a prompt occurs twice) and number.

    The order does not depend on which rollout was finished first.

    Raises:
        ValueError: a key is not of the form `{uid}_{session}_{output}`.
    """
    rows_of: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row, key in enumerate(keys):
        parts = key.rsplit("_", 2)
        if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
            raise ValueError(f"key {key!r}: expected uid_session_output, as verl names rollouts")
        rows_of.setdefault((parts[0], int(parts[1])), []).append((int(parts[2]), row))
    sessions = [
        _Session(prompt_N[outputs[0][1]], uid, number, tuple(row for _, row in sorted(outputs)))
        for (uid, number), outputs in rows_of.items()
    ]
    return sorted(sessions)


def choose_rows(
    rows: ScoredRows,
    settings: FastRLSettings,
    *,
    multiple_of: int,
    seed: tuple[int, ...],
) -> KeptRows:
    """Apply the settings' rule to a generation batch.

    Refill is for "kept" and for one row a session; otherwise verl's own padding rows, which are
    shorter and count nothing, fill the batch up. Sessions without a token to train on teach
    nothing, so under "kept" the rule sees them last.

    Args:
        rows: N rows, at least one.
        settings: rule, weighting and the rest.
        multiple_of: what the number of kept rows should divide by.
        seed: of the draws, and of the order of the prompts.

    Raises:
        ValueError: a key that is not verl's; advantages that are not finite.
    """
    sessions = _find_sessions(rows.keys, rows.prompt_N)
    uids = list(dict.fromkeys(session.uid for session in sessions))
    group_of_uid = dict(
        zip(uids, np.random.default_rng(seed).permutation(len(uids)).tolist(), strict=True)
    )
    tokens = [
        np.concatenate([rows.token_rows[row] for row in session.rows]) for session in sessions
    ]
    if settings.weighting == "kept":
        order = sorted(range(len(sessions)), key=lambda place: len(tokens[place]) == 0)
        sessions, tokens = [sessions[i] for i in order], [tokens[i] for i in order]
    # Only the last output of a session has its final reward; all of them share the advantage.
    last = [session.rows[-1] for session in sessions]
    single = all(len(session.rows) == 1 for session in sessions)
    refills = single and settings.weighting == "kept"
    selection = prune(
        Rollouts(
            group_ids=np.array([group_of_uid[s.uid] for s in sessions], dtype=np.int64),
            advantages=rows.advantages_N[last],
            completion_ids=tokens,
        ),
        settings.rule(),
        multiple_of=multiple_of if refills else 1,
        weighting=cast(Weighting, settings.weighting),
        seed=seed,
        drop_uninformative=settings.drop_uninformative,
    )
    kept = sorted(
        (group_of_uid[sessions[place].uid], sessions[place], weight)
        for place, weight in zip(selection.keep.tolist(), selection.weights.tolist(), strict=True)
    )
    keep = [row for _, session, _ in kept for row in session.rows]
    return KeptRows(
        keep=np.array(keep, dtype=np.int64),
        weights=np.repeat([weight for *_, weight in kept], [len(s.rows) for _, s, _ in kept]),
        selection=selection,
        num_generations=max(Counter(session.uid for session in sessions).values()),
        reward=float(rows.rewards_N[last].mean()),
    )
