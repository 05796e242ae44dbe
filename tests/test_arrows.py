"""The import arrows of the design: who may import whom."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fastrl

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fastrl"
LAYERS = (
    "core",
    "trl",
    "verl",
    "geometry",
    "evaluation",
    "runs",
    "recipes",
    "report",
    "cli",
    "doctor",
    "__main__",
)
MAY_IMPORT = {
    "core": {"core"},
    "trl": {"core", "trl"},
    "verl": {"core", "verl"},
    "report": {"core", "report"},
    "geometry": {"core", "geometry"},
    "evaluation": {"geometry", "evaluation"},
    "recipes": {"recipes"},
    "runs": {"core", "trl", "geometry", "recipes", "report", "runs"},
    "doctor": {"core", "trl", "verl"},
    "cli": {"runs", "recipes", "report", "geometry", "evaluation", "doctor", "trl"},
    "__main__": {"cli"},
}


def imported_layers(path: Path) -> set[str]:
    """The layers of fastrl that a file names in its imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fastrl" and len(parts) > 1 and parts[1] in LAYERS:
                found.add(parts[1])
    return found


def files() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent != SOURCE or path.stem in LAYERS
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_layer_may(path: Path) -> None:
    layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert imported_layers(path) <= MAY_IMPORT[layer]


def test_every_source_file_is_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


@pytest.mark.parametrize("module", ["fastrl", "fastrl.core", "fastrl.cli", "fastrl.doctor"])
def test_importing_needs_no_torch(module: str) -> None:
    code = (
        f"import sys, {module}; heavy = ('torch', 'transformers', 'trl', 'verl', 'pyarrow'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"


def test_the_package_is_the_command_line() -> None:
    words = [sys.executable, "-m", "fastrl", "--version"]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert output == f"fastrl {fastrl.__version__}\n"


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Two of a name cannot be collected together: tests are imported by file name."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
