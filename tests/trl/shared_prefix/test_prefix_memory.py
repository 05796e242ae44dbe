"""The peak memory of a forward and backward pass is never above the host's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from prefix_models import Batch, Prompt, build, draw, host_scores, shared_scores
from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most that torch held at once of what it allocated within a call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    assert changes
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def peaks(model: Any, batch: Batch) -> tuple[int, int]:
    """Of our pass and of the host's."""

    def passes(scores: Any) -> Callable[[], Any]:
        def call() -> None:
            scores(model, batch)[0].sum().backward()

        return call

    found = []
    for scores in (shared_scores, host_scores):
        model.zero_grad(set_to_none=False)
        found.append(peak_bytes(passes(scores)))
    return found[0], found[1]


CASES = [
    ("qwen2", [Prompt(300, (40,))]),
    ("qwen2", [Prompt(300, (40,) * 4)]),
    ("qwen2", [Prompt(16, (500, 500))]),
    ("llama", [Prompt(120, (30, 90, 7)), Prompt(20, (60,)), Prompt(64, (33, 34))]),
    ("qwen2_5_vl", [Prompt(30, (40,) * 2, ((16, 16),)), Prompt(30, (40,) * 2)]),
]


def forward_peaks(model: Any, batch: Batch) -> tuple[int, int]:
    """Of our pass and of the host's, without a gradient: old and reference log-probs."""
    with torch.no_grad():
        mine, theirs = (
            peak_bytes(partial(scores, model, batch)) for scores in (shared_scores, host_scores)
        )
    return mine, theirs


@pytest.mark.parametrize(("kind", "prompts"), CASES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_never_above_the_hosts(kind: str, prompts: list[Prompt], checkpointing: bool) -> None:
    model = build(kind)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    mine, theirs = peaks(model, draw(prompts, kind))
    assert mine <= theirs


@pytest.mark.parametrize(("kind", "prompts"), CASES)
def test_nor_without_a_gradient(kind: str, prompts: list[Prompt]) -> None:
    model, batch = build(kind), draw(prompts, kind)
    if not batch.chunk().pack().saves:
        # Packed it would take some bytes more: the trainer leaves it to the host
        # (test_prefix_trainer.py::test_a_chunk_that_saves_nothing_goes_trls_way).
        assert prompts == [Prompt(300, (40,))]
        return
    mine, theirs = forward_peaks(model, batch)
    assert mine <= theirs


def test_the_measure_sees_a_tensor() -> None:
    def call() -> None:
        torch.zeros(1000, 1000)
        torch.zeros(3000, 1000)

    assert 12_000_000 <= peak_bytes(call) < 13_000_000


def test_a_group_takes_far_less() -> None:
    mine, theirs = peaks(build("qwen2"), draw([Prompt(300, (40,) * 8)]))
    assert mine < theirs / 2
