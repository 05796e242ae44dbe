"""Real trainings: stock verl beside ours, the published method on two ranks, resume, "exact"."""

import math
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cpu_runs import Run, train

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
# GSPO on DAPO's filtered groups, weighted exactly, in rollouts of one row or two.
EXACT = (
    "trainer.total_epochs=1",
    "algorithm.filter_groups.enable=True",
    "actor_rollout_ref.actor.policy_loss.loss_mode=gspo",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.agent.default_agent_loop=two_outputs",
)


@pytest.fixture(scope="module")
def trainings(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Run]]]:
    """All of them, two at a time: most of a training is waiting for one process to start."""
    folder = {
        name: tmp_path_factory.mktemp(name)
        for name in ("published", "stock", "none", "exact", "resumed")
    }
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
            "exact": start(folder["exact"], *EXACT),
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


def groups_of_steps(run: Run) -> Iterator[dict[int, list[float]]]:
    """Step by step the rewards of every prompt, of all rollouts that were graded."""
    told = run.rewards
    for metrics in run.metrics:
        count = int(metrics["fastrl/generated"])
        groups = defaultdict(list)
        for line in told[:count]:
            groups[line["index"]].append(line["score"])
        told = told[count:]
        yield groups
    assert told == []


def full_group_advantages(scores: list[float]) -> list[float]:
    values = np.array(scores)
    return list((values - values.mean()) / (values.std(ddof=1) + 1e-6))


def rows_of(passes: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """The answers that went through passes; verl's padding rows, which nothing counts, aside."""
    return [
        tuple(answer)
        for told in passes
        for answer, mask in zip(told["responses"], told["masks"], strict=True)
        if any(mask)
    ]


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
    # As many updates as verl makes of the full batch: two a step on each rank.
    assert len(published.passes("update", 1)) == 2 * len(published.metrics) == 12


def test_the_update_sees_the_advantages_of_the_full_groups(published: Run) -> None:
    steps = list(groups_of_steps(published))
    for step, groups in enumerate(steps):
        wanted = {
            round(value, 4) for scores in groups.values() for value in full_group_advantages(scores)
        }
        found = {
            round(row[0], 4)
            for rank in range(2)
            for told in published.passes("update", rank)[2 * step : 2 * step + 2]
            for row, mask in zip(told["advantages"], told["masks"], strict=True)
            if mask[0]
        }
        assert found <= {round(value, 4) + 0.0 for value in wanted} | {0.0}
        # Every bucket of equal advantages has its seed there: nothing that was learnt is lost.
        assert len(found) == len(wanted)


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
    steps = [
        list(updates)
        for _, updates in groupby(exact.passes("update"), lambda told: told["full_tokens"])
    ]
    lengths = {
        (told["step"], tuple(told["prompt"]), told["session"]): len(told["answer"])
        for told in exact.rollouts
    }
    assert len(steps) == len(exact.metrics) == 2
    for step, (updates, metrics) in enumerate(zip(steps, exact.metrics, strict=True), start=1):
        weight_of_prompt: dict[tuple[int, ...], float] = defaultdict(float)
        for told in updates:
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
        for told in updates:
            assert told["full_tokens"] == pytest.approx(tokens / len(updates))
            assert told["global_batch_size"] == updates[0]["global_batch_size"]
        # As many updates as verl makes of all the rows, 2 prompts x 6 rollouts each.
        rows = updates[0]["global_batch_size"] * len(updates)
        assert STEP < rows <= 2 * STEP
        assert len(updates) == math.ceil(rows / 12)
    assert len({len(prompt) for prompt in weight_of_prompt}) > 1  # sessions of two rows were kept
