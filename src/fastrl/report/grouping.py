"""Finding groups in logs that do not name them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby

from fastrl.report.logged import Rollout

Block = list[Rollout]


def group_by_prompt(
    rollouts: Sequence[Rollout],
    num_generations: int | None,
    *,
    is_consecutive: bool,
    is_cut: bool = False,
) -> tuple[list[Rollout], list[str]]:
    """Set the group of every rollout from its prompt.

    Rows of one prompt within a step are a group, or several groups when the prompt came up more
    than once (as it does when only pictures differ): such rows are cut into equal groups.

    Args:
        rollouts: of one file, in its order.
        num_generations: group size; None finds it, the greatest common divisor of the numbers
            of rows per prompt in the step.
        is_consecutive: whether a group's rows stand together; otherwise they may be anywhere in
            the step.
        is_cut: whether the end of the file is missing: incomplete groups are then left out.

    Returns:
        The rollouts, those of incomplete groups left out, and what there is to say.

    Raises:
        ValueError: the rows of a prompt cannot be cut into groups of that size.
    """
    notes: dict[str, None] = {}
    by_step: dict[int, Block] = defaultdict(list)
    for rollout in rollouts:
        by_step[rollout.step].append(rollout)
    kept: list[Rollout] = []
    for step, rows in by_step.items():
        blocks = _consecutive(rows) if is_consecutive else _anywhere(rows)
        size = num_generations or _group_size(blocks, is_cut)
        if size == 1:
            lengths = sorted({len(block) for block in blocks})
            raise ValueError(
                f"{rows[0].where}: groups are not named, and the prompts of step {step} have "
                f"{', '.join(map(str, lengths[:8]))} rows each, which is no common group size: "
                "give it with --num_generations, or leave the incomplete step out."
            )
        for number, block in enumerate(blocks):
            if len(block) % size and is_cut:
                notes["Groups that the cut-off end left incomplete were left out."] = None
                continue
            if len(block) % size:
                raise ValueError(
                    f"{block[0].where}: this prompt has {len(block)} rows in step {step}, not a "
                    f"multiple of the group size {size}: rollouts are missing, or "
                    "--num_generations is another number."
                )
            for place, rollout in enumerate(block):
                rollout.group = (step, number, place // size)
            kept += block
            if len(block) > size:
                notes["A prompt with more rows than a group has was cut into groups."] = None
        if num_generations is None:
            notes[f"Groups found by prompt: {size} rollouts each."] = None
    return kept, list(notes)


def _group_size(blocks: list[Block], is_cut: bool) -> int:
    lengths = Counter(len(block) for block in blocks)
    if is_cut:
        return max(lengths, key=lambda length: (lengths[length], length))
    return math.gcd(*lengths)


def _consecutive(rows: Block) -> list[Block]:
    return [list(block) for _, block in groupby(rows, key=lambda row: row.prompt)]


def _anywhere(rows: Block) -> list[Block]:
    blocks: dict[str, Block] = defaultdict(list)
    for row in rows:
        blocks[row.prompt].append(row)
    return list(blocks.values())
