"""What counts as contrast, and one batch out of several rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fastrl.core import KeepAll, Rollouts, prune
from fastrl.trl.batch import select_rows
from fastrl.trl.scored_rounds import (
    DISCARDED,
    ScoredRound,
    groups_with_contrast,
    join_rounds,
    rows_of,
    shareable_groups,
    with_discarded,
    without_any,
)

NAN = float("nan")


def scored(
    rewards: list[list[float]], advantages: list[float] | None = None, width: int = 3
) -> ScoredRound:
    """A round whose row i has i + 1 prompt tokens and `width` completion tokens."""
    total = len(rewards)
    prompt_mask = torch.tensor(
        [[int(j >= total - i - 1) for j in range(total)] for i in range(total)]
    )
    ids = torch.arange(total * width).reshape(total, width) + 100 * width
    return ScoredRound(
        output={
            "prompt_ids": prompt_mask * 7,
            "prompt_mask": prompt_mask,
            "completion_ids": ids,
            "completion_mask": torch.ones_like(ids),
            "advantages": torch.tensor(advantages or [0.0] * total),
            "num_items_in_batch": torch.tensor(total * width),
        },
        completion_ids=list(ids.numpy()),
        rank=0,
        home_N=np.zeros(total, dtype=np.int64),
        rewards_NF=torch.tensor(rewards),
        advantages_N=np.array(advantages or [0.0] * total),
        pictures_N=[(f"picture {width}-{row}",) for row in range(total)],
        columns={("prompt",): [f"{width}-{row}" for row in range(total)], ("images",): []},
    )


def test_contrast_of_the_sum_is_that_of_the_advantages() -> None:
    # Two rewards that vary against one another: their sum does not.
    cancelling = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    round_ = scored(cancelling, [0.0, 0.00004, -0.7, 0.7])
    assert groups_with_contrast(round_, 2).tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "contrast"),
    [
        ([0.0, 1.0, 1.0, 1.0], [True, False]),
        ([0.5, 0.50001, 0.5, 0.5002], [False, True]),
        ([NAN, NAN, NAN, 1.0], [False, False]),
        ([NAN, 0.0, 1.0, 0.0], [False, True]),
    ],
)
def test_contrast_of_one_reward(values: list[float], contrast: list[bool]) -> None:
    round_ = scored([[9.0 * row, value] for row, value in enumerate(values)], [1.0] * 4)
    assert groups_with_contrast(round_, 2, reward=1).tolist() == contrast


def test_rows_of_groups() -> None:
    assert rows_of(np.array([0, 2]), 3).tolist() == [0, 1, 2, 6, 7, 8]
    assert rows_of(np.array([], dtype=np.int64), 3).tolist() == []


@pytest.mark.parametrize(
    ("count", "num_generations", "ranks", "wanted"),
    [(5, 8, 1, 5), (5, 8, 4, 5), (5, 8, 16, 4), (5, 4, 3, 3), (2, 4, 3, 0), (5, 6, 4, 4)],
)
def test_every_process_has_as_many_rows(
    count: int, num_generations: int, ranks: int, wanted: int
) -> None:
    found = shareable_groups(count, num_generations, ranks)
    assert found == wanted
    assert found * num_generations % ranks == 0


def test_rounds_of_other_widths_become_one_batch() -> None:
    first, second = scored([[0.0]] * 2, width=2), scored([[1.0]] * 3, width=4)
    joined = join_rounds([first.select(np.array([1])), second.select(np.array([2, 0]))], 99)
    assert joined.output["completion_ids"].tolist() == [
        [202, 203, 99, 99],
        [408, 409, 410, 411],
        [400, 401, 402, 403],
    ]
    assert joined.output["completion_mask"].sum(dim=1).tolist() == [2, 4, 4]
    assert joined.output["prompt_ids"].tolist() == [[99, 7, 7], [7, 7, 7], [0, 0, 7]]
    assert joined.output["prompt_mask"].sum(dim=1).tolist() == [2, 3, 1]
    assert joined.columns == {("prompt",): ["2-1", "4-2", "4-0"], ("images",): []}
    assert joined.pictures_N == [("picture 2-1",), ("picture 4-2",), ("picture 4-0",)]
    assert joined.rewards_NF.tolist() == [[0.0], [1.0], [1.0]]
    assert joined.completion_ids[0].tolist() == [202, 203]


def test_each_process_has_its_own_rows_and_knows_of_all() -> None:
    whole = scored([[0.0], [1.0], [2.0], [3.0]])
    parts = [
        replace(
            whole,
            output=select_rows(whole.output, np.array(mine)),
            completion_ids=[whole.completion_ids[row] for row in mine],
            rank=rank,
            home_N=np.array([0, 0, 1, 1]),
        )
        for rank, mine in enumerate(([0, 1], [2, 3]))
    ]
    chosen = [part.select(np.array([1, 2, 3])) for part in parts]
    assert [len(part) for part in chosen] == [3, 3]
    assert [ids.tolist() for ids in chosen[0].completion_ids] == [[303, 304, 305]]
    assert [ids.tolist() for ids in chosen[1].completion_ids] == [[306, 307, 308], [309, 310, 311]]
    assert chosen[1].output["completion_ids"].tolist() == [[306, 307, 308], [309, 310, 311]]
    for rank, others in ((0, []), (1, [[306, 307, 308]])):
        joined = join_rounds([chosen[rank].select(np.array([1])), chosen[rank]], 99)
        assert joined.home_N.tolist() == [1, 0, 1, 1]
        assert joined.rewards_NF.flatten().tolist() == [2.0, 1.0, 2.0, 3.0]
        assert [ids.tolist() for ids in joined.completion_ids][: len(others)] == others
        assert len(joined.output["completion_ids"]) == (1 if rank == 0 else 3)
    none = join_rounds([parts[0].select(np.array([2, 3]))], 99)
    assert none.output == {}
    assert len(none) == 2


def test_a_column_that_a_round_lacks_is_empty_there() -> None:
    first, second = scored([[0.0]]), scored([[1.0]] * 2)
    second.columns["extra", "note"] = ["a", "b"]
    joined = join_rounds([first, second], 99)
    assert joined.columns["extra", "note"] == [None, "a", "b"]


def test_accepted_groups_and_those_that_are_only_told_of() -> None:
    whole = scored([[float(row)] for row in range(6)])
    accepted, told = whole.parted(np.array([True, False, True]), 2)
    assert accepted.rewards_NF.flatten().tolist() == [0.0, 1.0, 4.0, 5.0]
    assert len(accepted.output["completion_ids"]) == 4
    assert told.rewards_NF.flatten().tolist() == [2.0, 3.0]
    assert told.output == {}
    everything, nothing = whole.parted(np.array([True] * 3), 2)
    assert (len(everything), len(nothing), nothing.output) == (6, 0, {})
    joined = join_rounds([told, nothing, told], 99)
    assert (len(joined), joined.output) == (4, {})
    assert joined.columns["prompt",] == ["3-2", "3-3"] * 2


def test_selections_with_discarded_rows() -> None:
    kept = prune(Rollouts([0, 0, 1, 1], [1.0, -1.0, 0.5, -0.5], [[1], [2], [3], [4]]), KeepAll())
    told = with_discarded(kept, num_rows=2, num_generations=2)
    assert told.keep.tolist() == [0, 1, 2, 3]
    assert told.reason.tolist() == ["rule"] * 4 + [DISCARDED] * 2
    assert told.group_ids.tolist() == [0, 1, 2]
    assert told.kept_per_group.tolist() == [2, 2, 0]
    assert told.informative_per_group.tolist() == [True, True, False]
    none = without_any(kept)
    assert none.keep.tolist() == []
    assert none.kept_per_group.tolist() == [0, 0]
    assert none.reason.tolist() == [DISCARDED] * 4
