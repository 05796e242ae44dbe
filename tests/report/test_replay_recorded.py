"""Replay of real groups, where they lie beside the project; the table of docs/replay.md."""

from pathlib import Path

import pytest

from fastrl.report.formats import ReadOptions
from fastrl.report.reading import read_logs
from fastrl.report.replay import replay
from fastrl.report.tokens import tokenise

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FIELDS = {"completions": "responses", "prompt": "question", "rewards": "reward"}


@pytest.mark.parametrize(
    ("name", "groups", "size", "kept", "without_contrast"),
    [
        # Eight groups, three times: 22 of 96.
        ("rollouts_gsm8k_qwen05b_grpo/rollouts.jsonl.gz", 24, 12, 3 * 22, 0.0),
        ("rollouts_qwen25math_math_100x8/rollouts.jsonl", 100, 8, 113, 0.90),
        # Recorded correct-of-4 histogram: 432 groups with none, 156 with all, 731 mixed: 588 + 2
        # x 731 seeds; five of 3,226 others are below the threshold.
        ("rollouts_gsm8k_openai_1319x4/rollouts.jsonl.gz", 1319, 4, 2050 + 5, 588 / 1319),
    ],
)
def test_recorded_groups(
    name: str, groups: int, size: int, kept: int, without_contrast: float
) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent: recorded rollouts not mounted")
    logged = read_logs([path], ReadOptions(fields=FIELDS))
    found = replay(logged, tokenise(logged))
    assert (found.facts.groups, found.facts.group_sizes) == (groups, (size, size))
    assert found.facts.without_contrast == pytest.approx(without_contrast)
    published = next(rule for rule in found.rules if rule.value == 0.2)
    assert published.kept == kept
    # Rewards that differ are never all dropped: one rollout per distinct advantage stays.
    assert published.values_lost == 0.0
    told = [note for note in logged.notes if "repeat an earlier one" in note]
    assert [note.split(" groups")[0] for note in told] == (["16 of 24"] if groups == 24 else [])
