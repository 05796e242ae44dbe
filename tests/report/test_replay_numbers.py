"""Replay of hand-made groups: every share and speed-up worked out by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from report_files import write_lines

from fastrl.report.logged import grpo_advantages
from fastrl.report.phases import parse_phases, read_phases
from fastrl.report.reading import read_logs
from fastrl.report.regime import regime_warnings
from fastrl.report.replay import Replay, replay
from fastrl.report.tokens import tokenise

# Group a: two right (one token set each, sharing 1 of 9 words), two wrong with equal words.
# Group b: no contrast; the four answers are the same.
GROUPS = [
    {"group": "a", "reward": 1, "completion": "one two three four five"},
    {"group": "a", "reward": 1, "completion": "five six seven eight nine"},
    {"group": "a", "reward": 0, "completion": "ten ten"},
    {"group": "a", "reward": 0, "completion": "ten"},
    *[{"group": "b", "reward": 1, "completion": "yes"}] * 4,
]


@pytest.fixture
def replayed(tmp_path: Path) -> Replay:
    logged = read_logs([write_lines(tmp_path / "groups.jsonl", GROUPS)])
    phases = parse_phases("gen=40,old=10,ref=10,update=40")
    return replay(logged, tokenise(logged), phases, thresholds=(0.0, 0.1))


def test_facts(replayed: Replay) -> None:
    facts = replayed.facts
    assert (facts.rollouts, facts.groups, facts.group_sizes) == (8, 2, (4, 4))
    assert facts.tokens == 5 + 5 + 2 + 1 + 4
    assert facts.success == 6 / 8
    assert facts.without_contrast == 0.5
    assert facts.never_right == 0.0
    assert facts.values_per_group == 1.5
    # Pairs with the seed of their advantage: 1/9 in a, right; 1 in a, wrong; three of 1 in b.
    assert facts.pairs == 5
    assert facts.similarity_mean == pytest.approx((1 / 9 + 4) / 5)
    assert facts.pairs_below == 1 / 5


def test_differential_keeps_seeds_and_the_other_path(replayed: Replay) -> None:
    at_0, at_01, at_02 = replayed.rules[:3]
    assert [rule.value for rule in (at_0, at_01, at_02)] == [0.0, 0.1, 0.2]
    assert (at_0.kept, at_01.kept, at_02.kept) == (3, 3, 4)  # 1/9 lies between 0.1 and 0.2
    assert at_02.kept_share == 0.5
    assert (at_02.kept_per_prompt, at_02.max_kept_per_prompt) == (2.0, 3)
    assert at_02.tokens_saved == pytest.approx((1 + 3) / 17)  # "ten" and three times "yes"
    assert at_02.values_lost == 0.0
    assert at_02.dropped_similarity == 1.0
    # Generation's 40 s stay, 60 s are halved.
    assert at_02.speedup == pytest.approx(100 / 70)


def test_other_rules_keep_the_same_share(replayed: Replay) -> None:
    by_name = {rule.name: rule for rule in replayed.rules[3:]}
    assert list(by_name) == ["top_advantage", "max_variance", "random"]
    assert all(rule.kept == 4 and rule.kept_share == 0.5 for rule in by_name.values())
    # All |A| are equal in a, so the two first stay: both right, the value of the wrong is lost.
    assert by_name["top_advantage"].values_lost == pytest.approx(1 / 3)
    assert by_name["max_variance"].values_lost == 0.0


def test_advantages_are_trls() -> None:
    rewards_N = np.array([1.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0.1])
    advantages_N = grpo_advantages(rewards_N, np.array([0, 0, 0, 0, 1, 1, 1]))
    assert advantages_N[0] == pytest.approx(0.75 / (0.5 + 1e-4))
    assert advantages_N[1] == pytest.approx(-0.25 / (0.5 + 1e-4))
    assert advantages_N[4:].tolist() == [0.0, 0.0, 0.0]  # not noise of either sign


def test_advantages_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    rewards_N = np.random.default_rng(3).normal(size=24)
    grouped = torch.from_numpy(rewards_N).view(-1, 6)
    expected = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    found = grpo_advantages(rewards_N, np.repeat(np.arange(4), 6))
    np.testing.assert_allclose(found, expected.reshape(-1).numpy(), atol=1e-12)


def test_published_phase_splits() -> None:
    split = parse_phases("gen=74.0,old=3.6,ref=3.4,update=14.3,total=96.6")
    assert split.seconds["other"] == pytest.approx(1.3)
    assert split.bound == pytest.approx(96.6 / 75.3)
    assert split.speedup(0.25) == pytest.approx(96.6 / (75.3 + 0.25 * 21.3))
    assert split.speedup(1.0) == 1.0
    assert parse_phases("gen=1150,old=418,ref=414,update=16783").bound == pytest.approx(
        16.317, 1e-4
    )
    assert math.isinf(parse_phases("update=1").bound)


@pytest.mark.parametrize("text", ["gen", "gen=-1", "gen=x", "nap=3", "gen=5,total=4", "gen=0"])
def test_bad_phases_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--phases"):
        parse_phases(text)


def test_phases_of_a_pruned_run_are_scaled_to_plain(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "fastrl/generated": 8.0, "fastrl/kept": 2.0},
        {"step": 2, "fastrl/time/generate": 3.0, "fastrl/time/update": 2.0},
    ]
    split = read_phases(write_lines(tmp_path / "metrics.jsonl", lines))
    assert split.seconds == {"generate": 3.0, "update": 8.0}
    assert "kept 25%" in split.source


def test_phases_of_verl(tmp_path: Path) -> None:
    data = {"timing_s/gen": 31.27, "timing_s/update_actor": 10.0, "timing_s/step": 43.64}
    split = read_phases(write_lines(tmp_path / "log.jsonl", [{"step": 1, "data": data}]))
    assert split.seconds["generate"] == 31.27
    assert split.seconds["other"] == pytest.approx(43.64 - 41.27)
    with pytest.raises(ValueError, match="no fastrl/time"):
        read_phases(write_lines(tmp_path / "empty.jsonl", [{"loss": 1}]))


def warnings_of(tmp_path: Path, rows: list[dict], phases: str | None = None) -> str:
    logged = read_logs([write_lines(tmp_path / "rows.jsonl", rows)])
    split = parse_phases(phases) if phases else None
    return " ".join(regime_warnings(replay(logged, tokenise(logged), split)))


def test_warnings_name_the_regime(tmp_path: Path) -> None:
    rare = [
        {"group": g, "reward": int(g == 0 and i == 0), "completion": f"a{i} b"}
        for g in range(20)
        for i in range(3)
    ]
    told = warnings_of(tmp_path, rare, "gen=9,update=1")
    for part in ("Success is rare (2%", "Groups are small (3", "95% of the groups", "1.11x"):
        assert part in told
    foreign = [
        {"group": g, "reward": i % 2, "token_ids": [1000 * g + 10 * i + k for k in range(5)]}
        for g in range(6)
        for i in range(8)
    ]
    told = warnings_of(tmp_path, foreign)
    assert "Nearly all pairs" in told
    assert "keeps 100%" in told
    same = [{"group": g, "reward": i % 2, "completion": "x"} for g in range(6) for i in range(8)]
    assert "Hardly any pair" in warnings_of(tmp_path, same)


def test_a_good_regime_gives_no_warning(tmp_path: Path) -> None:
    rows = [
        {"group": g, "reward": i % 2, "token_ids": [i // 4, 7, 8] if i < 6 else [90 + i]}
        for g in range(6)
        for i in range(8)
    ]
    assert warnings_of(tmp_path, rows, "gen=30,update=70") == ""
