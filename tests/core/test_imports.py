"""The core stands alone: no torch, no host."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_core_loads_no_torch_and_no_host() -> None:
    code = (
        "import sys, fastrl.core;"
        "names = ('torch', 'transformers', 'trl', 'verl', 'fastrl.trl', 'fastrl.verl');"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
