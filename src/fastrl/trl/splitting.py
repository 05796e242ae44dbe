"""The kept rows of a generation batch as micro-batches, each with what its loss counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastrl.core import Selection
from fastrl.trl.batch import select_rows, trim_padding
from fastrl.trl.group_dealing import (
    LEAST_RATIO,
    RowFacts,
    deal_group_ranks,
    deal_group_windows,
    plan_group_window,
)
from fastrl.trl.merging import blank_row, merge_rows
from fastrl.trl.planning import Part, SplitPlan, deal_ranks, deal_windows, plan_window
from fastrl.trl.ranks import GlobalRows, moves_between, receive_batch, send_batch
from fastrl.trl.weighting import (
    SHARE_KEY,
    BatchTotals,
    MicroBatchShare,
    items_in_batch,
    loss_factor,
)


@dataclass(frozen=True)
class _Pool:
    """The kept rows that this process updates on: some of its own, some of other processes."""

    batch: dict[str, Any] | None
    place_of: dict[int, int]  # from a row's number in the global batch


def split_kept_rows(
    output: dict[str, Any],
    rows: GlobalRows,
    selection: Selection,
    plan: SplitPlan,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Deal the kept rows to `windows x micro_batches` micro-batches of this process.

    Every process must call it with the same `rows`, `selection` and `rng`: rows that another one
    updates on are sent there.

    Args:
        output: the rollouts of this process, scored, as TRL returns them.
        rows: the N rollouts of all processes.
        selection: which K of them are kept, and their weights.
        plan: how the batch is split.
        rng: shuffles rows of equal length, or groups.

    Returns:
        One dict a micro-batch: TRL's inputs for its rows, `num_items_in_batch` as its loss needs
        it, and under `SHARE_KEY` a `MicroBatchShare`. One without rows holds only its share;
        the last has a filler there where gradients of earlier batches may wait for it.
    """
    keep, device = selection.keep, output["completion_ids"].device
    tokens_K, home_K = rows.loss_tokens_N[keep], rows.places.home_N[keep]
    windows, rank_K, parts_W = _deal(rows, selection, plan, rng)
    pool = _exchange(output, rows, keep, home_K, rank_K, plan)
    full = BatchTotals(len(rows), float(rows.loss_tokens_N.sum()))
    micro_batches: list[dict[str, Any]] = []
    for rows_W, parts in zip(windows, parts_W, strict=True):
        totals = BatchTotals(len(rows_W), float(tokens_K[rows_W].sum()))
        for part in parts:
            if not part.size:
                micro_batches.append({SHARE_KEY: MicroBatchShare(rows=0)})
                continue
            micro = trim_padding(
                _with_blanks(output, pool, keep[part.rows_P], part, plan), plan.pad_to_multiple_of
            )
            micro["num_items_in_batch"] = items_in_batch(
                plan.weighting, totals, output["num_items_in_batch"], plan.windows
            )
            weights_R = np.concatenate([selection.weights[part.rows_P], np.zeros(part.blanks)])
            micro[SHARE_KEY] = MicroBatchShare(
                rows=part.size,
                blanks=part.blanks,
                loss_factor=loss_factor(
                    plan.loss_type,
                    plan.weighting,
                    BatchTotals(part.size, float(tokens_K[part.rows_P].sum())),
                    totals,
                    full,
                    plan.windows,
                    # TRL divides by a process's micro-batches; gradients are means over processes.
                    plan.micro_batches * plan.ranks,
                ),
                weights_R=(
                    torch.as_tensor(weights_R, device=device) if plan.weighting == "exact" else None
                ),
            )
            micro_batches.append(micro)
    if plan.ranks > 1 and plan.spans_batches and not micro_batches[-1][SHARE_KEY].rows:
        filler = trim_padding(blank_row(output), plan.pad_to_multiple_of)
        micro_batches[-1] = {SHARE_KEY: MicroBatchShare(rows=0, filler=filler)}
    return micro_batches


def _deal(
    rows: GlobalRows, selection: Selection, plan: SplitPlan, rng: np.random.Generator
) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], list[list[Part]]]:
    """Rows of each window, the process of each kept row, and this one's micro-batches by window."""
    keep = selection.keep
    lengths_K, home_K = rows.lengths_N[keep], rows.places.home_N[keep]
    prompt_K = rows.prompt_lengths_N[keep]
    num_generations = len(rows) // max(len(selection.kept_per_group), 1)
    facts = RowFacts(keep // max(num_generations, 1), prompt_K, lengths_K - prompt_K)
    if plan.keeps_groups is True or (plan.keeps_groups == "auto" and facts.ratio >= LEAST_RATIO):
        windows = deal_group_windows(facts, plan.windows, rng)
        rank_K = deal_group_ranks(windows, facts, home_K, plan)
        return windows, rank_K, [plan_group_window(w, facts, rank_K, plan) for w in windows]
    windows = deal_windows(lengths_K, plan.windows, rng)
    rank_K = deal_ranks(windows, lengths_K, home_K, plan.ranks)
    return windows, rank_K, [plan_window(w, lengths_K, rank_K, plan) for w in windows]


def _exchange(
    output: dict[str, Any],
    rows: GlobalRows,
    keep: npt.NDArray[np.int64],
    home_K: npt.NDArray[np.int64],
    rank_K: npt.NDArray[np.int64],
    plan: SplitPlan,
) -> _Pool:
    """Send away what other processes update on, and take in what this one does."""
    place_N = rows.places.place_N
    device = output["completion_ids"].device
    stays = keep[(home_K == plan.rank) & (rank_K == plan.rank)]
    numbers: list[int] = stays.tolist()
    batches = [select_rows(output, place_N[stays])] if len(stays) else []
    for move in moves_between(keep, home_K, rank_K):
        if move.source == plan.rank:
            send_batch(trim_padding(select_rows(output, place_N[move.rows_M])), move.target)
        elif move.target == plan.rank:
            batches.append(receive_batch(move.source, device))
            numbers += move.rows_M.tolist()
    return _Pool(
        batch=merge_rows(batches, plan.pad_token_id) if batches else None,
        place_of={number: place for place, number in enumerate(numbers)},
    )


def _with_blanks(
    output: dict[str, Any],
    pool: _Pool,
    numbers_P: npt.NDArray[np.int64],
    part: Part,
    plan: SplitPlan,
) -> dict[str, Any]:
    """The rows of a micro-batch by their numbers in the global batch, and its blank ones."""
    batches = []
    if pool.batch is not None and len(numbers_P):
        places = np.array([pool.place_of[number] for number in numbers_P.tolist()])
        batches.append(select_rows(pool.batch, places))
    if part.blanks:
        batches += [blank_row(output)] * part.blanks
    return merge_rows(batches, plan.pad_token_id)
