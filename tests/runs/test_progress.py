"""What progress says where there is no terminal."""

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from fastrl.runs import progress as module
from fastrl.runs.progress import Progress


def told(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> list[str]:
    clock = iter(seconds)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    file = StringIO()
    with Progress(Console(file=file)).counting("Asking") as update:
        update(1, 9)
        update(2, 9)
    return file.getvalue().splitlines()


def test_a_log_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, [0, 30, 50]) == ["Asking"]
    assert told(monkeypatch, [0, 30, 61, 61]) == ["Asking", "Asking: 2 of 9"]
