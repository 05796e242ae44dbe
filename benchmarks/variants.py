"""What other choices inside differential pruning would do to the gradient.

Each variant selects from the same rollouts; told are the kept share and the squared distance of its
gradient from the full batch's, over the full gradient's squared norm (mean over draws of seeds), so
that a variant is better where less is kept at the same distance. Beside it stands what another draw
of prompts would do. The gradients are those of `gradients.py`, taken once. Variants:

- similarity on sets of 2- and 3-grams in place of tokens;
- the seed of a bucket: drawn, its first, its most typical member;
- clusters: "different" members that duplicate one another stand for one another, too;
- so many members of each bucket by chance, without looking at texts.

    python benchmarks/variants.py
    python benchmarks/variants.py --policy runs/toy/model
    python benchmarks/variants.py --recorded rollouts.jsonl.gz --field reward --model runs/smollm2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gradients import Batch, recorded_batch, toy_batch

from fastrl.core import DifferentialPruning, Rollouts, prune
from fastrl.core.similarity import token_set_jaccard
from fastrl.geometry.toy import STARTING_POLICY

THRESHOLDS = (0.2, 0.5, 0.8)
PER_BUCKET = (1, 2, 3)
DECIMALS = 4


@dataclass(frozen=True)
class Row:
    """A line of the table: (N,) factors of the rollouts' gradients for each draw."""

    name: str
    setting: str
    factors_SN: npt.NDArray[np.float64]

    def told(self, batch: Batch) -> str:
        """Markdown."""
        full_N = np.full(len(batch.lengths_N), 1 / len(batch.lengths_N))
        off_SN = self.factors_SN - full_N
        norm = full_N @ batch.gram_NN @ full_N
        each = np.einsum("sn,nm,sm->s", off_SN, batch.gram_NN, off_SN) / norm
        mean_N = off_SN.mean(axis=0)
        bias = mean_N @ batch.gram_NN @ mean_N / norm
        kept = np.mean(self.factors_SN > 0)
        return f"| {self.name} | {self.setting} | {kept:.0%} | {each.mean():.3f} | {bias:.3f} |"


def ngrams(rows: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Token ids -> ids of their n-grams (the whole row where it is shorter)."""
    ids: dict[tuple[int, ...], int] = {}
    found = []
    for row in rows:
        tokens = [int(token) for token in row]
        parts = [tuple(tokens[i : i + size]) for i in range(max(1, len(tokens) - size + 1))]
        found.append([ids.setdefault(part, len(ids)) for part in parts])
    return found


def buckets(rollouts: Rollouts) -> list[npt.NDArray[np.int64]]:
    """Rows of equal group and equal advantage."""
    keys = list(
        zip(rollouts.group_ids.tolist(), rollouts.advantages.round(DECIMALS).tolist(), strict=True)
    )
    return [
        np.array([i for i, other in enumerate(keys) if other == key]) for key in dict.fromkeys(keys)
    ]


def similarities(rollouts: Rollouts, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(b, b) between all members of a bucket."""
    first, second = np.meshgrid(rows, rows, indexing="ij")
    flat = token_set_jaccard(rollouts.completion_ids, first.ravel(), second.ravel())
    return flat.reshape(len(rows), len(rows))


def typical_first(rollouts: Rollouts) -> npt.NDArray[np.int64]:
    """(N,) an order of rows in which each bucket's most typical member comes first."""
    order = np.arange(len(rollouts))
    for rows in buckets(rollouts):
        mean_b = similarities(rollouts, rows).mean(axis=1)
        order[rows] = rows[np.argsort(-mean_b, kind="stable")]
    return order


def clusters(rollouts: Rollouts, threshold: float) -> list[npt.NDArray[np.int64]]:
    """Each bucket in parts: a row joins the first part whose leader it is similar to."""
    parts = []
    for rows in buckets(rollouts):
        similar = similarities(rollouts, rows) >= threshold
        leaders: list[int] = []
        members: list[list[int]] = []
        for i in range(len(rows)):
            place = next((p for p, leader in enumerate(leaders) if similar[i, leader]), None)
            if place is None:
                leaders.append(i)
                members.append([i])
            else:
                members[place].append(i)
        parts += [rows[one] for one in members]
    return parts


def drawn(
    parts: list[npt.NDArray[np.int64]], each: int, total: int, draws: int
) -> npt.NDArray[np.float64]:
    """(S, N) factors: of each part so many members by chance, who carry its weight."""
    factors_SN = np.zeros((draws, total))
    for seed in range(draws):
        generator = np.random.default_rng(seed)
        for rows in parts:
            chosen = generator.permutation(rows)[:each]
            factors_SN[seed, chosen] = len(rows) / len(chosen) / total
    return factors_SN


def pruned(
    rollouts: Rollouts, threshold: float, weighting: str, draws: int
) -> npt.NDArray[np.float64]:
    """(S, N) factors of differential pruning as it is."""
    factors = []
    for seed in range(draws if weighting == "exact" else 1):
        rule = DifferentialPruning(threshold, DECIMALS)
        chosen = prune(rollouts, rule, weighting=weighting, seed=seed)  # type: ignore[arg-type]
        factors_N = np.zeros(len(rollouts))
        total = len(rollouts) if weighting == "exact" else len(chosen.keep)
        factors_N[chosen.keep] = chosen.weights / total
        factors.append(factors_N)
    return np.array(factors)


def standing_for(rollouts: Rollouts, threshold: float) -> npt.NDArray[np.float64]:
    """(1, N) factors under "kept" with each seed carrying those that it stands for."""
    rule = DifferentialPruning(threshold, DECIMALS)
    chosen = prune(rollouts, rule, weighting="kept")
    counts_N = np.zeros(len(rollouts))
    counts_N[chosen.keep] = 1.0
    np.add.at(counts_N, chosen.duplicate_of[chosen.duplicate_of >= 0], 1.0)
    return (counts_N / len(rollouts))[None]


def reordered(rollouts: Rollouts, order: npt.NDArray[np.int64]) -> Rollouts:
    return Rollouts(
        rollouts.group_ids[order],
        rollouts.advantages[order],
        [rollouts.completion_ids[row] for row in order.tolist()],
    )


def repeated_paths(rollouts: Rollouts, threshold: float) -> str:
    """How many kept as another path are no other path than one kept before them."""
    chosen = prune(rollouts, DifferentialPruning(threshold, DECIMALS), weighting="kept")
    different = np.flatnonzero(chosen.reason == "different")
    repeats = 0
    for rows in buckets(rollouts):
        here = rows[np.isin(rows, different)]
        if len(here) > 1:
            similar = np.tril(similarities(rollouts, here) >= threshold, k=-1)
            repeats += int(similar.any(axis=1).sum())
    return f"{repeats} of {len(different)}"


def prompt_noise(batch: Batch) -> float:
    """The squared distance that another draw of prompts would make, in the unit of the table.

    The variance of the mean of the groups' gradients over the squared norm of that mean.
    """
    groups = np.unique(batch.rollouts.group_ids)
    in_group_GN = (batch.rollouts.group_ids == groups[:, None]).astype(np.float64)
    in_group_GN /= in_group_GN.sum(axis=1, keepdims=True)
    gram_GG = in_group_GN @ batch.gram_NN @ in_group_GN.T
    spread = np.trace(gram_GG) - gram_GG.mean() * len(groups)
    return float(spread / (len(groups) - 1) / len(groups) / gram_GG.mean())


def table(batch: Batch, draws: int) -> list[str]:
    """Markdown, a line a variant."""
    rollouts, total = batch.rollouts, len(batch.rollouts)
    lines = ["| variant | setting | kept | distance | of it bias |", "|---|---|---|---|---|"]
    order = typical_first(rollouts)
    typical = reordered(rollouts, order)
    back = np.argsort(order)
    found = []
    for threshold in THRESHOLDS:
        name = f"threshold {threshold:g}"
        found.append(Row("exact: seed drawn", name, pruned(rollouts, threshold, "exact", draws)))
        found.append(
            Row(
                "clusters, one drawn of each",
                name,
                drawn(clusters(rollouts, threshold), 1, total, draws),
            )
        )
        found.append(Row("kept: first is seed", name, pruned(rollouts, threshold, "kept", 1)))
        found.append(
            Row("kept: most typical is seed", name, pruned(typical, threshold, "kept", 1)[:, back])
        )
        found.append(
            Row("first is seed, stands for its duplicates", name, standing_for(rollouts, threshold))
        )
        found.append(
            Row(
                "most typical is seed, stands for its duplicates",
                name,
                standing_for(typical, threshold)[:, back],
            )
        )
        for size in (2, 3):
            grams = replace_ids(rollouts, ngrams(rollouts.completion_ids, size))
            found.append(
                Row(f"exact on {size}-grams", name, pruned(grams, threshold, "exact", draws))
            )
    for each in PER_BUCKET:
        parts = buckets(rollouts)
        found.append(Row("any of each reward", f"{each}", drawn(parts, each, total, draws)))
    return lines + [row.told(batch) for row in found]


def replace_ids(rollouts: Rollouts, ids: list[list[int]]) -> Rollouts:
    return Rollouts(rollouts.group_ids, rollouts.advantages, ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default=str(STARTING_POLICY), help="folder of a toy policy")
    parser.add_argument("--prompts", type=int, default=32, help="toy prompts")
    parser.add_argument("--samples", type=int, default=8, help="toy rollouts of each")
    parser.add_argument("--draws", type=int, default=500, help="draws of seeds")
    parser.add_argument("--seed", type=int, default=1, help="of the toy's pictures and samples")
    parser.add_argument("--recorded", type=Path, help="a JSONL file of recorded groups instead")
    parser.add_argument("--field", default="rewards", help="its field with a reward per response")
    parser.add_argument("--groups", type=int, default=12, help="recorded groups with contrast")
    parser.add_argument("--model", default="", help="folder of the model for recorded groups")
    options = parser.parse_args()
    if options.recorded is not None:
        batch = recorded_batch(options.recorded, options.model, options.groups, options.field)
    else:
        batch = toy_batch(options.prompts, options.samples, options.seed, options.policy)
    print(f"Another draw of prompts: {prompt_noise(batch):.3f}.")
    for threshold in THRESHOLDS:
        told = repeated_paths(batch.rollouts, threshold)
        print(f"Other paths that repeat one another at threshold {threshold:g}: {told}.")
    print("\n".join(["", *table(batch, options.draws)]))


if __name__ == "__main__":
    main()
