"""The config: defaults, fields of both libraries, and every wrong field told at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tiny_runs import settings
from trl import GRPOConfig

from fastrl.core import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    RandomPruning,
    TopAdvantagePruning,
)
from fastrl.trl import FastGRPOConfig, FastRLArguments
from fastrl.trl.config import build_rule


def test_every_field_of_trl_is_there_with_its_default() -> None:
    ours = {f.name: f for f in dataclasses.fields(FastGRPOConfig)}
    for theirs in dataclasses.fields(GRPOConfig):
        assert ours[theirs.name].default == theirs.default or theirs.default is dataclasses.MISSING


def test_every_field_of_ours_has_a_help_text() -> None:
    for field in dataclasses.fields(FastRLArguments):
        assert len(field.metadata["help"]) > 20


def test_defaults() -> None:
    args = FastRLArguments()
    assert dataclasses.asdict(args) == {
        "prune_rule": "differential",
        "similarity_threshold": 0.2,
        "keep_fraction": 0.5,
        "weighting": "exact",
        "drop_uninformative": False,
        "adaptive_rollouts": False,
        "min_generations": 2,
        "steps_per_epoch": None,
        "shared_prefix": "auto",
        "start_step": 0,
        "dynamic_sampling": False,
        "max_resamples": 8,
        "contrast": "sum",
    }


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"prune_rule": "best"}, "prune_rule = 'best'"),
        ({"similarity_threshold": 1.5}, "similarity_threshold = 1.5"),
        ({"similarity_threshold": float("nan")}, "similarity_threshold = nan"),
        ({"similarity_threshold": "0.2"}, "similarity_threshold = '0.2'"),
        ({"keep_fraction": 0}, "keep_fraction = 0"),
        ({"keep_fraction": None}, "keep_fraction = None"),
        ({"weighting": "both"}, "weighting = 'both'"),
        ({"weighting": "exact", "prune_rule": "top_advantage"}, "does not exist for prune_rule"),
        ({"weighting": "exact", "prune_rule": "max_variance"}, "does not exist for prune_rule"),
        ({"min_generations": 1}, "min_generations = 1"),
        ({"min_generations": 2.5}, "min_generations = 2.5"),
        ({"min_generations": 9}, "more than num_generations = 4"),
        ({"steps_per_epoch": 0}, "steps_per_epoch = 0"),
        ({"start_step": -1}, "start_step = -1"),
        ({"start_step": True}, "start_step = True"),
        ({"adaptive_rollouts": "no"}, "adaptive_rollouts = 'no'"),
        ({"drop_uninformative": 3}, "drop_uninformative = 3"),
        ({"dynamic_sampling": 1}, "dynamic_sampling = 1"),
        ({"max_resamples": 0}, "max_resamples = 0"),
        ({"contrast": ""}, "contrast = ''"),
        ({"contrast": 2}, "contrast = 2"),
    ],
)
def test_a_wrong_field_is_told(out: str, overrides: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match="FastRL's settings") as caught:
        FastGRPOConfig(**settings(out, **overrides))
    assert told in str(caught.value)


def test_all_wrong_fields_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"prune_rule.*keep_fraction.*start_step"):
        FastRLArguments(prune_rule="best", keep_fraction=2.0, start_step=-1)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("differential", DifferentialPruning(similarity_threshold=0.3)),
        ("top_advantage", TopAdvantagePruning(keep_fraction=0.25)),
        ("max_variance", MaxVariancePruning(keep_fraction=0.25)),
        ("random", RandomPruning(keep_fraction=0.25)),
        ("none", KeepAll()),
    ],
)
def test_build_rule(name: str, rule: Any) -> None:
    args = FastRLArguments(
        prune_rule=name, similarity_threshold=0.3, keep_fraction=0.25, weighting="kept"
    )
    assert build_rule(args) == rule
