"""Completions with vLLM, which schedules them itself and may use several accelerators."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from fastrl.evaluation.engines import Completion, EngineSettings, batch_seed, model_place
from fastrl.evaluation.prompts import Prompts
from fastrl.evaluation.questions import Question
from fastrl.evaluation.sampling import Sampling

REMEDY = (
    "--engine vllm: vLLM cannot be imported ({}). Install it in an environment of its own: pip "
    "install vllm 'fastrl-grpo[geometry]' datasets; or choose --engine transformers."
)
MOST_PICTURES = 8  # of one question; vLLM wants to know beforehand


class VllmEngine:
    """A model that vLLM runs, asked with the same prompts as transformers.

    Every question has a seed of its own, so a result does not depend on what is asked beside it.

    Args:
        settings: the model; its `arguments` go to vLLM's `LLM` (`tensor_parallel_size`, ...).

    Raises:
        ValueError: vLLM is not installed, or the model has no processor.
    """

    batch_size = 2048

    def __init__(self, settings: EngineSettings) -> None:
        try:
            vllm: Any = importlib.import_module("vllm")
        except ImportError as error:
            raise ValueError(REMEDY.format(error)) from error
        self.prompts = Prompts(settings)
        arguments: dict[str, Any] = {
            "model": model_place(settings.model),
            "dtype": settings.dtype,
            **(settings.arguments or {}),
        }
        if self.prompts.takes_pictures:
            arguments.setdefault("limit_mm_per_prompt", {"image": MOST_PICTURES})
        self._sampling_params = vllm.SamplingParams
        self._llm = vllm.LLM(**arguments)

    def complete(
        self, questions: Sequence[Question], samples: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        """See `Engine.complete`."""
        requests = [self._request(question) for question in questions]
        settings = [
            self._sampling_params(
                n=samples,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_new_tokens,
                seed=batch_seed(seed, row),
            )
            for row in range(len(questions))
        ]
        replies = self._llm.generate(requests, settings, use_tqdm=False)
        return [
            [
                Completion(output.text, len(output.token_ids), output.finish_reason == "stop")
                for output in reply.outputs
            ]
            for reply in replies
        ]

    def _request(self, question: Question) -> dict[str, Any]:
        request: dict[str, Any] = {"prompt": self.prompts.text(question)}
        if question.pictures:
            request["multi_modal_data"] = {"image": self.prompts.pictures(question)}
        return request
