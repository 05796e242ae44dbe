"""What turns questions into completions: one protocol, two engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastrl.evaluation.questions import Question
from fastrl.evaluation.sampling import Sampling
from fastrl.geometry.toy import STARTING_POLICY

ENGINES = ("transformers", "vllm")


@dataclass(frozen=True)
class Completion:
    """One completion.

    Attributes:
        text: without special tokens.
        tokens: how many were generated, the end mark included.
        finished: whether it ended by itself, rather than at the limit.
    """

    text: str
    tokens: int
    finished: bool


class Engine(Protocol):
    """Something that completes questions.

    Attributes:
        batch_size: completions that it likes to be asked for at once.
    """

    batch_size: int

    def complete(
        self, questions: Sequence[Question], samples: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        """Completions of each question; the same call gives the same completions.

        Args:
            questions: Q questions, asked together.
            samples: S completions of each.
            sampling: how they are drawn.
            seed: of the drawing.

        Returns:
            Q lists of S completions.
        """
        ...


@dataclass(frozen=True)
class EngineSettings:
    """What an engine is built from.

    Attributes:
        model: "toy", a folder (of a model, or of a run of `fastrl train`), or a hub name.
        dtype: "auto" (float32 on a CPU, else as stored), "float32", "bfloat16" or "float16".
        system: the system prompt; empty for none.
        min_pixels, max_pixels: pictures are resized to lie between them; None for no limit.
        arguments: further ones for `from_pretrained`, or for vLLM's `LLM`.
        examples: worked examples, question (as it is asked) to reply; None for none.
    """

    model: str
    dtype: str = "auto"
    system: str = ""
    min_pixels: int | None = None
    max_pixels: int | None = None
    arguments: dict[str, Any] | None = None
    examples: dict[str, str] | None = None


def build_engine(name: str, settings: EngineSettings) -> Engine:
    """Load a model into an engine.

    Args:
        name: one of `ENGINES`; only the chosen one is imported.

    Raises:
        ValueError: there is no such engine, it is not installed, or the model cannot be loaded.
    """
    if name == "transformers":
        from fastrl.evaluation.transformers_engine import TransformersEngine

        return TransformersEngine(settings)
    if name == "vllm":
        from fastrl.evaluation.vllm_engine import VllmEngine

        return VllmEngine(settings)
    raise ValueError(f"--engine {name}: expected one of {', '.join(ENGINES)}.")


def model_place(model: str) -> str:
    """Where a model lies: the toy's folder, a run's `model` folder, or what was given."""
    if model == "toy":
        return str(STARTING_POLICY)
    trained = Path(model) / "model"
    # LoRA's folder holds the adapter alone.
    is_trained = any((trained / name).exists() for name in ("config.json", "adapter_config.json"))
    return str(trained) if is_trained else model


def batch_seed(seed: int, batch: int) -> int:
    """The seed of a batch: it does not depend on what ran before."""
    return int(np.random.SeedSequence([seed, batch]).generate_state(1)[0])
