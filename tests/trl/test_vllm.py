"""Pruning with vLLM generation: TRL's importance-sampling correction, on kept rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stand_in_engine
import torch
from rank_runs import with_engine
from tiny_runs import largest_difference, make_trainer, vision_rows, weights_of
from trl import GRPOTrainer

from fastrl.trl.weighting import SHARE_KEY
from process_runs import run_ranks

MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
# Narrow bounds, so that some ratios of a bfloat16 engine lie outside them.
BOUNDS = {"vllm_importance_sampling_clip_min": 0.97, "vllm_importance_sampling_clip_max": 1.03}
TOLERANCE = 1e-3  # of weights after one update; see test_several_processes.py
COMMON: dict[str, Any] = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "weighting": "exact",
    "adaptive_rollouts": False,
    "similarity_threshold": 0.0,
    **BOUNDS,
}
SAMPLING = (
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "sampling/importance_sampling_ratio/min",
    "sampling/importance_sampling_ratio/mean",
    "sampling/importance_sampling_ratio/max",
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, text_model: str) -> None:
    """The stand-in, which now and then has no log-prob for a token."""
    stand_in_engine.install(monkeypatch, text_model, unscored_every=7)


def stock(model: str, out: str, **given: Any) -> tuple[Any, dict[str, Any]]:
    """TRL's own trainer, and the first batch as it scores it."""
    ours = ("weighting", "adaptive_rollouts", "similarity_threshold", "prune_rule")
    trl_settings = {name: value for name, value in given.items() if name not in ours}
    trainer = make_trainer(model, out, trainer_class=GRPOTrainer, **trl_settings)
    scored: list[dict[str, Any]] = []
    original = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: (
        scored.append(original(inputs)) or scored[-1]
    )
    trainer.train()
    return trainer, scored[0]


def fast(model: str, out: str, **given: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Ours, and the micro-batches of the first batch."""
    trainer = make_trainer(model, out, **given)
    batches: list[Any] = []
    original = trainer._new_micro_batches
    trainer._new_micro_batches = lambda batch: batches.append(original(batch)) or batches[-1]
    trainer.train()
    return trainer, batches[0]


def by_row(batch: dict[str, Any], name: str) -> list[tuple[tuple[int, ...], Any]]:
    """(tokens, values) of each row, padding left out; values per token or one for the row."""
    rows = []
    for index in range(len(batch["completion_ids"])):
        used = batch["completion_mask"][index].bool()
        prompt = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()]
        tokens = (*prompt.tolist(), *batch["completion_ids"][index][used].tolist())
        values = batch[name][index]
        rows.append((tokens, values[used] if values.numel() == used.numel() else values))
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_the_ratio_of_kept_rows_is_trls(engine: None, text_model: str, out: str, mode: str) -> None:
    given = {**COMMON, "vllm_importance_sampling_mode": mode, "max_steps": 1, "beta": 0.1}
    _, scored = stock(text_model, out + "/stock", **given)
    trainer, micro_batches = fast(text_model, out + "/fast", **given)
    assert torch.isnan(scored["sampling_per_token_logps"]).any()
    seen = 0
    for name in (
        "importance_sampling_ratio",
        "old_per_token_logps",
        "ref_per_token_logps",
        "sampling_per_token_logps",
    ):
        theirs = dict(by_row(scored, name))
        for micro in micro_batches:
            if not micro[SHARE_KEY].rows:
                continue
            for tokens, values in by_row(micro, name):
                torch.testing.assert_close(
                    values, theirs[tokens], rtol=1e-5, atol=1e-6, equal_nan=True
                )
                seen += name == "importance_sampling_ratio"
            assert not torch.isnan(micro["importance_sampling_ratio"]).any()
    assert seen == trainer.recorder.values("fastrl/kept")[0] < 16
    ratios = scored["importance_sampling_ratio"]
    assert ratios.shape[1] == (1 if mode.startswith("sequence") else 6)
    outside = (ratios == 0) if mode.endswith("mask") else (ratios == 0.97) | (ratios == 1.03)
    assert 0 < int(outside.sum()) < outside.numel()


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_keeps_everything_is_trls(
    engine: None, text_model: str, out: str, mode: str
) -> None:
    """One update, of the whole batch, so that TRL's shuffle does not matter.

    Not more: a difference of 1e-6 in the weights can sample another token.
    """
    given = {
        **COMMON,
        "vllm_importance_sampling_mode": mode,
        "gradient_accumulation_steps": 4,
        "loss_type": "dapo",
        "max_steps": 1,
    }
    plain, _ = stock(text_model, out + "/stock", **given)
    kept = {**given, "prune_rule": "random", "keep_fraction": 1.0, "weighting": "kept"}
    trainer, _ = fast(text_model, out + "/fast", **kept)
    assert trainer.recorder.values("fastrl/kept") == [16]
    assert largest_difference(weights_of(trainer), weights_of(plain)) < TOLERANCE
    for name in SAMPLING:
        (mine,), (theirs,) = trainer.recorder.values(name), plain.recorder.values(name)
        assert mine == pytest.approx(theirs, rel=1e-4), name
    (norm,) = plain.recorder.values("grad_norm")
    assert trainer.recorder.values("grad_norm") == [pytest.approx(norm, rel=1e-4)]
    assert norm > 1e-3
    assert plain.recorder.values("reward") == trainer.recorder.values("reward")


def test_sampling_metrics_are_of_kept_rows(engine: None, text_model: str, out: str) -> None:
    """Worked out from the micro-batches themselves."""
    given = {**COMMON, "vllm_importance_sampling_mode": "token_truncate", "max_steps": 1}
    trainer, micro_batches = fast(text_model, out, **given)
    gaps, ratios = [], []
    for micro in micro_batches:
        if not micro[SHARE_KEY].rows:
            continue
        mask = micro["completion_mask"].bool()
        gap = (micro["old_per_token_logps"] - micro["sampling_per_token_logps"]).abs()[mask]
        gaps += gap[~gap.isnan()].tolist()
        ratios += micro["importance_sampling_ratio"][mask].tolist()
    wanted = [np.mean(gaps), np.max(gaps), np.min(ratios), np.mean(ratios), np.max(ratios)]
    for name, value in zip(SAMPLING, wanted, strict=True):
        assert trainer.recorder.values(name) == [pytest.approx(value, rel=1e-5)]


def test_server_mode_samples_each_prompt_once(engine: None, text_model: str, out: str) -> None:
    """The server gets 4 prompts for 4 samples of each, and the weights of every update."""
    given = {**COMMON, "vllm_mode": "server", "vllm_importance_sampling_mode": "sequence_mask"}
    trainer, micro_batches = fast(text_model, out, **given)
    used = trainer.vllm_generation.vllm_client.engine
    assert used.calls == [(4, 4), (4, 4)]  # 4 updates, 2 a batch
    assert used.loads == 2 * len(weights_of(trainer))
    assert max(trainer.recorder.values("grad_norm")) > 1e-3
    assert any("importance_sampling_ratio" in micro for micro in micro_batches)


def test_server_and_colocated_engine_agree(engine: None, text_model: str, out: str) -> None:
    given = {**COMMON, "vllm_importance_sampling_mode": "token_mask"}
    runs = [
        weights_of(fast(text_model, f"{out}/{mode}", **given | {"vllm_mode": mode})[0])
        for mode in ("colocate", "server")
    ]
    assert largest_difference(*runs) == 0.0


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_fewer_rollouts_reach_the_engine(
    engine: None, text_model: str, out: str, mode: str
) -> None:
    rewards = iter([[0.0, 1.0, 2.0, 3.0] * 4] + [[1.0] * 16] * 3)
    trainer, _ = fast(
        text_model,
        out,
        **COMMON | {"vllm_mode": mode, "adaptive_rollouts": True, "weighting": "kept"},
        steps_per_epoch=1,
        max_steps=8,
        reward=lambda completions, **kwargs: next(rewards)[: len(completions)],
    )
    used = [int(n) for n in trainer.recorder.values("fastrl/num_generations")]
    assert used[0] == 4
    assert used[-1] < 4
    generation = trainer.vllm_generation
    calls = generation.llm.calls if mode == "colocate" else generation.vllm_client.engine.calls
    assert calls == [(4 * n, 1) if mode == "colocate" else (4, n) for n in used]


def test_further_rounds_of_dynamic_sampling_are_corrected(
    engine: None, text_model: str, out: str
) -> None:
    """Two of four groups lack contrast at first: the engine samples two more prompts."""
    calls: list[int] = []

    def flat_groups_at_first(completions: Any, **kwargs: Any) -> list[float]:
        calls.append(len(completions))
        flat = 8 if len(calls) == 1 else 0
        return [0.0 if i < flat else float(i % 2) for i in range(len(completions))]

    trainer, micro_batches = fast(
        text_model,
        out,
        **COMMON | {"vllm_mode": "server", "vllm_importance_sampling_mode": "token_truncate"},
        dynamic_sampling=True,
        reward=flat_groups_at_first,
        max_steps=1,
    )
    assert calls == [16, 8]
    assert trainer.vllm_generation.vllm_client.engine.calls == [(4, 4), (2, 4)]
    filled = [micro for micro in micro_batches if micro[SHARE_KEY].rows]
    assert (
        sum(micro[SHARE_KEY].rows for micro in filled) == trainer.recorder.values("fastrl/kept")[0]
    )
    ratios = torch.cat([micro["importance_sampling_ratio"].flatten() for micro in filled])
    assert 0.97 <= float(ratios.min()) < 1 < float(ratios.max()) <= 1.03 + 1e-6
    (gap,) = trainer.recorder.values(SAMPLING[0])
    assert 0 < gap < 0.1  # of real log-probs: a placeholder's would be several times that


def test_without_the_correction_no_ratio_is_formed(engine: None, text_model: str, out: str) -> None:
    trainer, micro_batches = fast(
        text_model,
        out,
        **COMMON | {"vllm_importance_sampling_correction": False},
        gradient_accumulation_steps=4,
        max_steps=1,
    )
    (micro, *_) = [micro for micro in micro_batches if micro[SHARE_KEY].rows]
    assert "importance_sampling_ratio" not in micro
    assert "old_per_token_logps" not in micro
    assert "sampling_per_token_logps" in micro
    assert not trainer.recorder.values(SAMPLING[0])
    assert trainer.vllm_importance_sampling_correction is False


def test_the_correction_is_on_again_after_scoring(engine: None, text_model: str, out: str) -> None:
    """Only while a batch is scored is it off; evaluation and the loss find it on."""
    trainer, _ = fast(text_model, out, **COMMON, max_steps=1)
    assert trainer.vllm_importance_sampling_correction is True
    assert "importance_sampling_ratio" in trainer._buffered_inputs[-1]


@pytest.mark.parametrize("loss_type", ["vespo", "grpo"])
def test_losses_take_the_ratio_their_own_way(
    engine: None, text_model: str, out: str, loss_type: str
) -> None:
    """VESPO takes it into its weights, the off-policy mask looks at the engine's log-probs."""
    given = {
        **COMMON,
        "vllm_importance_sampling_mode": "token_truncate",
        "loss_type": loss_type,
        "off_policy_mask_threshold": 0.01,
        "gradient_accumulation_steps": 4,
        "max_steps": 1,
    }
    plain, _ = stock(text_model, out + "/stock", **given)
    kept = {**given, "prune_rule": "random", "keep_fraction": 1.0, "weighting": "kept"}
    trainer, _ = fast(text_model, out + "/fast", **kept)
    assert largest_difference(weights_of(trainer), weights_of(plain)) < TOLERANCE


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_pictures_reach_the_engine(
    monkeypatch: pytest.MonkeyPatch, vision_model: str, out: str, mode: str
) -> None:
    """One, none, two, one: each prompt's own, and the ratio of kept rows is formed with them."""
    stand_in_engine.install(monkeypatch, vision_model)
    dataset = vision_rows(4, (1, 0, 2, 1))
    trainer, micro_batches = fast(
        vision_model,
        out,
        **COMMON | {"vllm_mode": mode, "vllm_importance_sampling_mode": "token_truncate"},
        dataset=dataset,
        shuffle_dataset=False,
        max_steps=2,
    )
    generation = trainer.vllm_generation
    used = generation.llm if mode == "colocate" else generation.vllm_client.engine
    each = 4 if mode == "colocate" else 1  # a server gets each prompt once
    wanted = [[one.tobytes() for one in row["images"]] for row in dataset for _ in range(each)]
    assert [[one.tobytes() for one in row] for row in used.pictures] == wanted
    gaps, alone = [], 0
    for micro in micro_batches:
        if not micro[SHARE_KEY].rows:
            continue
        mask = micro["completion_mask"].bool()
        gap = micro["old_per_token_logps"] - micro["sampling_per_token_logps"]
        gaps += gap[mask].abs().tolist()
        ratio = gap.exp().clamp(0.97, 1.03)
        torch.testing.assert_close(micro["importance_sampling_ratio"][mask], ratio[mask])
        # Among rows without a picture nothing is said of pictures.
        alone += list(micro.get("num_images", [0] * len(mask))).count(0)
    assert alone >= 1  # a kept row without a picture
    assert 0 < max(gaps) < 0.1  # bfloat16's, 0.02; of inverted pictures it is 1.9
    assert trainer.recorder.values(SAMPLING[1]) == [pytest.approx(max(gaps), rel=1e-5)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["token_truncate", "sequence_mask"])
def test_a_server_on_two_processes_is_one(text_model: str, out: str, mode: str) -> None:
    """The server samples the same for one process and for two: gradients, weights and metrics.

    13 kept rows, so that a blank one is among the micro-batches: it must not count.
    """
    given = {
        **COMMON,
        "vllm_mode": "server",
        "vllm_importance_sampling_mode": mode,
        "gradient_accumulation_steps": 4,
        "loss_type": "grpo",
        "max_steps": 1,
    }
    one = with_engine(text_model, f"{out}/one", **given)
    two = run_ranks(
        2, with_engine, text_model, f"{out}/two", **given, per_device_train_batch_size=2
    )
    (logged,) = (entry for entry in one["logs"] if "fastrl/kept" in entry)
    assert logged["fastrl/kept"] % 2 == 1
    for told in two:
        assert largest_difference(told["weights"], one["weights"]) < TOLERANCE
        (mine,) = (entry for entry in told["logs"] if "fastrl/kept" in entry)
        for name in (*SAMPLING, "fastrl/kept", "grad_norm", "reward"):
            assert mine[name] == pytest.approx(logged[name], rel=1e-4), name


@pytest.mark.slow
def test_an_engine_on_each_process(text_model: str, out: str) -> None:
    given = {**COMMON, "vllm_importance_sampling_mode": "token_mask", "max_steps": 2}
    first, second = run_ranks(2, with_engine, text_model, out, **given)
    assert largest_difference(first["weights"], second["weights"]) == 0.0
    for mine, theirs in zip(first["logs"], second["logs"], strict=True):
        for name in SAMPLING:
            assert mine.get(name) == theirs.get(name)
    assert max(entry.get("grad_norm", 0.0) for entry in first["logs"]) > 1e-3
