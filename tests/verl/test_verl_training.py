"""Real trainings: stock verl beside ours, the published method on two ranks, resume, "exact"."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cpu_runs import Run, make_prompts, train
from recorded_rows import (
    Row,
    advantages_of_groups,
    answer_lengths,
    check_advantages_row_by_row,
    groups_of_steps,
    rows_of,
)

from fastrl.core import AdaptiveRollouts

pytestmark = pytest.mark.slow

STEP = 24  # rollouts: 4 prompts x 6


SHORT = ("trainer.total_epochs=1", "trainer.save_freq=2")
# The published method on two ranks: GRPO with a KL loss, two updates a step, six steps.
PUBLISHED = (
    "+trainer.fastrl.weighting=kept",
    "+trainer.fastrl.adaptive_rollouts=True",
    "actor_rollout_ref.actor.use_kl_loss=True",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
    "actor_rollout_ref.actor.optim.lr=1e-2",  # so fast that groups soon agree, and less is kept
    "trainer.total_epochs=3",
    "trainer.save_freq=4",
)
# GSPO on DAPO's filtered groups, weighted exactly, in rollouts of one row or two, on two ranks;
# the first of three steps is not pruned.
EXACT = (
    "+trainer.fastrl.start_step=1",
    "trainer.total_epochs=2",
    "trainer.total_training_steps=3",
    "algorithm.filter_groups.enable=True",
    "actor_rollout_ref.actor.policy_loss.loss_mode=gspo",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.agent.default_agent_loop=two_outputs",
)
# DAPO as the recipes have it: filtered groups, token means, a wider clip above, rollouts adaptive.
DAPO = (
    "+trainer.fastrl.weighting=kept",
    "+trainer.fastrl.adaptive_rollouts=True",
    "algorithm.filter_groups.enable=True",
    "actor_rollout_ref.actor.loss_agg_mode=token-mean",
    "actor_rollout_ref.actor.clip_ratio_low=0.2",
    "actor_rollout_ref.actor.clip_ratio_high=0.28",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.total_epochs=1",
    "trainer.total_training_steps=4",
    "trainer.save_freq=4",
)
# No group has contrast in the first of two steps, and groups without are dropped.
NOTHING = (
    *SHORT,
    "+trainer.fastrl.drop_uninformative=True",
    "reward.custom_reward_function.name=alike_at_first",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
)
OUR_LOSS = "fastrl.verl.weighting.weighted_ppo_loss"
VERLS_LOSS = "verl.workers.utils.losses.ppo_loss"


@pytest.fixture(scope="module")
def trainings(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Run]]]:
    """All of them, two at a time: most of a training is waiting for one process to start."""
    folder = {
        name: tmp_path_factory.mktemp(name)
        for name in ("published", "stock", "none", "exact", "dapo", "nothing", "resumed")
    }
    # So many that filtering never comes round to a prompt again.
    many = folder["dapo"] / "prompts.parquet"
    make_prompts(many, count=32)
    checkpoint = folder["published"] / "checkpoints" / "global_step_4"

    def resume(published: Future[Run]) -> Run:
        assert published.result().returncode == 0, published.result().log[-6000:]
        return train(
            assets,
            folder["resumed"],
            *PUBLISHED,
            "trainer.resume_mode=resume_path",
            f"trainer.resume_from_path={checkpoint}",
            ranks=2,
        )

    with ThreadPoolExecutor(2) as pool:
        start = partial(pool.submit, train, assets)
        published = start(folder["published"], *PUBLISHED, ranks=2)
        yield {
            "published": published,
            "stock": start(folder["stock"], *SHORT, module="verl.trainer.main_ppo"),
            "none": start(folder["none"], *SHORT, "+trainer.fastrl.prune_rule=none"),
            "exact": start(folder["exact"], *EXACT, ranks=2),
            "dapo": start(folder["dapo"], *DAPO, f"data.train_files={many}"),
            "nothing": start(folder["nothing"], *NOTHING),
            "resumed": pool.submit(resume, published),
        }


@pytest.fixture(scope="module")
def stock(trainings: dict[str, Future[Run]]) -> Run:
    """verl itself, one epoch of two steps."""
    return trainings["stock"].result()


@pytest.fixture(scope="module")
def unpruned(trainings: dict[str, Future[Run]]) -> Run:
    """Ours with the rule "none"."""
    return trainings["none"].result()


@pytest.fixture(scope="module")
def published(trainings: dict[str, Future[Run]]) -> Run:
    return trainings["published"].result()


@pytest.fixture(scope="module")
def resumed(trainings: dict[str, Future[Run]]) -> Run:
    """The published method again, from its checkpoint of step 4."""
    return trainings["resumed"].result()


@pytest.fixture(scope="module")
def exact(trainings: dict[str, Future[Run]]) -> Run:
    return trainings["exact"].result()


@pytest.fixture(scope="module")
def dapo(trainings: dict[str, Future[Run]]) -> Run:
    return trainings["dapo"].result()


@pytest.fixture(scope="module")
def nothing(trainings: dict[str, Future[Run]]) -> Run:
    return trainings["nothing"].result()


def test_the_rule_none_equals_stock_verl(stock: Run, unpruned: Run) -> None:
    assert (stock.returncode, unpruned.returncode) == (0, 0), stock.log + unpruned.log
    assert len(stock.metrics) == len(unpruned.metrics) == 2
    for theirs, ours in zip(stock.metrics, unpruned.metrics, strict=True):
        for name in (
            "actor/loss",
            "actor/grad_norm",
            "actor/entropy",
            "critic/rewards/mean",
            "critic/advantages/max",
            "perf/total_num_tokens",
        ):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-6), name
        assert theirs["actor/grad_norm"] > 0
        assert ours["fastrl/generated"] == ours["fastrl/kept"] == STEP
        assert ours["fastrl/reward"] == pytest.approx(ours["critic/rewards/mean"])
        assert "fastrl/reward" not in theirs
    theirs, ours = stock.weights(2), unpruned.weights(2)
    for name, value in theirs.items():
        torch.testing.assert_close(whole(ours[name]), whole(value), rtol=0, atol=1e-6)


def whole(value: Any) -> torch.Tensor:
    return value.to_local() if hasattr(value, "to_local") else value


def test_fewer_rows_are_scored_and_trained_on(published: Run) -> None:
    assert published.returncode == 0, published.log[-6000:]
    for step, metrics in enumerate(published.metrics):
        kept = int(metrics["fastrl/kept"])
        assert kept < metrics["fastrl/generated"]
        assert kept % 4 == 0  # two ranks x two updates, micro-batches of 1 and 2
        assert metrics["fastrl/kept_before_refill"] <= kept
        by_kind = {
            kind: [published.passes(kind, rank) for rank in range(2)]
            for kind in ("old", "reference", "update")
        }
        old = rows_of([passes[step] for passes in by_kind["old"]])
        assert len(old) == kept
        assert sorted(rows_of([passes[step] for passes in by_kind["reference"]])) == sorted(old)
        updates = [passes[2 * step : 2 * step + 2] for passes in by_kind["update"]]
        assert sorted(rows_of(updates[0] + updates[1])) == sorted(old)
        for told in updates[0] + updates[1]:
            assert len(told["responses"]) == kept // 4
            assert told["global_batch_size"] == kept / 2
            assert "weights" not in told
            assert told["loss"] == VERLS_LOSS
    # As many updates as verl makes of the full batch: two a step on each rank.
    assert len(published.passes("update", 1)) == 2 * len(published.metrics) == 12


def test_the_update_sees_the_advantages_of_the_full_groups(published: Run, assets: Path) -> None:
    wanted = advantages_of_groups(published, assets)
    values = {round(value, 2) for group in wanted.values() for value in group.values()}
    assert len(values) > 10  # groups differ, so that one group's advantage is not another's
    for step in range(len(published.metrics)):
        passes = [
            told
            for rank in range(2)
            for told in published.passes("update", rank)[2 * step : 2 * step + 2]
        ]
        check_advantages_row_by_row(wanted, step + 1, passes)


def test_the_reward_told_is_that_of_the_full_groups(published: Run) -> None:
    for groups, metrics in zip(groups_of_steps(published), published.metrics, strict=True):
        everything = [score for scores in groups.values() for score in scores]
        assert metrics["fastrl/reward"] == pytest.approx(np.mean(everything))
        without = np.mean([len(set(scores)) == 1 for scores in groups.values()])
        assert metrics["fastrl/groups_without_contrast"] == pytest.approx(without)


def test_rollouts_per_prompt_follow_what_was_kept(published: Run) -> None:
    asked = [int(metrics["fastrl/num_generations"]) for metrics in published.metrics]
    assert asked[:3] == [6, 6, 6]  # the first epoch's end is known after the third step
    assert asked[-1] < 6
    for groups, number in zip(groups_of_steps(published), asked, strict=True):
        assert {len(scores) for scores in groups.values()} == {number}
    assert published.metrics[-1]["fastrl/generated"] == 4 * asked[-1]


def test_phases_add_up_to_the_step(published: Run) -> None:
    for metrics in published.metrics:
        seconds = {k: v for k, v in metrics.items() if k.startswith("fastrl/time/")}
        assert {name.rsplit("/", 1)[1] for name in seconds} == {
            "generate",
            "reward",
            "prune",
            "old_logps",
            "ref_logps",
            "update",
            "other",
        }
        saving = metrics.get("timing_s/save_checkpoint", 0.0)
        assert sum(seconds.values()) == pytest.approx(metrics["timing_s/step"] - saving)
        assert all(seconds[f"fastrl/time/{name}"] > 0 for name in ("generate", "prune", "update"))


def test_a_resumed_run_goes_on_with_the_schedule(published: Run, resumed: Run) -> None:
    assert resumed.returncode == 0, resumed.log[-6000:]
    for whole_run, rest in zip(published.metrics[4:], resumed.metrics, strict=True):
        for name in ("training/global_step", "fastrl/num_generations", "fastrl/generated"):
            assert rest[name] == whole_run[name]
        for name in ("fastrl/kept", "fastrl/reward", "actor/loss", "actor/grad_norm"):
            assert rest[name] == pytest.approx(whole_run[name], abs=1e-4), name


def test_exact_weights_and_means_reach_the_loss(exact: Run) -> None:
    assert exact.returncode == 0, exact.log[-6000:]
    ranks = [exact.passes("update", rank) for rank in range(2)]
    assert {told["loss"] for passes in ranks for told in passes} == {OUR_LOSS}
    # Updates of a step, on each rank; both ranks are told the same means.
    steps = [
        [list(updates) for _, updates in groupby(pruned, lambda told: told["full_tokens"])]
        for pruned in ([told for told in passes if "weights" in told] for passes in ranks)
    ]
    lengths = answer_lengths(exact)
    assert len(exact.metrics) == 3
    assert [len(of_rank) for of_rank in steps] == [2, 2]
    for step, (metrics, *of_ranks) in enumerate(zip(exact.metrics[1:], *steps, strict=True), 2):
        weight_of_prompt: dict[Row, float] = defaultdict(float)
        everywhere = [told for updates in of_ranks for told in updates]
        for told in everywhere:
            for prompt, weight, mask in zip(
                told["prompts"], told["weights"], told["masks"], strict=True
            ):
                if any(mask):
                    weight_of_prompt[tuple(prompt)] += weight
                else:
                    assert weight == 0  # verl's padding
        # A rollout's second row has a longer prompt; the first rows stand for the rollouts.
        shortest = min(map(len, weight_of_prompt))
        groups = {p: w for p, w in weight_of_prompt.items() if len(p) == shortest}
        assert sum(groups.values()) == metrics["fastrl/generated"] == STEP
        assert all(weight % 6 == 0 for weight in groups.values())
        assert metrics["fastrl/kept"] < STEP
        assert metrics["fastrl/groups_without_contrast"] == 0  # verl filtered them out
        tokens = sum(
            weight / 6 * sum(lengths[step, prompt, session] for session in range(6))
            for prompt, weight in groups.items()
        )
        count = len(of_ranks[0])
        assert len(of_ranks[1]) == count
        for told in everywhere:
            assert told["full_tokens"] == pytest.approx(tokens / count)
            assert told["global_batch_size"] == everywhere[0]["global_batch_size"]
        # As many updates as verl makes of all the rows, 2 prompts x 6 rollouts each.
        rows = everywhere[0]["global_batch_size"] * count
        assert STEP < rows <= 2 * STEP
        assert count == math.ceil(rows / 12)
    assert len({len(prompt) for prompt in weight_of_prompt}) > 1  # sessions of two rows were kept


def test_until_start_step_every_row_is_trained_on_unweighted(exact: Run) -> None:
    first = exact.metrics[0]
    assert first["fastrl/kept"] == first["fastrl/generated"] == STEP
    passes = [
        told for rank in range(2) for told in exact.passes("update", rank) if "weights" not in told
    ]
    prompts = {tuple(prompt) for told in passes for prompt in told["prompts"]}
    trained = sum(sum(mask) for told in passes for mask in told["masks"])
    of_step = {name: n for name, n in answer_lengths(exact).items() if name[0] == 1}
    assert trained == sum(n for (_, prompt, _), n in of_step.items() if prompt in prompts)
    assert {told["global_batch_size"] for told in passes} == {12}  # verl's own: 2 prompts x 6


def test_dapo_filters_prunes_and_records_what_was_kept(dapo: Run, assets: Path) -> None:
    assert dapo.returncode == 0, dapo.log[-6000:]
    wanted = advantages_of_groups(dapo, assets)
    asked = [int(metrics["fastrl/num_generations"]) for metrics in dapo.metrics]
    schedule = AdaptiveRollouts(6, 2, steps_per_epoch=8, total_steps=4)
    for step, metrics in enumerate(dapo.metrics, 1):
        assert asked[step - 1] == schedule.num_generations
        kept = int(metrics["fastrl/kept"])
        assert kept < metrics["fastrl/generated"] == 4 * asked[step - 1]
        assert metrics["fastrl/groups_without_contrast"] == 0
        # What refills a filtered group is asked for as often.
        sessions = {told["session"] for told in dapo.rollouts if told["step"] == step}
        assert sessions == set(range(asked[step - 1]))
        updates = dapo.passes("update")[2 * step - 2 : 2 * step]
        assert len(rows_of(updates)) == kept
        assert len(rows_of(dapo.passes("old")[step - 1 : step])) == kept
        for told in updates:
            assert told["global_batch_size"] == kept / 2
            assert told["loss"] == VERLS_LOSS
        check_advantages_row_by_row(wanted, step, updates)
        kept_of_prompt = Counter(tuple(prompt) for told in updates for prompt in told["prompts"])
        schedule.record(list(kept_of_prompt.values()))
    # What filtering took away and brought in is not in it: groups of the batch alone.
    saved = json.loads((dapo.folder / "checkpoints/global_step_4/fastrl_state.json").read_text())
    assert saved["schedule"] == schedule.state_dict()
    assert len(dapo.passes("update")) == 2 * len(dapo.metrics) == 8


def test_a_step_of_which_nothing_is_left_makes_no_update(nothing: Run) -> None:
    assert nothing.returncode == 0, nothing.log[-6000:]
    first, second = nothing.metrics
    assert (first["fastrl/kept"], first["fastrl/generated"]) == (0, STEP)
    assert first["fastrl/groups_without_contrast"] == 1
    assert (first["fastrl/skipped_updates"], second["fastrl/skipped_updates"]) == (2, 0)
    assert "actor/grad_norm" not in first
    assert second["actor/grad_norm"] > 0
    assert 0 < second["fastrl/kept"] < STEP
    # The passes before it had rows to run on, the update none.
    assert len(nothing.passes("old")) == 2
    assert len(nothing.passes("update")) == 2
    for told in nothing.passes("update"):
        assert "weights" in told
