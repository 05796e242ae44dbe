"""The report's tables, as cells of text: the HTML page and the Markdown file show the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from fastrl.report.accuracy_tables import equal_time_table, points, target_table
from fastrl.report.arms import (
    Arm,
    baseline,
    final_reward,
    mean_interval,
    pairs,
    ratio_interval,
    seconds_to_reward,
    share_of_plain,
    split_for,
)
from fastrl.report.cells import NONE, Table, number, plain_text, ratio, with_spread
from fastrl.report.phases import PHASES
from fastrl.report.run_folders import PLAIN, Run
from fastrl.report.targets import Target, has_scores, seconds_to, time_to_target

PHASE_TITLES = {
    "generate": "generation",
    "reward": "rewards",
    "prune": "pruning",
    "old_logps": "old log-probs",
    "ref_logps": "reference log-probs",
    "update": "updates",
    "other": "other",
}
RESULT_HEADER = (
    "arm",
    "rule",
    "seeds",
    "updates",
    "accuracy before",
    "after",
    "points against {plain}",
    "greedy",
    "in format",
    "reward at the end",
    "kept",
    "rollouts per prompt",
)
RESULT_NOTE = (
    "Held-out accuracy: mean over samples; ± is the standard deviation over seeds, in "
    "points, and no interval of the mean. Points against {plain}: accuracy after less "
    "{plain}'s, mean over the seeds that both have at equal updates, with its 95% interval "
    "(Student's t on the differences). Reward at the end: full groups, last tenth of the run. "
    "Kept: of generated rollouts."
)
SEED_HEADER = (
    "arm",
    "seed",
    "training seconds",
    "faster than {plain}",
    "accuracy after",
    "reward at the end",
    "kept",
)
SETTINGS = (
    "recipe",
    "model",
    "dataset",
    "loss_type",
    "beta",
    "num_generations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "max_steps",
    "learning_rate",
    "max_completion_length",
    "temperature",
    "prune_rule",
    "similarity_threshold",
    "keep_fraction",
    "weighting",
    "drop_uninformative",
    "adaptive_rollouts",
    "min_generations",
)
SPEED_NOTE = (
    "Training time end to end at equal updates; evaluation and checkpoints are not in it. Faster "
    "than {plain}: geometric mean of the ratios of each seed, with its 95% interval (Student's t "
    "on logarithms). Expected: plain's log-probs and updates shrunk to what the arm keeps of the "
    "rollouts that plain generates. Amdahl bound: plain's total over the phases that pruning "
    "leaves alone; adaptive rollouts and shared prefixes shorten others too and may pass both. No "
    "number where rollouts a prompt or the batch are not plain's."
)
TO_REWARD_NOTE = (
    " Seconds to {plain}'s reward: until the full-group reward (trailing mean over a tenth of the "
    "run) reaches {plain}'s final level."
)
NOT_SETTINGS = {"seed", "output_dir", "run_name", "logging_dir"}  # differ in every run


def report_tables(arms: Sequence[Arm], target: Target | None = None) -> list[Table]:
    """Every table that the arms have something for; times to a target only with one."""
    tables = [
        result_table(arms),
        target_table(arms, target),
        equal_time_table(arms),
        speed_table(arms),
        seed_table(arms, target),
        phase_table(arms),
        settings_table(arms),
        machine_table(arms),
    ]
    return [table for table in tables if table.rows]


def result_table(arms: Sequence[Arm]) -> Table:
    """Held-out scores, the difference to plain seed by seed, reward, kept share: a row an arm."""
    plain = baseline(arms)
    rows = []
    for arm in arms:
        rewards = [final_reward(run) for run in arm.runs]
        rows.append(
            (
                arm.name,
                rule_name(arm),
                str(len(arm.runs)),
                str(max(run.steps for run in arm.runs)),
                with_spread(_scores(arm, "before", "sampled")),
                with_spread(_scores(arm, "after", "sampled")),
                points(mean_interval(_differences(plain, arm))),
                with_spread(_scores(arm, "after", "greedy")),
                with_spread(_scores(arm, "after", "in_format")),
                number(statistics.mean(rewards), 3),
                f"{arm.kept_share:.1%}",
                number(arm.mean_num_generations, 1),
            )
        )
    called = plain.title if plain else "plain"
    return Table(
        "Result",
        tuple(cell.format(plain=called) for cell in RESULT_HEADER),
        tuple(rows),
        RESULT_NOTE.format(plain=called),
        num_text=2,
    )


def _differences(plain: Arm | None, arm: Arm) -> list[float]:
    """Final held-out accuracy less plain's, a seed each; empty for plain itself."""
    if plain is None or arm is plain:
        return []
    found = [
        (run.held_out("after", "sampled"), other.held_out("after", "sampled"))
        for other, run in pairs(plain, arm)
    ]
    return [mine - others for mine, others in found if mine is not None and others is not None]


def speed_table(arms: Sequence[Arm]) -> Table:
    """Seconds, ratio to plain with its interval, the bound.

    Without held-out scores over time also the time to plain's final training reward.
    """
    plain = baseline(arms)
    by_reward = not has_scores(arms)
    rows = []
    for arm in arms:
        seconds = [run.seconds for run in arm.runs]
        cells = [arm.name, f"{statistics.mean(seconds):.1f}"]
        if plain is not None:
            both = [] if arm is plain else pairs(plain, arm)
            ratios = ratio_interval([p.seconds / run.seconds for p, run in both])
            cells.append("1" if arm is plain else ratio(ratios))
            told = split_for(arms, arm)
            expected = told.speedup(share_of_plain(plain, arm)) if told else math.nan
            cells.append(NONE if math.isnan(expected) else f"{expected:.2f}x")
            cells.append(f"{told.bound:.2f}x" if told and math.isfinite(told.bound) else NONE)
            cells += _time_to_level(plain, arm) if by_reward else []
        rows.append(tuple(cells))
    header = ["arm", "training seconds"]
    if plain is not None:
        header += [f"faster than {plain.title}", "expected at this kept share", "Amdahl bound"]
    note = "Training time end to end; evaluation and checkpoints are not in it."
    if plain is not None:
        note = SPEED_NOTE.format(plain=plain.title)
        if by_reward:
            header += [f"seconds to {plain.title}'s reward", f"sooner than {plain.title}"]
            note += TO_REWARD_NOTE.format(plain=plain.title)
    return Table("Speed", tuple(header), tuple(rows), note)


def _time_to_level(plain: Arm, arm: Arm) -> list[str]:
    by_seed = {run.seed: run for run in plain.runs}
    spent, ratios, missed = [], [], 0
    for run in arm.runs:
        if run.seed not in by_seed:
            continue
        other = by_seed[run.seed]
        level = final_reward(other)
        mine, plains = seconds_to_reward(run, level), seconds_to_reward(other, level)
        if not mine or not plains:
            missed += 1
        else:
            spent.append(mine)
            ratios.append(plains / mine)
    if not spent:
        return ["never" if missed else NONE, NONE]
    told = f"{statistics.mean(spent):.1f}"
    told += f" ({missed} of {missed + len(spent)} never)" if missed else ""
    return [told, "1" if arm is plain else ratio(ratio_interval(ratios))]


def seed_table(arms: Sequence[Arm], target: Target | None = None) -> Table:
    """A row per arm and seed; empty where no arm has two seeds."""
    plain = baseline(arms)
    if all(len(arm.runs) < 2 for arm in arms):
        return Table("Seeds", (), ())
    rows = []
    for arm in arms:
        others = {run.seed: other for other, run in pairs(plain, arm)} if plain else {}
        sooner = time_to_target(plain, arm, target.accuracy).ratios if target else {}
        for run in arm.runs:
            other = others.get(run.seed)
            after = run.held_out("after", "sampled")
            rows.append(
                (
                    arm.name,
                    str(run.seed),
                    f"{run.seconds:.1f}",
                    f"{other.seconds / run.seconds:.2f}x" if other else NONE,
                    NONE if after is None else f"{after:.1%}",
                    number(final_reward(run), 3),
                    f"{Arm(arm.name, (run,)).kept_share:.1%}",
                    *(_to_target(run, target, sooner) if target else ()),
                )
            )
    named = tuple(cell.format(plain=plain.title if plain else "plain") for cell in SEED_HEADER)
    header = named + ((f"seconds to {target.accuracy:.1%}", "sooner") if target else ())
    return Table("Seeds", header, tuple(rows))


def _to_target(run: Run, target: Target, sooner: Mapping[int, float]) -> tuple[str, str]:
    if not run.scores:
        return NONE, NONE
    spent = seconds_to(run, target.accuracy)
    told = "never" if spent is None else f"{spent:.1f}"
    return told, f"{sooner[run.seed]:.2f}x" if run.seed in sooner else NONE


def phase_table(arms: Sequence[Arm]) -> Table:
    """Mean seconds per phase and share of the training time."""
    rows = []
    for arm in arms:
        phases = arm.phase_means()
        total = sum(phases.values())
        if total:
            cells = [f"{phases[p]:.1f} ({phases[p] / total:.0%})" for p in PHASES]
            rows.append((arm.name, *cells, f"{total:.1f}"))
    return Table(
        "Time per phase",
        ("arm", *(PHASE_TITLES[phase] for phase in PHASES), "all"),
        tuple(rows),
        "Seconds, mean over seeds, and share of the training time.",
    )


def settings_table(arms: Sequence[Arm]) -> Table:
    """The settings that matter, and every other one in which the arms differ."""
    configs = [run.config for arm in arms for run in arm.runs]
    names = [name for name in SETTINGS if any(name in config for config in configs)]
    others = sorted({n for config in configs for n in config} - set(names) - NOT_SETTINGS)
    names += [n for n in others if len({repr(config[n]) for config in configs if n in config}) > 1]
    rows = []
    for name in names:
        cells = []
        for arm in arms:
            values = dict.fromkeys(plain_text(run.config.get(name)) for run in arm.runs)
            cells.append(", ".join(values))
        rows.append((name, *cells))
    return Table("Settings", ("setting", *(arm.name for arm in arms)), tuple(rows), num_text=99)


def machine_table(arms: Sequence[Arm]) -> Table:
    """Versions and machine, as the runs noted them."""
    found: dict[str, dict[str, None]] = {}
    for run in (run for arm in arms for run in arm.runs):
        for part in ("versions", "machine"):
            for name, value in (run.summary.get(part) or {}).items():
                found.setdefault(name, {})[plain_text(value)] = None
        for name in ("pictures", "samples"):
            value = (run.summary.get("after") or {}).get(name)
            if value is not None:
                found.setdefault(f"held-out {name}", {})[plain_text(value)] = None
    rows = tuple((name, ", ".join(values)) for name, values in found.items())
    return Table("Versions and machine", ("what", "value"), rows, num_text=2)


def rule_name(arm: Arm) -> str:
    """An arm's rule in a few words."""
    config = arm.runs[0].config
    rule = str(config.get("prune_rule", "unknown"))
    if rule == PLAIN:
        return f"plain, n = {arm.num_generations}"
    if rule == "differential":
        rule += f" {config.get('similarity_threshold')}"
    elif "keep_fraction" in config:
        rule += f" {config['keep_fraction']}"
    adaptive = ", adaptive" if config.get("adaptive_rollouts") else ""
    return f"{rule}, {config.get('weighting')}{adaptive}"


def _scores(arm: Arm, when: str, key: str) -> list[float]:
    found = [run.held_out(when, key) for run in arm.runs]
    return [value for value in found if value is not None]
