"""The tests of the verl host need verl, which cannot share an environment with TRL."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

try:
    version("verl")  # not find_spec, which would find this very folder
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and eight prompts."""
    from cpu_runs import make_model, make_prompts

    folder = tmp_path_factory.mktemp("assets")
    make_model(folder / "model")
    make_prompts(folder / "prompts.parquet", count=8)
    return folder
