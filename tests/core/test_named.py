import pytest

from fastrl.core import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    TopAdvantagePruning,
)
from fastrl.core.named import PRUNE_RULES, count_problems, flag_problems, named_rule, rule_problems
from fastrl.core.seams import moved_seams


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
def test_a_rule_by_its_name(name: str, rule: PruningRule) -> None:
    assert named_rule(name, similarity_threshold=0.3, keep_fraction=0.25) == rule
    assert name in PRUNE_RULES


def test_no_rule_of_that_name() -> None:
    with pytest.raises(ValueError, match="prune_rule = 'best'"):
        named_rule("best")


def test_problems_name_field_and_value() -> None:
    assert rule_problems("differential", 0.2, 0.5, "exact") == []
    told = rule_problems("max_variance", 1.5, True, "exact")
    assert [line.split(":")[0] for line in told] == [
        "similarity_threshold = 1.5",
        "keep_fraction = True",
        "weighting = 'exact' does not exist for prune_rule = 'max_variance', which always leaves "
        "the same rollouts out; use weighting='kept'",
    ]
    assert count_problems({"a": (2, 2), "b": (True, 0), "c": (1, 2)}) == [
        "b = True: expected an integer of at least 0",
        "c = 1: expected an integer of at least 2",
    ]
    assert flag_problems({"a": True, "b": 1}) == ["b = 1: expected true or false"]


def test_a_seam_that_moved_is_named() -> None:
    class Host:
        def kept(self, batch: int) -> None: ...

        def takes_anything(self, **kwargs: int) -> None: ...

    seams: dict[str, tuple[str, ...]] = {
        "kept": ("batch", "metrics"),
        "gone": ("batch",),
        "takes_anything": ("batch",),
    }
    assert moved_seams(Host, seams) == [
        "Host.kept no longer takes metrics",
        "Host.gone does not exist",
    ]
