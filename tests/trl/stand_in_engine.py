"""vLLM's place taken by the tiny model: TRL's own code around the engine runs as it is.

Only what `trl.generation.vllm_generation` imports from vLLM, and the client of its server, are
replaced. Tokens are really sampled, in bfloat16 as engines do, so that log-probs really differ.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl.generation.vllm_generation
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
)


class Engine:
    """Samples from a copy of the model, in bfloat16.

    Args:
        model: the folder of the model.
        seed: of the sampling.
        others: what else TRL gives vLLM; the copy has no use for it.
    """

    unscored_every = 0  # every so many tokens the engine has no log-prob: NaN

    def __init__(self, model: str, seed: int = 0, **others: Any) -> None:
        self.sees = hasattr(AutoConfig.from_pretrained(model), "vision_config")
        kind = AutoModelForImageTextToText if self.sees else AutoModelForCausalLM
        self.model = kind.from_pretrained(model, dtype=torch.bfloat16)
        self.processor = AutoProcessor.from_pretrained(model) if self.sees else None
        self.pictures: list[list[Any]] = []  # those of each prompt, in the order of the prompts
        self.generator = torch.Generator().manual_seed(seed)
        self.calls: list[tuple[int, int]] = []  # prompts, samples of each
        self.loads = 0
        self.given = others
        # Where TRL pushes weights to.
        inner = SimpleNamespace(model=SimpleNamespace(load_weights=self.load_weights))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=SimpleNamespace(model_runner=inner))
        )
        self._sampled = 0

    def load_weights(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        parameters = dict(self.model.named_parameters())
        for name, value in named:
            parameters[name].data.copy_(value)
            self.loads += 1

    def reset_prefix_cache(self) -> None:
        """Nothing is cached."""

    def look_at(self, pictures: list[Any]) -> dict[str, torch.Tensor]:
        """What the model takes of pictures (of the Qwen-VL kind)."""
        if not pictures:
            return {}
        seen = self.processor.image_processor(images=pictures, return_tensors="pt")
        return {name: seen[name] for name in ("pixel_values", "image_grid_thw")}

    @torch.no_grad()
    def sample(
        self, prompt: list[int], settings: Any, seen: dict[str, torch.Tensor]
    ) -> tuple[list[int], list[float]]:
        ids, tokens, logps = torch.tensor([prompt]), [], []
        for _ in range(settings.max_tokens):
            if seen:
                seen["mm_token_type_ids"] = (ids == self.processor.image_token_id).int()
            logits = self.model(input_ids=ids, **seen).logits[0, -1].float() / settings.temperature
            scores = logits.log_softmax(dim=0)
            token = int(torch.multinomial(scores.exp(), 1, generator=self.generator))
            self._sampled += 1
            is_scored = not self.unscored_every or self._sampled % self.unscored_every
            tokens.append(token)
            logps.append(float(scores[token]) if is_scored else float("nan"))
            if token == self.model.config.get_text_config().eos_token_id:
                break
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
        return tokens, logps

    def generate(self, prompts: list[dict[str, Any]], sampling_params: Any, use_tqdm: bool) -> Any:
        """vLLM's `RequestOutput`s, as far as TRL reads them."""
        self.calls.append((len(prompts), sampling_params.n))
        assert sampling_params.logprobs == 0
        requests = []
        for prompt in prompts:
            outputs = []
            given = prompt.get("multi_modal_data", {}).get("image", [])
            self.pictures.append(given if isinstance(given, list) else [given])
            seen = self.look_at(self.pictures[-1])
            for _ in range(sampling_params.n):
                tokens, logps = self.sample(prompt["prompt_token_ids"], sampling_params, seen)
                scored = [
                    {token: SimpleNamespace(logprob=logp, rank=1)}
                    for token, logp in zip(tokens, logps, strict=True)
                ]
                outputs.append(SimpleNamespace(token_ids=tokens, logprobs=scored))
            requests.append(
                SimpleNamespace(prompt_token_ids=prompt["prompt_token_ids"], outputs=outputs)
            )
        return requests


class Client:
    """TRL's client of a vLLM server, with the engine in its place."""

    folder: str  # of the model that the server was started with

    def __init__(self, **given: Any) -> None:
        self.engine = Engine(self.folder)

    def init_communicator(self, **given: Any) -> None:
        """Weights come by call."""

    def get_server_info(self) -> dict[str, Any]:
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def update_named_params(self, metadata: Any, named: Iterable[Any]) -> None:
        named = list(named)
        assert [name for name, _, _ in metadata] == [name for name, _ in named]
        self.engine.load_weights(named)

    def reset_prefix_cache(self) -> None:
        """Nothing is cached."""

    def image_features(self, images: list[list[Any] | None]) -> list[dict[str, Any] | None]:
        """The pictures themselves in the place of processed ones."""
        return [
            {"pictures": row, "mm_placeholders": {"image": [None] * len(row)}} if row else None
            for row in images
        ]

    def generate(
        self, prompts: list[list[int]], features: Any, n: int, **settings: Any
    ) -> dict[str, Any]:
        parameters = SimpleNamespace(n=n, **settings)
        rows: list[dict[str, Any]] = [{"prompt_token_ids": ids} for ids in prompts]
        for row, seen in zip(rows, features or [None] * len(rows), strict=True):
            if seen is not None:
                row["multi_modal_data"] = {"image": seen["pictures"]}
        requests = self.engine.generate(rows, parameters, use_tqdm=False)
        outputs = [output for request in requests for output in request.outputs]
        return {
            "prompt_ids": prompts,
            "completion_ids": [output.token_ids for output in outputs],
            "logprobs": [[_finite(token) for token in output.logprobs] for output in outputs],
        }


def _finite(scored: dict[int, Any]) -> list[float | None]:
    """The server's JSON has no NaN."""
    return [None if math.isnan(each.logprob) else each.logprob for each in scored.values()]


def install(patches: pytest.MonkeyPatch, model: str, unscored_every: int = 0) -> None:
    """Let TRL find the engine where it looks for vLLM; what it leaves behind is undone too."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        patches.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            patches.delenv(name)
    module = trl.generation.vllm_generation
    patches.setattr(module, "is_vllm_available", lambda: True)
    patches.setattr(module, "LLM", Engine, raising=False)
    patches.setattr(module, "SamplingParams", SimpleNamespace, raising=False)
    patches.setattr(module, "VLLMClient", Client)
    patches.setattr(Client, "folder", model, raising=False)
    patches.setattr(Engine, "unscored_every", unscored_every)
