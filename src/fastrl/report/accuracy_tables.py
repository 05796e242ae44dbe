"""Tables of held-out accuracy over time: to a target, and at equal training time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fastrl.report.arms import Arm, Interval, baseline, mean_interval, ratio_interval
from fastrl.report.cells import NONE, Table, ratio, with_spread
from fastrl.report.targets import Target, equal_time, time_to_target


def target_table(arms: Sequence[Arm], target: Target | None) -> Table:
    """Seconds and updates to a target accuracy, and ratios to plain; empty without a target."""
    if target is None:
        return Table("", (), ())
    plain = baseline(arms)
    rows = []
    for arm in arms:
        found = time_to_target(plain, arm, target.accuracy)
        if not found.num_runs:
            continue
        cells = [
            arm.name,
            f"{len(found.seconds)} of {found.num_runs}",
            f"{statistics.mean(found.seconds):.1f}" if found.seconds else "never",
            f"{statistics.mean(found.steps):.0f}" if found.steps else "never",
        ]
        if arm is plain:
            cells += ["1", NONE, NONE]
        elif plain is not None:
            told = ratio(ratio_interval(list(found.ratios.values())))
            cells += [told, str(len(found.ratios)), found.missing or "0"]
        rows.append(tuple(cells))
    header = ["arm", "seeds that reach it", "seconds", "updates"]
    if plain is not None:
        header += (f"sooner than {plain.title}", "seeds in the ratio", "seeds without a ratio")
    called = plain.title if plain else "plain"
    note = (
        f"The target is {target.source}. Training time until held-out accuracy first reaches it, "
        "on straight lines between scorings; means over the seeds that do. Sooner than "
        f"{called}: geometric mean of {called}'s seconds over the arm's, seed by seed, with its "
        "95% interval. A seed where one of the two never reaches the target has no ratio: it is "
        "counted in the last column, and the ratio says nothing about it."
    )
    if plain is not None:
        ways = time_to_target(plain, plain, target.accuracy)
        if 0 < len(ways.seconds) < ways.num_runs:
            note += (
                f" Only {len(ways.seconds)} of {ways.num_runs} seeds of {plain.name} reach it: a "
                "somewhat lower --target compares more of them."
            )
    title = f"Time to {target.accuracy:.1%} held-out accuracy"
    return Table(title, tuple(header), tuple(rows), note)


def equal_time_table(arms: Sequence[Arm]) -> Table:
    """Accuracy after the same training time as plain; empty without scores over time."""
    plain = baseline(arms)
    called = plain.title if plain else "plain"
    rows = []
    for arm in arms:
        if plain is None or arm is plain:
            continue
        found = equal_time(plain, arm)
        if found.seconds:
            rows.append(
                (
                    arm.name,
                    str(len(found.seconds)),
                    f"{statistics.mean(found.seconds):.1f}",
                    with_spread(found.arm),
                    with_spread(found.plain),
                    points(mean_interval(found.differences)),
                )
            )
    return Table(
        "At equal training time",
        ("arm", "seeds", "seconds", "accuracy", f"{called}'s accuracy", "difference in points"),
        tuple(rows),
        "Held-out accuracy when the first of the two runs of a seed ends, the other's on a "
        "straight line between scorings; the mean difference with its 95% interval over seeds.",
    )


def points(value: Interval | None) -> str:
    """A difference of shares in percentage points, with its 95% interval."""
    if value is None:
        return NONE
    if value.low is None or value.high is None:
        return f"{100 * value.mean:+.1f} (one seed)"
    return f"{100 * value.mean:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
