"""The canary: every seam of TRL that the host uses, with its parameters."""

from __future__ import annotations

import inspect
import types
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest
import trl.trainer.utils
from tiny_runs import make_trainer
from transformers import GenerationMixin
from trl import GRPOTrainer

from fastrl.trl import versions, with_fastrl
from fastrl.trl.versions import (
    GENERATION_SEAMS,
    MAXIMUM_VLLM,
    MINIMUM_VLLM,
    TRAINER_ATTRIBUTES,
    TRAINER_SEAMS,
    UTILITY_SEAMS,
    HostVersionError,
    check_seams,
    check_trl_version,
    missing_seams,
)


@pytest.mark.parametrize(("name", "parameters"), TRAINER_SEAMS.items())
def test_trainer_seam(name: str, parameters: tuple[str, ...]) -> None:
    found = inspect.signature(getattr(GRPOTrainer, name)).parameters
    assert set(parameters) <= found.keys()


@pytest.mark.parametrize(("name", "parameters"), UTILITY_SEAMS.items())
def test_utility_seam(name: str, parameters: tuple[str, ...]) -> None:
    found = inspect.signature(getattr(trl.trainer.utils, name)).parameters
    assert set(parameters) <= found.keys()


@pytest.mark.parametrize(("name", "parameters"), GENERATION_SEAMS.items())
def test_generation_seam(name: str, parameters: tuple[str, ...]) -> None:
    found = inspect.signature(getattr(GenerationMixin, name)).parameters
    assert set(parameters) <= found.keys()


def test_trainer_attributes(text_model: str, out: str) -> None:
    trainer = make_trainer(text_model, out, trainer_class=GRPOTrainer)
    assert [name for name in TRAINER_ATTRIBUTES if not hasattr(trainer, name)] == []
    assert trainer._logs.keys() >= {"images", "prompt", "completion", "rewards", "advantages"}
    assert trainer._logs["extra"]["anything"].maxlen == trainer.args.generation_batch_size
    assert trainer._metrics["train"]["anything"] == []
    sampler = trainer._get_train_sampler()
    assert type(sampler) is trl.trainer.utils.RepeatSampler
    assert (sampler.num_samples, sampler.shuffle) == (8, True)
    assert sampler.generator.initial_seed() == trainer.args.seed


def test_every_seam_is_in_place() -> None:
    assert missing_seams(GRPOTrainer, trl.trainer.utils, GenerationMixin) == []


class Moved(GRPOTrainer):
    """A TRL whose loss has another signature, and that no longer has a utility."""

    def _compute_loss(self, inputs: Any) -> Any:
        return super()._compute_loss(self.model, inputs)


def test_a_moved_seam_raises_and_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostVersionError, match=r"_compute_loss no longer takes model.*pip install"):
        check_seams(Moved, trl.trainer.utils, GenerationMixin)
    with pytest.raises(HostVersionError, match="split_pixel_values_by_grid does not exist"):
        check_seams(GRPOTrainer, types.SimpleNamespace(), GenerationMixin)
    with pytest.raises(HostVersionError, match="_compute_loss"):
        with_fastrl(Moved)


def test_the_ready_trainer_checks_too(
    text_model: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(GRPOTrainer, "_calculate_rewards")
    with pytest.raises(HostVersionError, match="_calculate_rewards does not exist"):
        make_trainer(text_model, out)


@pytest.mark.parametrize("found", ["1.15.9", "1.17.0", "2.0"])
def test_a_version_out_of_range_raises(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(versions, "version", lambda name: found)
    with pytest.raises(HostVersionError, match=rf"found trl {found}.*pip install"):
        check_trl_version()


def test_a_version_in_range_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: "1.16.2")
    assert check_trl_version() == "1.16.2"


def test_without_trl_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(HostVersionError, match=r"not installed.*pip install"):
        check_trl_version()


def test_the_range_of_vllm_is_trls() -> None:
    (asked,) = (line for line in requires("trl") or [] if line.startswith("vllm"))
    assert f"<={MAXIMUM_VLLM}" in asked
    assert f">={MINIMUM_VLLM}" in asked
