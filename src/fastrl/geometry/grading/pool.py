"""Processes that answer questions within a time limit, or are killed and replaced.

A check that hangs inside C code heeds no signal handler and no thread, so it runs in a process of
its own. These are plain subprocesses, not multiprocessing ones: data workers are daemons, which may
have no multiprocessing children, and a training script without a `__main__` guard must not be
imported again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

START_LIMIT = 120.0
_BOOT = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "runpy.run_path(sys.argv[2], run_name='__main__')"
)


class WorkerError(RuntimeError):
    """A worker died while it answered."""


class WorkerStartError(WorkerError):
    """A worker did not start: nothing can be asked, for the same reason each time."""


class _Worker:
    def __init__(self, script: Path, time_limit: float) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        search_path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, search_path, str(script), str(time_limit)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.questions, self.replies = self.process.stdin, self.process.stdout
        try:
            self._reply(START_LIMIT)
        except (WorkerError, TimeoutError) as error:
            self.errors.seek(0)
            told = self.errors.read().decode(errors="replace").strip()[-2000:]
            self.kill()
            raise WorkerStartError(
                f"the worker {script.name} did not start (for grading: "
                f'pip install "fastrl-grpo[geometry]"): {told or error}'
            ) from error

    def ask(self, question: list[str], time_limit: float) -> str:
        try:
            self.questions.write(json.dumps(question).encode() + b"\n")
        except OSError as error:
            raise WorkerError("the worker is dead") from error
        return self._reply(time_limit)

    def _reply(self, time_limit: float) -> str:
        deadline = time.monotonic() + time_limit
        poll = select.poll()
        poll.register(self.replies, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not poll.poll(1000 * remaining):
                raise TimeoutError(f"no reply within {time_limit:g} s")
            piece = os.read(self.replies.fileno(), 65536)
            if not piece:
                raise WorkerError("the worker died")
            line += piece
        return str(json.loads(line))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the pipes; the worker ends when no end is open."""
        for stream in (self.questions, self.replies, self.errors):
            with contextlib.suppress(OSError):
                stream.close()


class WorkerPool:
    """Up to `size` workers, started when needed, for any number of threads.

    After a fork the child forgets its parent's workers and starts its own: two processes reading
    one pipe would take each other's replies.

    Args:
        script: a Python file that prints a JSON string when ready, then answers each line of JSON
            with one; its last argument is the time limit.
        size: the most workers at a time.
        time_limit: seconds that one answer may take; starting a worker does not count.
    """

    def __init__(self, script: Path, *, size: int, time_limit: float) -> None:
        if size < 1 or not time_limit > 0:
            raise ValueError(f"size {size} and time limit {time_limit} must be positive")
        self._script = script
        self._size = size
        self._time_limit = time_limit
        self._workers: list[_Worker] = []
        self._slots = self._free_slots()
        weakref.finalize(self, _kill_all, self._workers)
        after_fork = weakref.WeakMethod(self._forget_workers)
        os.register_at_fork(after_in_child=lambda: (method := after_fork()) and method())

    def _free_slots(self) -> queue.LifoQueue[_Worker | None]:
        # Last in, first out: a started worker is taken before one that would have to start.
        slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self._size):
            slots.put(None)
        return slots

    def _forget_workers(self) -> None:
        for worker in self._workers:
            worker.process.returncode = 0  # no child of this process: nothing to wait for
            worker.forget()
        self._workers.clear()
        self._slots = self._free_slots()

    def process_ids(self) -> list[int]:
        """The ids of the workers alive, for tests and for whoever looks after the machine."""
        return [worker.process.pid for worker in self._workers]

    def ask(self, *question: str) -> str:
        """A worker's answer.

        Args:
            question: what to send, a few kilobytes at most.

        Raises:
            TimeoutError: it took longer than the time limit; the worker was killed.
            WorkerError: the worker died of it, twice.
            WorkerStartError: none can be started.
        """
        slots = self._slots
        worker = slots.get()
        try:
            # One that died idle (killed, out of memory) is no verdict on this question.
            for is_last in (False, True):
                worker = worker or self._start()
                try:
                    return worker.ask(list(question), self._time_limit)
                except TimeoutError:
                    self._discard(worker)
                    worker = None
                    raise
                except WorkerError:
                    self._discard(worker)
                    worker = None
                    if is_last:
                        raise
            raise AssertionError("unreachable")
        finally:
            slots.put(worker)

    def _start(self) -> _Worker:
        worker = _Worker(self._script, self._time_limit)
        self._workers.append(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        """End the workers; the pool starts new ones when asked again."""
        slots = [self._slots.get() for _ in range(self._size)]
        for worker in filter(None, slots):
            self._discard(worker)
        for _ in slots:
            self._slots.put(None)


def _kill_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()
