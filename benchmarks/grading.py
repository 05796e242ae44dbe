"""Time the answer grader on one core: a run grades millions of answers, most of them plain numbers.

Every timing grades new answers against new golds, so that no cache answers for the grader; the last
line repeats the symbolic checks, as the rollouts of a group do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from fastrl.geometry.grading import Grader

PLAIN_LIMIT = 2000.0
THOUGHT = "<thinking>" + "The angles of a triangle add up to 180 degrees. " * 40 + "</thinking>"


def workloads(first: int, count: int) -> dict[str, list[tuple[str, str]]]:
    """Pairs of box content and gold answer, half of them right where that makes a difference."""
    numbers = [(str(i + i % 2), str(i)) for i in range(first, first + count)]
    return {
        "plain numbers": numbers,
        "plain numbers in a long completion": numbers,
        "numbers with units and degrees": [
            (rf"{answer}^\circ", f"{gold}°")
            if int(gold) % 4 < 2
            else (rf"{answer}\text{{ cm}}", gold)
            for answer, gold in numbers
        ],
        "fractions, roots and pi, same form": [
            (rf"\frac{{{answer}\sqrt{{3}}}}{{7}}", rf"\frac{{{gold}}}{{7}}√{{3}}")
            if int(gold) % 4 < 2
            else (rf"{answer}\pi", f"{gold}π")
            for answer, gold in numbers
        ],
        "unreadable or many answers": [(f"{answer} or {gold}", gold) for answer, gold in numbers],
    }


def symbolic_pairs(count: int) -> list[tuple[str, str]]:
    """Pairs that are equal, or equal in value up to rounding, and need the symbolic check."""
    return [(rf"\sqrt{{{3 * k * k}}}", rf"{k}\sqrt{{3}}") for k in range(2, count + 2)]


def per_second(grader: Grader, pairs: list[tuple[str, str]], before: str) -> float:
    """Gradings a second."""
    completions = [(rf"{before}\boxed{{{answer}}}", gold) for answer, gold in pairs]
    start = time.perf_counter()
    for completion, gold in completions:
        grader.grade(completion, gold)
    return len(pairs) / (time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="answers of each kind")
    parser.add_argument("--symbolic", type=int, default=300, help="answers for the symbolic check")
    parser.add_argument(
        "--repeats", type=int, default=3, help="timings of each kind; the median counts"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    arguments = parser.parse_args()

    missed: list[str] = []
    print(f"{'answers':<40} {'per second':>12} {'limit':>8}")
    with Grader(max_workers=1) as grader:
        repeats = [
            workloads(repeat * arguments.count, arguments.count)
            for repeat in range(2 * arguments.repeats)
        ]
        for name in repeats[0]:
            # "plain numbers" comes twice; its golds must be new the second time too.
            own = repeats[arguments.repeats :] if "long" in name else repeats[: arguments.repeats]
            before = THOUGHT if "long" in name else ""
            rate = statistics.median(per_second(grader, kinds[name], before) for kinds in own)
            limit = PLAIN_LIMIT if name.startswith("plain") else None
            print(f"{name:<40} {rate:>12,.0f} {'' if limit is None else f'{limit:,.0f}':>8}")
            if limit is not None and rate < limit:
                missed.append(f"{name}: {rate:,.0f} a second, limit {limit:,.0f}")
        assert grader.counts.symbolic == 0
        grader.compare(r"\sqrt{3}^2\sqrt{3}", r"3\sqrt{3}")  # starts the worker
        pairs = symbolic_pairs(arguments.symbolic)
        print(f"{'symbolic check, new':<40} {per_second(grader, pairs, ''):>12,.0f}")
        print(f"{'symbolic check, repeated':<40} {per_second(grader, pairs, ''):>12,.0f}")
        print(f"\n{grader.counts}")
    if arguments.check and missed:
        print("limit missed: " + "; ".join(missed), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
