import pytest
import torch
from typer.testing import CliRunner

from fastrl import doctor
from fastrl.cli import app


def test_a_sound_installation_has_no_problem() -> None:
    findings = {finding.what: finding for finding in doctor.examine()}
    assert findings["trl"].found.startswith("1.16")
    assert "seams in place" in findings["TRL host"].found
    assert findings["TRL host"].remedy == ""
    assert "CPU" in findings["accelerator"].found or " x " in findings["accelerator"].found


def test_the_form_of_attention_for_shared_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastrl.trl.shared_prefix import forms

    found = {finding.what: finding.found for finding in doctor.examine()}["shared prefixes"]
    if not torch.accelerator.is_available():
        assert found == "split attention on cpu"
    monkeypatch.setattr(
        forms, "machine_form", lambda device, dtype: "fast" if dtype == torch.bfloat16 else "plain"
    )
    found = {finding.what: finding.found for finding in doctor.examine()}["shared prefixes"]
    assert found.startswith("fast in bfloat16, plain in float32 attention on ")


def test_a_version_out_of_range_comes_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastrl.trl import versions

    monkeypatch.setattr(versions, "version", lambda name: "1.30.0")
    finding = next(f for f in doctor.examine() if f.what == "TRL host")
    assert "found trl 1.30.0" in finding.found
    assert "pip install" in finding.remedy


def test_remedies_are_printed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = 'pip install "fastrl-grpo[trl]" [a list]'
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Finding("x", "[none]", remedy)])
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert remedy in result.output
    assert "[none]" in result.output


def test_a_moved_seam_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from trl import GRPOTrainer

    monkeypatch.delattr(GRPOTrainer, "_calculate_rewards")
    finding = next(f for f in doctor.examine() if f.what == "TRL host")
    assert "GRPOTrainer._calculate_rewards does not exist" in finding.found
    assert "pip install" in finding.remedy


@pytest.mark.parametrize(
    ("installed", "found", "has_remedy"),
    [
        (None, "not installed (only needed with use_vllm=True)", False),
        ("0.24.0+cu129", "0.24.0+cu129", False),
        ("0.31.0", "0.31.0", False),
        ("0.32.0", "0.32.0, which TRL does not support", True),
        ("0.21.9", "0.21.9, which TRL does not support", True),
    ],
)
def test_the_version_of_vllm(
    installed: str | None, found: str, has_remedy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor._installed
    monkeypatch.setattr(
        doctor, "_installed", lambda name: installed if name == "vllm" else real(name)
    )
    finding = next(f for f in doctor.examine() if f.what == "vllm")
    assert finding.found == found
    assert finding.remedy == ('pip install "vllm>=0.22.0,<=0.31.0"' if has_remedy else "")
