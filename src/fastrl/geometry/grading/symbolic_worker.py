"""The symbolic check, run as a process of its own by `pool.WorkerPool`; it imports no fastrl.

A line of JSON in, [answer, gold] in LaTeX; a line of JSON out, "equal", "unequal" or "error: ...".
math-verify's own time limits need the main thread and cannot interrupt arithmetic on huge integers;
here they are off, and whoever asks kills the process.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

MEMORY_LIMIT = 4 * 2**30


def check(answer: str, gold: str, math_verify: Any) -> str:
    """Whether two expressions are equal, by math-verify; any failure is told, none is raised."""
    config = [math_verify.LatexExtractionConfig()]
    try:
        parsed = [
            math_verify.parse(
                f"${latex}$",
                extraction_config=config,
                fallback_mode="no_fallback",
                parsing_timeout=None,
                raise_on_error=True,
            )
            for latex in (answer, gold)
        ]
        if not all(parsed):
            return "error: math-verify could not parse it"
        equal = math_verify.verify(parsed[1], parsed[0], timeout_seconds=None, raise_on_error=True)
    except Exception as error:  # sympy raises nearly anything; this process is the isolation
        return f"error: {type(error).__name__}: {error}"
    return "equal" if equal else "unequal"


def main() -> None:
    """Answer questions until the pipe closes."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)  # a line leaves when it ends
    os.dup2(2, 1)  # whatever a library prints must not be taken for a reply
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    import math_verify  # type: ignore[import-untyped]

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    time_limit = float(sys.argv[-1])
    replies.write(json.dumps("ready") + "\n")
    for line in sys.stdin:
        # Should the asking process die, nobody would end a hang: the kernel does.
        signal.setitimer(signal.ITIMER_REAL, 2 * time_limit + 1)
        answer, gold = json.loads(line)
        replies.write(json.dumps(check(answer, gold, math_verify)) + "\n")
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
