"""The canary: every seam of verl that the host uses, with its parameters."""

import ast
import inspect
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import verl
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerSync, agent_loop_tq, get_trainer_cls

from fastrl import doctor
from fastrl.core.seams import HostVersionError
from fastrl.verl import versions
from fastrl.verl.trainer import FastRLTrainer
from fastrl.verl.versions import INNER_SEAMS, SEAMS, check_seams, check_verl_version, missing_seams

NAMES = [(module, owner, name) for module, owner, seams in SEAMS for name in seams]


@pytest.mark.parametrize(("module", "owner", "name"), NAMES)
def test_seam(module: str, owner: str, name: str) -> None:
    needed = next(s[name] for m, o, s in SEAMS if (m, o) == (module, owner))
    found = import_module(module)
    seam = getattr(getattr(found, owner) if owner else found, name)
    if needed:
        assert set(needed) <= inspect.signature(seam).parameters.keys()


@pytest.mark.parametrize(
    ("module", "path", "text"),
    [(m, path, text) for m, path, texts in INNER_SEAMS for text in texts],
)
def test_inner_seam(module: str, path: str, text: str) -> None:
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert text in inspect.getsource(found)


def test_everything_imported_of_verl_is_a_seam() -> None:
    modules = {module for module, _, _ in SEAMS}
    listed = {(m, owner) for m, owner, _ in SEAMS if owner} | {
        (m, name) for m, owner, seams in SEAMS if not owner for name in seams
    }
    imported = {
        (node.module, alias.name)
        for path in Path(versions.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in ("verl", "transfer_queue")
        for alias in node.names
    }
    assert len(imported) > 10
    assert {
        (module, name)
        for module, name in imported
        if (module, name) not in listed and f"{module}.{name}" not in modules
    } == set()


def test_every_override_is_a_seam() -> None:
    table = next(seams for _, owner, seams in SEAMS if owner == "PPOTrainerSync")
    overridden = {
        name
        for name in vars(FastRLTrainer)
        if hasattr(PPOTrainerSync, name) and not name.startswith("__") and name != "_abc_impl"
    }
    assert overridden <= table.keys()
    assert len(overridden) == 8


def test_the_order_of_a_step_is_the_one_that_pruning_needs() -> None:
    source = inspect.getsource(PPOTrainer._step_once)
    calls = ["_balance_batch", "_compute_old_log_prob", "_compute_ref_log_prob"]
    calls += ["_compute_advantage", "_update_actor"]
    places = [source.index(f"self.{name}(") for name in calls]
    assert places == sorted(places)
    # The sizes of an update go to the workers with the batch.
    update = inspect.getsource(PPOTrainer._update_actor)
    assert "batch.extra_info.update(extra_info)" in update
    assert "self.actor_rollout_wg.update_actor(batch)" in update


def test_the_agent_loop_takes_the_number_of_rollouts_from_the_prompt() -> None:
    worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_actor_class__
    assert '"__rollout_n__"' in inspect.getsource(worker._run_prompt)


def test_all_seams_are_in_place() -> None:
    assert missing_seams() == []
    check_seams()
    assert check_verl_version() == verl.__version__


def test_a_moved_seam_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(PPOTrainer, "_compute_advantage")
    with pytest.raises(HostVersionError, match="_compute_advantage does not exist"):
        check_seams()
    finding = next(f for f in doctor.examine() if f.what == "verl host")
    assert "_compute_advantage does not exist" in finding.found
    assert 'pip install "verl>=0.9.1,<0.9.2"' in finding.remedy


def test_a_name_that_moved_within_a_function_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: Any) -> None:
        self.timings = {}

    monkeypatch.setattr(PPOTrainer, "fit", fit)
    with pytest.raises(HostVersionError, match=r"fit no longer has 'self\.timing_raw = \{\}'"):
        check_seams()
    monkeypatch.delattr(PPOTrainer, "fit")
    with pytest.raises(HostVersionError, match=r"PPOTrainer\.fit does not exist"):
        check_seams()


@pytest.mark.parametrize("found", ["0.9.0", "0.9.2", "1.0"])
def test_other_versions_are_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: found)
    with pytest.raises(HostVersionError, match=f"found verl {found}"):
        check_verl_version()


def test_a_missing_verl_comes_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(HostVersionError, match="pip install"):
        check_verl_version()


def test_verl_loads_the_trainer() -> None:
    assert get_trainer_cls("fastrl") is FastRLTrainer


def test_the_doctor_finds_a_sound_installation() -> None:
    findings = {finding.what: finding for finding in doctor.examine()}
    host = findings["verl host"]
    assert host.remedy == ""
    assert "seams in place" in host.found
    assert "verl loads the trainer" in host.found


def test_the_doctor_names_what_verl_does_not_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    real = versions.version

    def without(name: str) -> str:
        if name in ("TransferQueue", "nvtx"):
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(versions, "version", without)
    finding = next(f for f in doctor.examine() if f.what == "verl host")
    assert "TransferQueue, nvtx" in finding.found
    assert finding.remedy == "pip install TransferQueue nvtx"
