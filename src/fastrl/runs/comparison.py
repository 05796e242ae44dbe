"""`fastrl compare`: the same work with several rules and seeds, one run after another."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastrl.core.named import PRUNE_RULES
from fastrl.core.rules import nearest_fraction
from fastrl.report.run_folders import COMPARISON_NAME, PLAIN, read_run
from fastrl.runs.folder import RunFolder, write_whole
from fastrl.runs.recipe import RecipeError

DIFFERENTIAL = "differential"
FEWER_ROLLOUTS = (4, 2)
# Rules that keep a share of each group: compared at the share that the differential rule kept.
SHARED_FRACTION = ("top_advantage", "max_variance", "random")

# What the arms of rules and the seeds say; a word of the user's for all runs would be overridden
# or override them.
SET_BY_ARMS = ("prune_rule", "weighting", "adaptive_rollouts", "keep_fraction", "seed")


@dataclass(frozen=True)
class Arm:
    """One setting of a comparison.

    Attributes:
        name: of its run folders, `<name>-seed<seed>`.
        overrides: config fields that differ from the recipe.
        takes_share_of: the arm whose measured kept share its `keep_fraction` comes nearest to.
    """

    name: str
    overrides: dict[str, Any] = field(default_factory=dict)
    takes_share_of: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Arms and seeds over one recipe.

    Every arm makes the same number of updates from the same number of prompts; plain GRPO with
    fewer rollouts a prompt has proportionally smaller batches.

    Attributes:
        recipe: a shipped name or a YAML path.
        arms: in the order in which they run for each seed.
        seeds: each is run for all arms before the next.
        folder: holds a run folder per arm and seed.
        extra: further words for `fastrl train`.
        fields: what recipe and words set, resolved: a folder belongs to one such work.
        arm_fields: of arms in the user's own words, what they train with, resolved.
        against: the arm that the others are compared with; plain GRPO if None. A folder keeps
            what its first comparison said.
    """

    recipe: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    folder: Path
    extra: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    arm_fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    against: str | None = None

    def runs(self) -> Iterator[tuple[Arm, int, RunFolder]]:
        """Every run, interleaved by seed so that a drift of the machine hits all arms alike."""
        for seed in self.seeds:
            for arm in self.arms:
                yield arm, seed, RunFolder(self.folder / f"{arm.name}-seed{seed}")

    def command(self, arm: Arm, seed: int, run: RunFolder) -> list[str]:
        """The words that start a run, or take it up where it was stopped.

        Raises:
            RecipeError: the arm whose share it takes has not been run.
        """
        words = [self.recipe, "--output_dir", str(run.path), "--seed", str(seed), *self.extra]
        overrides = dict(arm.overrides)
        if arm.takes_share_of is not None:
            overrides["keep_fraction"] = round(self._fraction_like(arm.takes_share_of, seed), 4)
        # In one word: a value may begin with dashes.
        words += [f"--{name}={value}" for name, value in overrides.items()]
        if run.is_used():
            words.append("--resume")
        return [sys.executable, "-m", "fastrl", "train", *words]

    def check_shares(self) -> None:
        """Check that every share to take is measured, or will be before it is needed.

        Raises:
            RecipeError: names the rules, and the runs that have to be finished first.
        """
        missing: dict[str, list[str]] = {}
        for arm, seed, run in self.runs():
            source = arm.takes_share_of
            if source is None or source in {one.name for one in self.arms}:
                continue
            is_there = "finished" in RunFolder(self.folder / f"{source}-seed{seed}").read_summary()
            if not is_there and "finished" not in run.read_summary():
                missing.setdefault(f"{source}-seed{seed}", []).append(arm.name)
        if missing:
            takers = dict.fromkeys(name for names in missing.values() for name in names)
            raise RecipeError(
                f"{', '.join(takers)}: take their share from {', '.join(missing)}, which is not "
                "finished: run that arm too, or first."
            )

    def _fraction_like(self, arm: str, seed: int) -> float:
        """The fraction that keeps what a finished run kept, as near as whole rollouts allow."""
        folder = RunFolder(self.folder / f"{arm}-seed{seed}")
        summary = folder.read_summary()
        sizes = [batch.num_generations for batch in read_run(folder.path).batches]
        if not summary.get("generated") or not sizes:
            raise RecipeError(f"{arm}-seed{seed} has no result yet, so its kept share is unknown.")
        return nearest_fraction(summary["kept"] / summary["generated"], statistics.mean(sizes))

    def claim_folder(self) -> None:
        """Write what is compared into the folder, or check that it is what stands there.

        Raises:
            RecipeError: the folder holds a comparison of something else; names every field.
        """
        path = self.folder / COMPARISON_NAME
        work: dict[str, Any] = json.loads(
            json.dumps(
                {
                    "recipe": self.recipe,
                    "fields": dict(self.fields),
                    "arms": {name: dict(fields) for name, fields in self.arm_fields.items()},
                    "against": self.against,
                }
            )
        )
        found = json.loads(path.read_text()) if path.exists() else work
        if "fields" not in found:
            raise RecipeError(
                f"{path} was written by an earlier version, which did not note the recipe's "
                "fields. Choose another --output_dir; or, if the recipe is what it was then, "
                "remove the file."
            )
        problems = _differences(work["fields"], found["fields"])
        if found["recipe"] != self.recipe:
            problems.insert(0, f"the recipe is {self.recipe}, its runs have {found['recipe']}")
        arms = found.get("arms", {})
        for name in sorted({*arms} & {*work["arms"]}):
            told = _differences(work["arms"][name], arms[name])
            problems += [f"arm {name}: {problem}" for problem in told]
        if problems:
            raise RecipeError(
                f"{self.folder} compares something else: {'; '.join(problems)}. Choose another "
                "--output_dir, or give the same recipe and words."
            )
        # Further arms may join; the runs of the others stay what they are.
        work["arms"] = arms | work["arms"]
        work["against"] = found.get("against")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(_write_json, work, path)

    def execute(self, on_run: Callable[[int, int, str, bool], None]) -> None:
        """Run what has not been run.

        Args:
            on_run: told number, total, name and whether it was finished before.

        Raises:
            RecipeError: the folder holds a comparison of something else, or a run failed; start
                the comparison again to go on.
        """
        self.claim_folder()
        everything = list(self.runs())
        for number, (arm, seed, run) in enumerate(everything, start=1):
            finished = "finished" in run.read_summary()
            on_run(number, len(everything), run.path.name, finished)
            if not finished:
                status = subprocess.run(self.command(arm, seed, run), check=False).returncode
                if status:
                    raise RecipeError(_failure(run.path, status))


def arms_of(rules: Sequence[str], num_generations: int, batch_size: int) -> tuple[Arm, ...]:
    """The arms that a list of rules stands for.

    "none" brings plain GRPO with fewer rollouts a prompt, "differential" also its exact weighting
    and both without adaptive rollouts; rules that keep a share run at differential's.

    Args:
        rules: names of rules, without repetition.
        num_generations: rollouts a prompt; batch_size: rows a micro-batch at that number.

    Raises:
        RecipeError: lists every rule that is unknown or cannot run.
    """
    problems = [
        f"{rule!r} is not a rule (expected {', '.join(PRUNE_RULES)})"
        for rule in rules
        if rule not in PRUNE_RULES
    ]
    if len(set(rules)) < len(rules):
        problems.append(f"{', '.join(rules)}: a rule stands twice")
    if DIFFERENTIAL not in rules and set(rules) & set(SHARED_FRACTION):
        problems.append(f"rules that keep a share need {DIFFERENTIAL!r} to take the share from")
    if problems:
        raise RecipeError("--rules: " + "; ".join(problems) + ".")
    arms = []
    for rule in sorted(rules, key=PRUNE_RULES.index):
        takes = DIFFERENTIAL if rule in SHARED_FRACTION else None
        published = {"prune_rule": rule, "weighting": "kept", "adaptive_rollouts": True}
        arms.append(Arm(rule, published, takes))
        if rule == DIFFERENTIAL:
            exact, static = {"weighting": "exact"}, {"adaptive_rollouts": False}
            arms.append(Arm("differential-exact", published | exact))
            arms.append(Arm("differential-static", published | static))
            arms.append(Arm("differential-exact-static", published | exact | static))
        if rule == PLAIN:
            arms += [
                Arm(f"none-n{count}", _fewer(count, num_generations, batch_size))
                for count in FEWER_ROLLOUTS
                if count < num_generations and batch_size * count % num_generations == 0
            ]
    return tuple(arms)


def _fewer(count: int, num_generations: int, batch_size: int) -> dict[str, Any]:
    """Plain GRPO with fewer rollouts: the same prompts and updates, smaller batches."""
    return {
        "prune_rule": PLAIN,
        "num_generations": count,
        "per_device_train_batch_size": batch_size * count // num_generations,
    }


def _failure(path: Path, status: int) -> str:
    """One line about a run that failed, with what to do; its own words stand above."""
    told = f"exit status {status}"
    if status < 0:
        names = {member.value: member.name for member in signal.Signals}
        told = f"killed by {names.get(-status, f'signal {-status}')}"
    return (
        f"{path.name} failed ({told}; what it said stands above), and the runs after it did not "
        "start. Give the same command again to go on: finished runs are not repeated, and this one "
        f"goes on from its last checkpoint. To begin it anew, remove {path}."
    )


def _differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Fields whose values are not those that the runs have, in words."""
    return [
        f"{name} = {now.get(name)!r}, its runs have {then.get(name)!r}"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]


def _write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
