from fastrl.core import DifferentialPruning, KeepAll, RandomPruning
from fastrl.verl.config import FastRLSettings, read_settings


def test_no_settings_are_the_defaults() -> None:
    settings, problems = read_settings(None)
    assert problems == []
    assert settings == FastRLSettings()
    assert (settings.prune_rule, settings.weighting) == ("differential", "exact")
    assert not settings.adaptive_rollouts


def test_settings_are_read_by_name() -> None:
    given = {"prune_rule": "random", "keep_fraction": 0.25, "weighting": "kept", "start_step": 3}
    settings, problems = read_settings(given)
    assert problems == []
    assert settings.rule() == RandomPruning(keep_fraction=0.25)
    assert settings.start_step == 3
    assert settings.prunes


def test_the_rules() -> None:
    assert FastRLSettings(similarity_threshold=0.5).rule() == DifferentialPruning(0.5)
    assert FastRLSettings(prune_rule="none").rule() == KeepAll()
    assert not FastRLSettings(prune_rule="none").prunes


def test_every_problem_is_listed_at_once() -> None:
    given = {
        "prune_rule": "best",
        "similarity_treshold": 0.1,
        "keep_fraction": 0,
        "weighting": "fair",
        "min_generations": 1,
        "seed": -1,
        "adaptive_rollouts": "yes",
    }
    _, problems = read_settings(given)
    told = "\n".join(problems)
    assert len(problems) == 7
    for fragment in (
        "prune_rule = 'best'",
        "similarity_treshold = 0.1: there is no such setting",
        "keep_fraction = 0: expected a number in (0, 1]",
        "weighting = 'fair'",
        "min_generations = 1: expected an integer of at least 2",
        "seed = -1",
        "adaptive_rollouts = 'yes': expected true or false",
    ):
        assert fragment in told


def test_a_value_in_place_of_settings() -> None:
    _, problems = read_settings(True)
    assert len(problems) == 1
    assert "+trainer.fastrl.prune_rule=differential" in problems[0]
