import re
from pathlib import Path

import pytest

from fastrl.runs.arguments import RunArguments

DOCS = Path(__file__).resolve().parents[3] / "docs" / "datasets.md"


def test_the_adapter_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "def adapt" in block
    ]
    names: dict[str, object] = {}
    exec(code, names)
    assert capsys.readouterr().out == "6\n"
    prompt = names["train_dataset"][0]["prompt"]  # type: ignore[index]
    assert [message["role"] for message in prompt] == ["system", "user"]


def test_every_option_of_the_documentation_exists() -> None:
    known = {*vars(RunArguments()), "eval_strategy"}
    named = set(re.findall(r"--(\w+)", DOCS.read_text()))
    assert named <= known
    assert {"dataset", "skip_broken", "max_prompt_length", "eval_split"} <= named
