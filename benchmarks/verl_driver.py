"""What FastRL adds to verl's driver in a step, by rollouts: bytes through the TransferQueue, time.

A real TransferQueue (its SimpleStorage, in Ray actors on this machine) is filled with synthetic
rollouts; then the functions of `fastrl.verl` run on it as they do in a training step, every call of
the queue timed and its bytes counted. Beside them stands what verl's own trainer reads for the
advantages of the same batch. Runs in the environment of verl, each size in a process of its own.

    python benchmarks/verl_driver.py --results runs/verl_driver.jsonl
    python benchmarks/verl_driver.py --quick
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIZES = (1024, 16384, 131072)
QUICK = (256, 1024)
GROUP = 8
VOCABULARY = 150_000
# Rewards of a rollout by its place in its group: four levels.
LEVELS = (0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.5, 1.5)
ROWS_AT_ONCE = 1024
PARTITION = "train"
# What verl's trainer reads to compute advantages of all rows.
VERL_FIELDS = ["uid", "response_mask", "rm_scores", "rollout_log_probs", "old_log_probs"]
MEGABYTE = 1e6


@dataclass
class Stopwatch:
    """Milliseconds of the clock, and of this process on a CPU, while it ran."""

    clock: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Stopwatch:
        self.clock -= 1000 * time.perf_counter()
        self.cpu -= 1000 * time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.clock += 1000 * time.perf_counter()
        self.cpu += 1000 * time.process_time()

    def minus(self, other: Stopwatch) -> Stopwatch:
        return Stopwatch(self.clock - other.clock, self.cpu - other.cpu)


@dataclass
class Meter:
    """The calls of a queue: milliseconds, of the clock and of this process, and bytes."""

    queue: Any
    reading: Stopwatch = field(default_factory=Stopwatch)
    read: int = 0
    written: int = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.queue, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if name == "kv_batch_get":
                with self.reading:
                    result = call(*args, **kwargs)
                self.read += tensor_bytes(result)
                return result
            result = call(*args, **kwargs)
            if name == "kv_batch_put":
                self.written += tensor_bytes(kwargs["fields"])
            return result

        return timed


def tensor_bytes(fields: Any) -> int:
    """Bytes of all tensors of a TensorDict; those of text and numbers beside them are few."""
    import torch

    total = 0
    for _, value in fields.items():
        if isinstance(value, torch.Tensor):
            flat = value.values() if value.is_nested else value
            total += flat.numel() * flat.element_size()
    return total


def rollouts(groups: range, tokens: int, seed: int) -> tuple[list[str], Any, list[dict[str, Any]]]:
    """Keys, fields and tags of whole groups, as verl's agent loop writes them.

    Args:
        groups: numbers of the groups; tokens: mean length of an answer, half to three halves.
    """
    import numpy as np
    import torch
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    keys, rows, tags = [], [], []
    for group in groups:
        draw = np.random.default_rng((seed, group))
        # Few words, so that equal rewards mean similar texts: one of each level is kept.
        words = draw.integers(0, VOCABULARY, tokens // 2)
        for place, reward in enumerate(LEVELS):
            length = int(draw.integers(tokens // 2, 3 * tokens // 2 + 1))
            scores = torch.zeros(length)
            scores[-1] = reward
            keys.append(f"{group:032x}_{place}_0")
            rows.append(
                {
                    "uid": f"{group:032x}",
                    "index": group,
                    "responses": torch.from_numpy(draw.choice(words, length)),
                    "response_mask": torch.ones(length, dtype=torch.int64),
                    "rm_scores": scores,
                    "rollout_log_probs": torch.zeros(length),
                    "old_log_probs": torch.zeros(length),
                }
            )
            tags.append({"seq_len": length, "status": "success"})
    return keys, list_of_dict_to_tensordict(rows), tags


def fill(queue: Any, count: int, tokens: int, seed: int) -> Any:
    """Put `count` rollouts into the queue; returns their KVBatchMeta."""
    from transfer_queue import KVBatchMeta

    keys, tags = [], []
    at_once = ROWS_AT_ONCE // GROUP
    for start in range(0, count // GROUP, at_once):
        groups = range(start, min(start + at_once, count // GROUP))
        new_keys, fields, new_tags = rollouts(groups, tokens, seed)
        queue.kv_batch_put(keys=new_keys, partition_id=PARTITION, fields=fields, tags=new_tags)
        keys += new_keys
        tags += new_tags
    return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=tags)


@contextmanager
def running_queue(units: int) -> Iterator[Any]:
    """A TransferQueue of this machine, of any size, and Ray under it."""
    import ray
    import transfer_queue
    from omegaconf import OmegaConf

    ray.init(num_cpus=units + 4, include_dashboard=False, log_to_driver=False)
    storage = {"total_storage_size": None, "num_data_storage_units": units}
    transfer_queue.init(
        OmegaConf.create(
            {"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": storage}}
        )
    )
    try:
        yield transfer_queue
    finally:
        transfer_queue.close()
        ray.shutdown()


def measure(queue: Any, count: int, tokens: int, seed: int, multiple_of: int = 32) -> dict:
    """One step's share of FastRL on the driver, on rollouts that lie in the queue.

    Returns:
        Counts, bytes and milliseconds by phase, of the clock and of this process on a CPU; the
        queue holds the kept rows afterwards.
    """
    from omegaconf import OmegaConf

    from fastrl.verl import transfer
    from fastrl.verl.config import FastRLSettings
    from fastrl.verl.pruning import choose_rows

    batch = fill(queue, count, tokens, seed)
    algorithm = OmegaConf.create({"adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0})
    settings = FastRLSettings(weighting="kept")
    meter = Meter(queue)
    found: dict[str, float] = {"rollouts": len(batch.keys), "tokens": tokens}

    def tell(name: str, watch: Stopwatch) -> None:
        found[f"{name}_ms"], found[f"{name}_cpu_ms"] = watch.clock, watch.cpu

    def timed(name: str, work: Callable[[], Any]) -> Any:
        watch = Stopwatch()
        with watch:
            result = work()
        tell(name, watch)
        return result

    # What verl itself reads, pruned or not, for its own advantages.
    own = timed(
        "verl",
        lambda: queue.kv_batch_get(
            keys=batch.keys, partition_id=PARTITION, select_fields=VERL_FIELDS
        ),
    )
    found["verl_bytes"] = tensor_bytes(own)
    del own

    transfer.transfer_queue, untimed = meter, transfer.transfer_queue
    try:
        with Stopwatch() as scoring:
            scored = transfer.ScoredBatch(batch, algorithm, GROUP)
        tell("fetch", meter.reading)
        tell("advantages", scoring.minus(meter.reading))
        found["fetch_bytes"], meter.read = meter.read, 0
        kept = timed(
            "select",
            lambda: choose_rows(scored.rows, settings, multiple_of=multiple_of, seed=(seed, 1)),
        )
        keys = [batch.keys[row] for row in kept.keep.tolist()]
        remaining = timed("clear", lambda: transfer.drop_rows(batch, keys))
        timed("write", lambda: transfer.write_update_fields(remaining, scored, None))
        found["write_bytes"] = meter.written
        timed("check", lambda: transfer.check_advantages(remaining, scored))
        found["check_bytes"], meter.read = meter.read, 0
    finally:
        transfer.transfer_queue = untimed
    found["kept"] = len(keys)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
    return found


def clear(queue: Any) -> None:
    keys = list(queue.kv_list(PARTITION).get(PARTITION, {}))
    if keys:
        queue.kv_clear(keys=keys, partition_id=PARTITION)


def measure_all(count: int, tokens: int, units: int, repeats: int) -> list[dict]:
    """`repeats` steps on fresh rollouts, after one that is not counted."""
    found = []
    with running_queue(units) as queue:
        for seed in range(repeats + 1):
            step = measure(queue, count if seed else min(count, 1024), tokens, seed)
            clear(queue)
            if seed:
                found.append(step)
    return found


PHASES = {
    "fetch what pruning needs": "fetch",
    "advantages of the full groups": "advantages",
    "selection": "select",
    "clear the dropped rows": "clear",
    "write advantages": "write",
    "check them": "check",
}


def table(steps: list[dict]) -> str:
    """A Markdown table: a column a size. Of repeated steps the fastest, phase by phase."""
    sizes: dict[tuple[int, int], list[dict]] = {}
    for step in steps:
        sizes.setdefault((step["rollouts"], step["tokens"]), []).append(step)
    best = {
        size: {name: min(step[name] for step in same) for name in same[0]}
        for size, same in sorted(sizes.items())
    }
    lines = {
        "rollouts x tokens": [f"{count:,} x {tokens}" for count, tokens in best],
        "": ["---:"] * len(best),
        "kept": [f"{step['kept']:,.0f}" for step in best.values()],
    }
    for title, name in PHASES.items():
        lines[title] = [cell(step, name) for step in best.values()]
    lines["all of it"] = [
        cell({f"sum_{kind}": whole(step, kind) for kind in ("ms", "cpu_ms", "bytes")}, "sum")
        for step in best.values()
    ]
    lines["verl's own read for advantages"] = [cell(step, "verl") for step in best.values()]
    lines["peak memory of the driver"] = [
        f"{step['peak_mb'] / 1000:,.1f} GB" for step in best.values()
    ]
    rows = [f"| {title or '---'} | {' | '.join(cells)} |" for title, cells in lines.items()]
    return "\n".join(rows)


def cell(step: dict, name: str) -> str:
    """Megabytes, if any, milliseconds, and in brackets those that the driver computed."""
    size = step.get(f"{name}_bytes")
    told = f"{step[f'{name}_ms']:,.0f} ms ({step[f'{name}_cpu_ms']:,.0f})"
    return told if size is None else f"{size / MEGABYTE:,.1f} MB, {told}"


def whole(step: dict, kind: str) -> float:
    """Sum over the phases."""
    return sum(step.get(f"{name}_{kind}", 0.0) for name in PHASES.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=None, help="rollouts a step")
    parser.add_argument("--tokens", type=int, default=256, help="mean length of an answer")
    parser.add_argument("--units", type=int, default=2, help="storage units of the queue")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, help="JSONL; finished sizes are not repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        for step in measure_all(args.one, args.tokens, args.units, args.repeats):
            print("RESULT " + json.dumps(step))
        return
    steps = []
    if args.results is not None and args.results.exists():
        steps = [json.loads(line) for line in args.results.read_text().splitlines()]
    done = {(step["rollouts"], step["tokens"]) for step in steps}
    for size in args.sizes or (QUICK if args.quick else SIZES):
        if (size, args.tokens) in done:
            continue
        words = ["--one", str(size), "--tokens", str(args.tokens), "--units", str(args.units)]
        words += ["--repeats", str(args.repeats)]
        output = subprocess.run(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
        new = [json.loads(line.removeprefix("RESULT ")) for line in lines]
        steps += new
        if args.results is not None:
            args.results.parent.mkdir(parents=True, exist_ok=True)
            with args.results.open("a") as file:
                file.writelines(json.dumps(step) + "\n" for step in new)
    print(table(steps))


if __name__ == "__main__":
    main()
