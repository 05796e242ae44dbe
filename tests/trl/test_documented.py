"""The table of what works names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "trl.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`", PAGE.read_text())
    assert len(named) >= 15
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
