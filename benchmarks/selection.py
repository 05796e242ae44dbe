"""Time prune() on one core: selection must cost next to nothing beside a training step.

Worst case by design: two distinct advantages a group, so nearly every row is compared with a
seed, and token ids of a large vocabulary with natural-language frequencies.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrl.core import DifferentialPruning, Rollouts, prune

GROUP_SIZE = 8
# (rollouts, tokens per rollout, limit in milliseconds where one is promised)
SIZES: tuple[tuple[int, int, float | None], ...] = (
    (2048, 512, None),
    (2048, 1024, 60.0),
    (2048, 2048, None),
    (16384, 1024, None),
    (16384, 2048, 1500.0),
)


def zipf_tokens(
    num_rollouts: int, num_tokens: int, vocabulary: int, rng: np.random.Generator
) -> list[npt.NDArray[Any]]:
    """Rows of token ids with frequency 1 / rank, ranks scattered over the vocabulary."""
    cumulative = np.cumsum(1.0 / np.arange(1, vocabulary + 1))
    ids = rng.permutation(vocabulary)
    return [
        ids[np.searchsorted(cumulative, rng.random(num_tokens) * cumulative[-1])]
        for _ in range(num_rollouts)
    ]


def median_milliseconds(rollouts: Rollouts, weighting: str, repeats: int) -> float:
    """Median time of one prune() after a warm-up call."""
    rule = DifferentialPruning()
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        prune(rollouts, rule, multiple_of=8, weighting=weighting)  # type: ignore[arg-type]
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=7, help="timed calls per size, after one to warm up"
    )
    parser.add_argument("--vocabulary", type=int, default=150_000, help="distinct token ids")
    parser.add_argument("--weighting", choices=("kept", "exact"), default="kept")
    parser.add_argument("--dtype", choices=("int32", "int64"), default="int64", help="of tokens")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    missed: list[str] = []
    previous: tuple[int, int, float] | None = None
    print(f"prune(), {arguments.weighting!r}, groups of {GROUP_SIZE}, median of", end=" ")
    print(f"{arguments.repeats}, vocabulary {arguments.vocabulary}\n")
    header = ("rollouts", "tokens", "input ms", "prune ms", "ns/token", "x2 ratio", "limit ms")
    print(" ".join(f"{name:>9}" for name in header))
    for num_rollouts, num_tokens, limit in SIZES:
        tokens = zipf_tokens(num_rollouts, num_tokens, arguments.vocabulary, rng)
        tokens = [row.astype(arguments.dtype, copy=False) for row in tokens]
        group_ids = np.arange(num_rollouts) // GROUP_SIZE
        advantages = np.where(rng.random(num_rollouts) < 0.5, 1.0, -1.0)
        start = time.perf_counter()
        rollouts = Rollouts(group_ids, advantages, tokens)
        build = 1000 * (time.perf_counter() - start)
        elapsed = median_milliseconds(rollouts, arguments.weighting, arguments.repeats)
        ratio = ""
        if previous and previous[:2] == (num_rollouts, num_tokens // 2):
            ratio = f"{elapsed / previous[2]:.2f}"
        previous = (num_rollouts, num_tokens, elapsed)
        per_token = 1e6 * elapsed / (num_rollouts * num_tokens)
        told_limit = "" if limit is None else f"{limit:.0f}"
        print(
            f"{num_rollouts:>9} {num_tokens:>9} {build:>9.1f} {elapsed:>9.1f}"
            f" {per_token:>9.1f} {ratio:>9} {told_limit:>9}"
        )
        if limit is not None and elapsed > limit:
            missed.append(f"{num_rollouts} x {num_tokens}: {elapsed:.1f} ms, limit {limit:.0f} ms")
    if arguments.check and missed:
        print("limit missed: " + "; ".join(missed), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
