"""Dynamic sampling in training: full batches of groups with contrast, exactly as if drawn so."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, IterableDataset
from test_logging import tables
from test_normalisation import moved_policy
from test_resuming import StopAt
from tiny_runs import QUESTIONS, largest_difference, make_trainer, weights_of
from trl import GRPOConfig, GRPOTrainer

from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, GenerationRecord

SAMPLED: dict[str, Any] = {"dynamic_sampling": True, "adaptive_rollouts": False}


def rows(kinds: str) -> Dataset:
    """A row per letter: "m" is mixed, "f" flat, "a" flat in the first reward alone."""
    return Dataset.from_list(
        [{"prompt": QUESTIONS[index], "kind": kind} for index, kind in enumerate(kinds)]
    )


def accuracy(completions: Any, kind: list[str], **kwargs: Any) -> list[float]:
    """Contrast in the groups of mixed rows alone; groups have an even number of rows."""
    return [float(k == "f" or (k == "m" and index % 2 == 0)) for index, k in enumerate(kind)]


def style(completions: Any, kind: list[str], **kwargs: Any) -> list[float]:
    """Contrast in the other half of the group, for rows of kind "a"."""
    return [0.5 * (k == "a" and index % 4 < 2) for index, k in enumerate(kind)]


def with_fixed_texts(trainer_class: type) -> type:
    """Completions that follow from the prompt and the place in the group alone."""

    class FixedTexts(trainer_class):  # type: ignore[misc, valid-type]
        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            texts = []
            for index, ids in enumerate(prompt_ids):
                rng = np.random.default_rng((sum(i * t for i, t in enumerate(ids)), index % 2))
                texts.append(rng.integers(20, 300, rng.integers(1, 7)).tolist())
            return texts, None

    return FixedTexts


def run(
    model: str, out: str, dataset: Any, host: type = FastGRPOTrainer, **overrides: Any
) -> tuple[Any, list[GenerationRecord]]:
    """Train for one generation batch of 4 groups of 4, a single update of 16 rows."""
    given = {
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "shuffle_dataset": False,
        "reward": accuracy,
        "dataset": dataset,
        "gradients": True,
        **overrides,
    }
    fast = issubclass(host, FastGRPOTrainer)
    trainer = make_trainer(
        model,
        out,
        trainer_class=with_fixed_texts(host),
        config_class=FastGRPOConfig if fast else GRPOConfig,
        **{**(SAMPLED if fast else {}), **given},
    )
    records: list[GenerationRecord] = []
    if fast:
        trainer.rollout_observers.append(records.append)
    moved_policy(trainer)
    trainer.train()
    return trainer, records


@pytest.mark.parametrize("rule", ["none", "differential"])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_the_gradient_is_that_of_the_accepted_groups_in_plain_trl(
    text_model: str, out: str, rule: str, loss_type: str
) -> None:
    """Rows of several rounds, of other widths, make the batch that TRL would have made of them."""
    given: dict[str, Any] = {"loss_type": loss_type, "beta": 0.2}
    kinds = "fmfmmfmmfmmmfmfm"
    trainer, (record,) = run(
        text_model, out, rows(kinds), prune_rule=rule, weighting="exact", **given
    )
    # 4 groups were wanted; those generated first were f, m, f, m.
    assert record.reward_N[:16].reshape(4, 4).tolist() == [[1.0, 0.0, 1.0, 0.0]] * 4
    accepted = [QUESTIONS.index(prompt) for prompt in record.prompts[:16:4]]
    assert accepted[:2] == [1, 3]
    assert [kinds[index] for index in accepted] == ["m"] * 4
    # Equal rewards have equal texts here, so that pruning too leaves the gradient as it is.
    plain, _ = run(text_model, out, rows(kinds).select(accepted), GRPOTrainer, **given)
    (found,), (wanted,) = trainer.recorder.gradients, plain.recorder.gradients
    assert largest_difference(found, wanted) < 1e-5
    (rounds,) = trainer.recorder.values("fastrl/resample_rounds")
    assert rounds >= 1
    assert trainer.recorder.values("fastrl/kept") == [16.0 if rule == "none" else 8.0]


def test_metrics_and_records_tell_of_what_was_discarded(text_model: str, out: str) -> None:
    trainer, (record,) = run(
        text_model, out, rows("fmfmmfmmfmmmfmfm"), prune_rule="none", log_completions=True
    )
    logged = {name: trainer.recorder.values(f"fastrl/{name}")[0] for name in ("generated", "kept")}
    discarded = record.selection.reason == "resampled"
    assert logged["generated"] == len(record.completions) == 16 + discarded.sum()
    assert discarded[:16].sum() == 0
    assert (record.advantages_N[16:] == 0).all()
    assert (record.reward_N[16:] == 1.0).all()
    assert discarded.sum() >= 8
    (wasted,) = trainer.recorder.values("fastrl/wasted_generation")
    assert wasted == pytest.approx(discarded.sum() / len(record.completions))
    assert trainer.recorder.values("fastrl/batch_filled") == [1.0]
    # The policy's own figures are those of the prompts as they came: two flat groups of four.
    assert trainer.recorder.values("fastrl/groups_without_contrast") == [0.5]
    assert trainer.recorder.values("fastrl/reward") == [0.75]
    assert trainer.recorder.values("reward") == [0.75]
    assert trainer.recorder.values("frac_reward_zero_std") == [0.5]
    # The table holds the batch that was trained on.
    table: pd.DataFrame = tables(out)[1]
    assert table["completion"].tolist() == record.completions[:16]
    assert table["accuracy"].tolist() == record.reward_N[:16].tolist()
    assert table["kept"].tolist() == [True] * 16
    # Tokens of every round were seen.
    tokens = trainer.recorder.values("num_tokens")[0]
    assert tokens == trainer.state.num_input_tokens_seen
    assert tokens > 16 * 8


def test_it_degrades_to_fewer_groups_with_one_warning(
    text_model: str, out: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="transformers"):
        logging.getLogger("transformers").addHandler(caplog.handler)
        trainer, records = run(
            text_model,
            out,
            rows("fmffffffffffffff"),
            prune_rule="none",
            max_resamples=1,
            max_steps=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            steps_per_generation=2,
        )
        logging.getLogger("transformers").removeHandler(caplog.handler)
    told = [r.getMessage() for r in caplog.records if "Dynamic sampling" in r.getMessage()]
    assert len(told) == 1
    assert "1 of 4 groups" in told[0]
    assert records[0].kept_N.sum() == 4
    assert trainer.recorder.values("fastrl/batch_filled")[0] == 0.25
    assert trainer.recorder.values("fastrl/resample_rounds") == [1.0] * 3


def test_a_short_batch_is_the_mean_over_its_groups(text_model: str, out: str) -> None:
    """What is missing counts nowhere, not in the denominators either."""
    for loss_type in ("dapo", "grpo"):
        short, (record,) = run(
            text_model,
            out,
            rows("fmfmffffffff"),
            prune_rule="none",
            max_resamples=1,
            loss_type=loss_type,
        )
        assert record.kept_N.sum() == 8
        plain, _ = run(
            text_model,
            out,
            rows("fmfm").select([1, 3]),
            GRPOTrainer,
            per_device_train_batch_size=8,
            loss_type=loss_type,
        )
        (found,), (wanted,) = short.recorder.gradients, plain.recorder.gradients
        assert largest_difference(found, wanted) < 1e-5


@pytest.mark.parametrize("rule", ["none", "differential"])
def test_without_any_contrast_the_data_is_gone_through_and_nothing_moves(
    text_model: str, out: str, rule: str
) -> None:
    trainer = make_trainer(
        text_model,
        out,
        dataset=rows("ffffffff"),
        reward=accuracy,
        prune_rule=rule,
        max_resamples=50,
        max_steps=2,
        weight_decay=0.1,
        **SAMPLED,
    )
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(weights_of(trainer), before) == 0.0
    assert trainer.recorder.values("fastrl/skipped_updates") == [2.0]
    assert trainer.recorder.values("fastrl/kept") == [0.0]
    assert trainer.recorder.values("fastrl/wasted_generation") == [1.0]
    # Each of the 8 prompts, and the 4 first a second time at most.
    assert 2 <= trainer.recorder.values("fastrl/resample_rounds")[0] <= 4


def test_contrast_is_decided_on_the_reward_that_is_named(text_model: str, out: str) -> None:
    data, given = rows("amamaammamamamam"), {"reward": [accuracy, style], "prune_rule": "none"}
    _, (by_sum,) = run(text_model, out, data, **given)
    assert len(by_sum.completions) == 16  # nothing to replace
    _, (by_accuracy,) = run(text_model, out, data, contrast="accuracy", **given)
    assert len(by_accuracy.completions) > 16
    kept = by_accuracy.rewards["accuracy"][:16].reshape(4, 4)
    assert (kept.max(axis=1) > kept.min(axis=1)).all()
    assert (by_accuracy.rewards["style"][:16] == 0).all()


def fewer_levels_later(
    completions: Any, kind: list[str], trainer_state: Any, **kwargs: Any
) -> list[float]:
    """Contrast in mixed groups: four levels in the first two batches, then two."""
    levels = 4 if trainer_state.global_step < 2 else 2
    return [float(k == "m") * (index % levels) for index, k in enumerate(kind)]


def test_rollouts_per_prompt_fall_and_batches_stay_full(text_model: str, out: str) -> None:
    """Further prompts get as few rollouts as those of the batch they complete."""
    trainer, records = run(
        text_model,
        out,
        rows("fmfmmfmmfmmmfmfm"),
        reward=fewer_levels_later,
        adaptive_rollouts=True,
        weighting="kept",
        steps_per_epoch=1,
        max_steps=6,
        learning_rate=1e-3,
        max_resamples=16,
    )
    used = [record.num_generations for record in records]
    assert used[:3] == [4, 4, 4]
    assert used[-1] == 2
    assert trainer.recorder.values("fastrl/num_generations") == used
    assert trainer.recorder.values("fastrl/batch_filled") == [1.0] * 6
    assert max(trainer.recorder.values("fastrl/resample_rounds")[3:]) >= 1
    for record, count in zip(records, used, strict=True):
        batch = slice(0, 4 * count)  # 4 groups were wanted, now of fewer rows
        rewards = record.reward_N[batch].reshape(4, count)
        assert (rewards.max(axis=1) > rewards.min(axis=1)).all()
        prompts = np.array(record.prompts).reshape(-1, count)  # discarded groups too
        assert (prompts == prompts[:, :1]).all()
        assert (record.selection.reason[batch] != "resampled").all()
        assert (record.selection.reason[4 * count :] == "resampled").all()
        assert 0 < record.kept_N[batch].sum() <= 4 * count
    lengths = trainer.recorder.values("fastrl/kept")
    assert lengths[0] == 16
    assert lengths[-1] == 8


def test_start_step(text_model: str, out: str) -> None:
    trainer, records = run(
        text_model,
        out,
        rows("fmfmmfmmfmmmfmfm"),
        weighting="kept",
        start_step=1,
        max_steps=3,
        learning_rate=1e-3,
    )
    kept = [int(record.kept_N.sum()) for record in records]
    assert kept == [16, 8, 8]
    assert trainer.recorder.values("fastrl/batch_filled") == [1.0] * 3


def test_an_iterable_data_set(text_model: str, out: str) -> None:
    kinds = "fmfmmfmmfmmmfmfm"
    stream = IterableDataset.from_generator(lambda: iter(rows(kinds)))
    trainer, (record,) = run(text_model, out, stream, prune_rule="none", shuffle_dataset=False)
    assert record.kept_N.sum() == 16
    assert trainer.recorder.values("fastrl/resample_rounds")[0] >= 1


def test_evaluation_is_left_alone(text_model: str, out: str) -> None:
    trainer, records = run(
        text_model,
        out,
        rows("mmmm"),
        prune_rule="none",
        eval_dataset=rows("ff"),
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
    )
    assert len(records) == 1
    assert trainer.recorder.values("eval_reward") == [1.0]
    assert trainer.recorder.values("eval_completions/mean_length") != []


def test_a_resumed_run_draws_the_same_prompts(text_model: str, out: str) -> None:
    given: dict[str, Any] = {
        "dataset": rows("fmfmmfmmfmfmfmfm"),
        "reward": accuracy,
        "max_steps": 8,
        "save_strategy": "steps",
        "save_steps": 4,
        "beta": 0.1,
        **SAMPLED,
    }
    whole = make_trainer(text_model, out + "/whole", **given)
    whole.train()
    stopped = make_trainer(text_model, out + "/stopped", callbacks=[StopAt(4)], **given)
    stopped.train()
    resumed = make_trainer(text_model, out + "/stopped", **given)
    resumed.train(resume_from_checkpoint=out + "/stopped/checkpoint-4")
    assert largest_difference(weights_of(resumed), weights_of(whole)) == 0.0
    assert resumed._prompt_stream.state_dict() == whole._prompt_stream.state_dict()
    rounds = whole.recorder.values("fastrl/resample_rounds")
    assert rounds[:2] == stopped.recorder.values("fastrl/resample_rounds")
    assert min(rounds) >= 1
    other = make_trainer(text_model, out + "/other", **given | {"dataset": rows("fmfmfmfmfmfm")})
    with pytest.raises(ValueError, match=r"checkpoint-4.*training set has 12"):
        other.train(resume_from_checkpoint=out + "/stopped/checkpoint-4")


def test_what_it_cannot_do_is_refused_in_one_list(text_model: str, out: str) -> None:
    with pytest.raises(ValueError, match=r"scale_rewards = 'batch'.*normalize_then_sum"):
        make_trainer(
            text_model,
            out,
            prune_rule="none",
            scale_rewards="batch",
            multi_objective_aggregation="normalize_then_sum",
            **SAMPLED,
        )
    with pytest.raises(ValueError, match=r"contrast = 'accurate'.*one of accuracy, style"):
        make_trainer(text_model, out, reward=[accuracy, style], contrast="accurate", **SAMPLED)
