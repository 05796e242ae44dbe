"""FastRL for verl: `python -m fastrl.verl <ordinary verl overrides>`."""

from fastrl.verl.versions import check_verl_version

check_verl_version()

from fastrl.verl.config import FastRLSettings  # noqa: E402

__all__ = ["FastRLSettings"]
