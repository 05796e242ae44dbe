"""What FastRL costs and saves in a step, from paired and interleaved generation batches.

Every arm is a process that does one generation batch (generation, rewards, log-probs, updates) when
it is told to; the arms take turns, in alternating order, so that a drift of the machine hits all
alike. Completion lengths are forced. Told are

1. FastRL with rule "none" over TRL's GRPOTrainer, on the same samples (goal: at most 2% slower);
2. FastRL, pruned, over GRPOTrainer that is given the kept rows alone, without generation in either
   (goal: within 10%);
3. FastRL, pruned, over GRPOTrainer, with generation;
4. the distance from generation + rewards + kept share x (old + reference log-probs + updates), the
   seconds of rule "none", phase by phase.

    python benchmarks/step_time.py
    python benchmarks/step_time.py --policy runs/smollm2 --prompts 4 --updates 1 --rounds 8
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitting import median_interval
from step_runs import Work, build_trainer

PHASES = ("generate", "reward", "prune", "old_logps", "ref_logps", "update")
SHRINKING = ("old_logps", "ref_logps", "update")
LIMITS = {"none": 1.02, "kept rows": 1.10}


def serve(connection: Any, work: Work, batches: int) -> None:
    """Do one generation batch for each word received; answer with its seconds and phases."""
    import torch
    from transformers import TrainerCallback
    from transformers.utils import logging

    warnings.simplefilter("ignore")
    logging.disable_progress_bar()

    class Turns(TrainerCallback):
        """Waits between generation batches; its own waiting is in nobody's time."""

        def __init__(self) -> None:
            self.mark = 0.0
            self.phases: dict[str, float] = {}

        def wait(self, batch: int) -> None:
            connection.recv()
            # The same samples in every arm, as long as the policies are the same.
            torch.manual_seed(batch)
            self.mark = time.perf_counter()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.wait(0)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kw: Any) -> None:
            prefix = "fastrl/time/"
            found = {k.removeprefix(prefix): v for k, v in logs.items() if k.startswith(prefix)}
            self.phases |= found

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % work.updates:
                return
            # The host logs after this: the phases told are those of the batch before.
            told = {"seconds": time.perf_counter() - self.mark, "phases_before": self.phases}
            connection.send(told)
            self.wait(state.global_step // work.updates)

    trainer = build_trainer(work, batches, [Turns()])
    connection.send("built")
    trainer.train()


@dataclass(frozen=True)
class Turn:
    """One generation batch of one arm.

    Attributes:
        seconds: all of it.
        phases: FastRL's phases and what remains, "other"; empty for TRL, which has no clock.
    """

    seconds: float
    phases: dict[str, float]


def take_turns(works: dict[str, Work], warmup: int, rounds: int) -> dict[str, list[Turn]]:
    """Run all arms in alternating order; `rounds` turns of each after the warm-up."""
    context = multiprocessing.get_context("spawn")
    # One batch more than counted: the phases of a batch are told with the one after it.
    total = warmup + rounds + 1
    ends: dict[str, Any] = {}
    processes = []
    for name, work in works.items():
        ends[name], theirs = context.Pipe()
        # And one that is never started: the last wait ends with the process.
        processes.append(context.Process(target=serve, args=(theirs, work, total + 1), daemon=True))
        processes[-1].start()
        theirs.close()
        ends[name].recv()
    found: dict[str, list[dict]] = {name: [] for name in works}
    for number in range(total):
        for name in list(works) if number % 2 else reversed(list(works)):
            ends[name].send("go")
            found[name].append(ends[name].recv())
    for process in processes:
        process.terminate()
        process.join()
    return {name: turns(answers)[warmup:] for name, answers in found.items()}


def turns(answers: list[dict]) -> list[Turn]:
    """Each answer with the phases that the next one tells; the last has none and is left out."""
    paired = []
    for answer, after in itertools.pairwise(answers):
        told, phases = after["phases_before"], {}
        if told:
            phases = {phase: told.get(phase, 0.0) for phase in PHASES}
            phases["other"] = answer["seconds"] - sum(phases.values())
        paired.append(Turn(answer["seconds"], phases))
    return paired


def ratios(above: list[Turn], below: list[Turn]) -> list[float]:
    """Seconds of one arm over another's, round by round."""
    return [a.seconds / b.seconds for a, b in zip(above, below, strict=True)]


def phase_medians(found: list[Turn]) -> dict[str, float]:
    """Median seconds of each phase."""
    return {
        phase: statistics.median(turn.phases.get(phase, 0.0) for turn in found)
        for phase in (*PHASES, "other")
    }


def explained(whole: list[Turn], pruned: list[Turn], kept_share: float) -> list[list[str]]:
    """Rows of (phase, seconds with all rows, expected, pruned, distance), and their sum."""
    before, after = phase_medians(whole), phase_medians(pruned)
    share = {"generate": 1.0, "reward": 1.0} | dict.fromkeys(SHRINKING, kept_share)
    # What the formula does not name (pruning, data loading, logs) it expects to be nothing.
    expected = {phase: share.get(phase, 0.0) * before[phase] for phase in before}
    rows = [
        [
            phase,
            f"{before[phase]:.4f}",
            f"{expected[phase]:.4f}",
            f"{after[phase]:.4f}",
            f"{after[phase] - expected[phase]:+.4f}",
        ]
        for phase in before
    ]
    sums = [sum(part.values()) for part in (before, expected, after)]
    distance = sums[2] - sums[1]
    rows.append(
        ["sum", *(f"{total:.4f}" for total in sums), f"{distance:+.4f} ({distance / sums[1]:+.1%})"]
    )
    return rows


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def comparison_row(name: str, values: list[float], limit: float | None) -> list[str]:
    """Name, median ratio, interval, goal, and whether it is met."""
    found = median_interval(values)
    interval = f"[{found.low:.3f}, {found.high:.3f}] ({found.coverage:.0%})"
    goal = "" if limit is None else f"<= {limit:.2f}"
    verdict = "" if limit is None else ("met" if found.value <= limit else "missed")
    return [name, str(len(values)), f"{found.value:.3f}", interval, goal, verdict]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="toy", help="'toy', or the folder of a language model")
    parser.add_argument("--prompts", type=int, default=32, help="of a generation batch")
    parser.add_argument("--rollouts", type=int, default=8, help="of a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="of a completion")
    parser.add_argument("--levels", type=int, default=2, help="rollouts kept of a group")
    parser.add_argument("--updates", type=int, default=4, help="of a generation batch")
    parser.add_argument("--rounds", type=int, default=12, help="counted batches of each arm")
    parser.add_argument("--warmup", type=int, default=2, help="batches of each arm not counted")
    parser.add_argument("--jsonl", type=Path, help="also append every turn to this file")
    parser.add_argument("--quick", action="store_true", help="a few tiny batches")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    if options.quick:
        options.prompts, options.rollouts, options.tokens, options.updates = 2, 4, 4, 2
        options.rounds, options.warmup = 3, 1
    work = Work.of(options)
    arms = {"trl": work, "none": replace(work, arm="none"), "pruned": replace(work, arm="exact")}
    given = replace(arms["pruned"], replayed=True)
    whole = take_turns(arms, options.warmup, options.rounds)
    replayed = take_turns(
        {"pruned": given, "kept rows": given.kept_alone()}, options.warmup, options.rounds
    )
    if options.jsonl:
        write(options.jsonl, work, {"sampled": whole, "replayed": replayed})
    kept = arms["pruned"].kept_share
    comparisons = [
        comparison_row("rule none / TRL", ratios(whole["none"], whole["trl"]), LIMITS["none"]),
        comparison_row(
            "pruned / TRL given the kept rows, no generation",
            ratios(replayed["pruned"], replayed["kept rows"]),
            LIMITS["kept rows"],
        ),
        comparison_row("pruned / TRL", ratios(whole["pruned"], whole["trl"]), None),
    ]
    print(f"{work}; kept {kept:.0%}\n")
    header = ["seconds of a batch", "pairs", "median ratio", "interval of the median", "goal", ""]
    print(markdown_table(header, comparisons))
    header = ["median seconds", "rule none", f"expected at {kept:.0%}", "pruned", "distance"]
    print("\n" + markdown_table(header, explained(whole["none"], whole["pruned"], kept)))
    missed = any(row[-1] == "missed" for row in comparisons)
    return 1 if options.check and missed else 0


def write(path: Path, work: Work, found: dict[str, dict[str, list[Turn]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for mode, arms in found.items():
            for arm, taken in arms.items():
                for number, turn in enumerate(taken):
                    line = {"work": vars(work), "mode": mode, "arm": arm, "round": number}
                    line |= {"seconds": turn.seconds, "phases": turn.phases}
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # of the arms, as they are imported
    sys.exit(main())
