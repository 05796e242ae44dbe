"""Time limits: hangs, deaths, threads and forks. The programs here stand in for the real check."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastrl.geometry.grading import Grader, GradingCounts, Outcome
from fastrl.geometry.grading.grader import SYMBOLIC_WORKER, UNDECIDED_SECONDS
from fastrl.geometry.grading.pool import WorkerError, WorkerPool, WorkerStartError

STAND_IN = """
import json, os, signal, sys, time

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    answer, gold = json.loads(line)
    if answer == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        while True:
            pass
    if answer == "die":
        os._exit(3)
    if answer == "slow":
        time.sleep(0.2)
    print(json.dumps("equal" if answer == gold else f"{answer} {os.getpid()}"), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    return script


@pytest.fixture
def pool(stand_in: Path) -> Iterator[WorkerPool]:
    pool = WorkerPool(stand_in, size=2, time_limit=1.0)
    yield pool
    pool.close()


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(process_id: int) -> bool:
    deadline = time.monotonic() + 20
    while is_alive(process_id) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(process_id)


def in_a_fork(function: object) -> int:
    """The exit status of a forked child that runs the function; -1 when it hangs."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if function() else 1)  # type: ignore[operator]
        except BaseException:
            os._exit(2)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def test_nothing_starts_before_it_is_needed(stand_in: Path) -> None:
    with Grader(worker=stand_in) as grader:
        assert grader.equivalent("5√3", r"5\sqrt{3}")
        assert not grader.equivalent("5√2", r"5\sqrt{3}")
        assert grader.worker_ids() == []


def test_a_hang_is_killed_within_its_limit_and_the_pool_goes_on(pool: WorkerPool) -> None:
    pool.ask("a", "a")
    (process_id,) = pool.process_ids()
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="within 1 s"):
        pool.ask("hang", "a")
    assert 0.9 < time.monotonic() - start < 5
    assert not is_alive(process_id)
    assert pool.ask("a", "a") == "equal"
    assert process_id not in pool.process_ids()


def test_a_worker_that_died_idle_is_replaced(pool: WorkerPool) -> None:
    pool.ask("a", "a")
    (process_id,) = pool.process_ids()
    os.kill(process_id, signal.SIGKILL)
    assert wait_until_gone(process_id)
    assert pool.ask("a", "a") == "equal"
    assert pool.process_ids() != [process_id]


def test_a_question_that_kills_workers_is_an_error_and_the_pool_goes_on(pool: WorkerPool) -> None:
    for _ in range(3):
        with pytest.raises(WorkerError, match="died"):
            pool.ask("die", "a")
    assert pool.ask("a", "a") == "equal"


def test_one_hang_does_not_block_the_other_worker(pool: WorkerPool) -> None:
    pool.ask("a", "a")
    with ThreadPoolExecutor(2) as threads:
        hang = threads.submit(pool.ask, "hang", "a")
        time.sleep(0.1)
        assert pool.ask("a", "a") == "equal"
        assert not hang.done()
        with pytest.raises(TimeoutError):
            hang.result()


def test_threads_get_their_own_replies(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda i: pool.ask(f"q{i}", "a"), range(200)))
    assert [reply.split()[0] for reply in replies] == [f"q{i}" for i in range(200)]
    assert len(pool.process_ids()) == 2


def test_a_fork_starts_workers_of_its_own_and_leaves_its_parents_alone(pool: WorkerPool) -> None:
    pool.ask("a", "a")
    parents = pool.process_ids()

    def ask_in_child() -> bool:
        first = pool.ask("x", "a").split()
        child_ok = pool.process_ids() == [int(first[1])] and pool.process_ids() != parents
        pool.close()
        return first[0] == "x" and child_ok

    assert in_a_fork(ask_in_child) == 0
    assert pool.process_ids() == parents
    assert pool.ask("y", "a") == f"y {parents[0]}"


def test_a_fork_in_the_middle_of_a_check_does_not_wait_for_it(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(pool.ask, "slow", "a") for _ in range(2)]
        time.sleep(0.05)
        assert in_a_fork(lambda: pool.ask("x", "x") == "equal") == 0
        assert [reply.result().split()[0] for reply in busy] == ["slow", "slow"]


def test_workers_end_with_their_pool(stand_in: Path) -> None:
    pool = WorkerPool(stand_in, size=1, time_limit=1.0)
    pool.ask("a", "a")
    (process_id,) = pool.process_ids()
    del pool
    gc.collect()
    assert wait_until_gone(process_id)


@pytest.mark.parametrize("ending", ["sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_workers_end_with_their_program(stand_in: Path, ending: str) -> None:
    program = f"""
        import os, sys
        from pathlib import Path
        from fastrl.geometry.grading.pool import WorkerPool
        pool = WorkerPool(Path({str(stand_in)!r}), size=1, time_limit=1.0)
        pool.ask("a", "a")
        print(pool.process_ids()[0], flush=True)
        {ending}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert wait_until_gone(int(done.stdout))


def test_a_worker_that_cannot_start_says_why_and_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import no_such_module")
    with Grader(worker=script) as grader:
        for _ in range(2):
            with pytest.raises(
                WorkerStartError, match=r"fastrl-grpo\[geometry\](.|\n)*no_such_mod"
            ):
                grader.equivalent(r"\sqrt{48}", r"4\sqrt{3}")


@pytest.mark.parametrize("settings", [{"size": 0, "time_limit": 1.0}, {"size": 1, "time_limit": 0}])
def test_a_pool_needs_a_worker_and_time(stand_in: Path, settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        WorkerPool(stand_in, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("9^{9^{9^{9}}}", "1"),  # one power in C, which no signal handler interrupts
        (r"(x+1)^{3000}", r"(x+1)^{2999}(x+2)"),  # an expansion in Python
    ],
)
def test_a_hang_of_the_real_check_is_killed(answer: str, gold: str) -> None:
    pool = WorkerPool(SYMBOLIC_WORKER, size=1, time_limit=1.5)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        pool.ask(answer, gold)
    assert time.monotonic() - start < 30
    assert pool.ask(r"\sqrt{48}", r"4\sqrt{3}") == "equal"
    assert pool.ask(r"\sqrt{48}", r"4\sqrt{2}") == "unequal"
    assert pool.ask(r"\frac{", r"4\sqrt{2}").startswith("error")
    pool.close()


HANGING = STAND_IN.replace('answer == "hang"', '"48" in answer')
DYING = STAND_IN.replace('answer == "die"', '"48" in answer')
FAILING = STAND_IN.replace('"equal" if answer == gold', '"error: it failed" if "48" in answer')


@pytest.mark.parametrize(
    ("program", "outcome", "counts"),
    [
        (HANGING, Outcome.TIMEOUT, GradingCounts(graded=2, symbolic=2, timeouts=2)),
        (DYING, Outcome.ERROR, GradingCounts(graded=2, symbolic=2, errors=2)),
        (FAILING, Outcome.ERROR, GradingCounts(graded=2, symbolic=2, errors=2)),
    ],
    ids=["hanging", "dying", "failing"],
)
def test_an_undecided_check_is_told_counted_and_not_paid_for_twice(
    tmp_path: Path,
    program: str,
    outcome: Outcome,
    counts: GradingCounts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    with Grader(worker=script, time_limit=1.0) as grader:
        assert grader.compare(r"\sqrt{48}", r"4\sqrt{3}") is outcome
        assert "symbolic check" in caplog.text
        start = time.monotonic()
        assert not grader.is_correct(r"\boxed{\sqrt{48}}", r"4\sqrt{3}")
        assert time.monotonic() - start < 0.5
        assert grader.counts == counts
        assert grader.timeouts == counts.timeouts


ONCE = """
import json, os, sys
from pathlib import Path

seen = Path(__file__).with_name("seen")
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    first = not seen.exists()
    with seen.open("a") as file:
        file.write("asked\\n")
    if first:
        FAIL
    print(json.dumps("equal"), flush=True)
"""


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        ("while True: pass", Outcome.TIMEOUT),
        ("print(json.dumps('error: once'), flush=True); continue", Outcome.ERROR),
    ],
    ids=["hanging", "failing"],
)
def test_an_undecided_check_is_made_again_after_a_while(
    tmp_path: Path, failure: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "program.py"
    script.write_text(ONCE.replace("FAIL", failure))
    now = 1000.0
    monkeypatch.setattr("fastrl.geometry.grading.grader.monotonic", lambda: now)
    pair = (r"\sqrt{48}", r"4\sqrt{3}")
    asked = tmp_path / "seen"
    with Grader(worker=script, time_limit=1.0) as grader:
        assert grader.compare(*pair) is outcome
        now += UNDECIDED_SECONDS - 1
        assert grader.compare(*pair) is outcome
        assert asked.read_text() == "asked\n"
        now += 2
        assert grader.compare(*pair) is Outcome.CORRECT
        now += 10 * UNDECIDED_SECONDS
        assert grader.compare(*pair) is Outcome.CORRECT
        assert asked.read_text() == "asked\n" * 2


def test_undecided_pairs_are_held_in_bounded_memory(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrl.geometry.grading.grader.MAX_UNDECIDED", 3)
    stand_in.write_text(STAND_IN.replace('"equal" if answer == gold', '"error: no" if True'))
    with Grader(worker=stand_in) as grader:
        for k in range(2, 10):
            assert grader.compare(rf"\sqrt{{{3 * k * k}}}", rf"{k}\sqrt{{3}}") is Outcome.ERROR
        assert len(grader._undecided) == 3


def test_grading_from_threads_counts_every_one() -> None:
    pairs = [(r"\sqrt{12}", r"2\sqrt{3}"), ("7", "7"), ("8", "7"), (r"\sqrt{8}", r"2\sqrt{3}")]
    with Grader() as grader, ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda i: grader.equivalent(*pairs[i % 4]), range(400)))
        assert verdicts == [True, True, False, False] * 100
        assert grader.counts == GradingCounts(graded=400, symbolic=100)


def test_grading_in_a_fork_counts_on_its_own() -> None:
    with Grader() as grader:
        assert grader.equivalent(r"\sqrt{12}", r"2\sqrt{3}")

        def in_child() -> bool:
            before = grader.counts == GradingCounts()
            equal = grader.equivalent(r"\sqrt{27}", r"3\sqrt{3}")
            counted = grader.counts == GradingCounts(graded=1, symbolic=1)
            grader.close()
            return before and equal and counted

        assert in_a_fork(in_child) == 0
        assert grader.counts == GradingCounts(graded=1, symbolic=1)
        assert grader.equivalent(r"\sqrt{75}", r"5\sqrt{3}")


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_a_tolerance_is_a_small_number(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        Grader(tolerance=tolerance)
