"""Headless Chromium, driven over a pipe: a page as a phone or a printer shows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Tab:
    """An open page, spoken to in the DevTools protocol: JSON messages that end in a NUL byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", ""

    def open(self, path: Path, **media: Any) -> None:
        """Load a file; `media` overrides the size of the screen, as in `width=390`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        size = {"width": 1200, "height": 844, "deviceScaleFactor": 1, "mobile": False, **media}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.enable")
        self.call("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 16)
            assert read, "Chromium has gone"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def chromium_tab(profile: Path) -> Iterator[Tab]:
    """A browser for as long as the block lasts."""
    browser_reads, to_browser = os.pipe()
    from_browser, browser_writes = os.pipe()
    # It speaks on file descriptors 3 and 4.
    script = f'exec "$@" 3<&{browser_reads} 4>&{browser_writes}'
    words = [str(CHROMIUM), *SWITCHES, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *words],
        pass_fds=(browser_reads, browser_writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_reads)
    os.close(browser_writes)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        process.kill()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
