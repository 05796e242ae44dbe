"""Jobs on several processes: gloo on the CPU, as a launcher sets them up."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import socket
import sys
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from typer.testing import CliRunner

from fastrl.cli import app

PATIENCE = 240  # seconds that a job may take on a busy machine


def _child(job: Any, rank: int, world: int, port: int, results: Any, args: Any, kw: Any) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }
    torch.set_num_threads(1)
    gc.freeze()  # as in conftest.py
    AcceleratorState._reset_state(True)
    file = Path(args[1]) / f"rank{rank}.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.save(job(*args, **kw), file)
        results.put((rank, str(file), None))
    except Exception:
        # Whatever it was is the parent's to tell; the other processes wait for this one.
        results.put((rank, None, traceback.format_exc()))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _context() -> ForkServerContext:
    """Processes forked off one that has imported everything already: that takes longest."""
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fastrl.runs.job"])
    return context


def run_ranks(world: int, job: Any, model: str, out: str, *args: Any, **kw: Any) -> list[Any]:
    """What `job(model, out, ...)` returns on each of `world` processes, in order.

    Raises:
        RuntimeError: a process failed, with its traceback, or took too long.
    """
    context = _context()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [
        context.Process(
            target=_child, args=(job, rank, world, port, results, (model, out, *args), kw)
        )
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    files: dict[int, str] = {}
    try:
        for _ in processes:
            rank, file, failure = results.get(timeout=PATIENCE)
            if failure is not None:
                raise RuntimeError(f"process {rank} of {world}:\n{failure}")
            files[rank] = file
        for process in processes:
            process.join(timeout=30)
    except queue.Empty:
        raise RuntimeError(f"{world} processes took more than {PATIENCE} s") from None
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return [torch.load(files[rank], weights_only=False) for rank in range(world)]


def commanded(command: str, _: str, *words: str) -> tuple[int, str]:
    """Exit code and output of a `fastrl` command in this process."""
    result = CliRunner().invoke(app, [command, *words])
    return result.exit_code, result.output


def train_on_two(recipe: str, folder: Path, *words: str) -> str:
    """What `fastrl train` prints on two processes, which must succeed."""
    given = (recipe, "--output_dir", str(folder), *words)
    told = run_ranks(2, commanded, "train", f"{folder}-told", *given)
    output = "".join(text for _, text in told)
    assert [code for code, _ in told] == [0, 0], output
    return output
