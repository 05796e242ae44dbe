"""A rollout engine for the CPU that looks at pictures: a Ray actor around a vision model."""

import asyncio
from dataclasses import dataclass
from typing import Any

import ray
import torch
import verl  # noqa: F401  first: verl loads its own parts in its own order
from cpu_sampler import draws, sampler_name
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


@dataclass
class Request:
    """A prompt, its pictures as verl resized them, and the uniform numbers of its answer."""

    prompt: list[int]
    pictures: list[Any]
    temperature: float
    uniform_T: torch.Tensor
    answered: asyncio.Future[TokenOutput]


class PictureSampler:
    """Answers verl's token-in, token-out requests; those that come together are one batch."""

    def __init__(self, path: str, response_length: int) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        torch.set_num_threads(1)
        processor = AutoProcessor.from_pretrained(path)
        self.read_pictures = processor.image_processor
        self.eos = processor.tokenizer.eos_token_id
        self.model = AutoModelForImageTextToText.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.response_length = response_length
        self.step = 0
        self.waiting: list[Request] = []

    async def ready(self) -> None: ...

    async def wake_up(self) -> None: ...

    async def sleep(self) -> None: ...

    async def load_weights(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        self.model.load_state_dict(weights)
        self.step = self.step if step is None else step

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        **ignored: Any,
    ) -> TokenOutput:
        future = asyncio.get_running_loop().create_future()
        uniform_T = draws(
            prompt_ids, sampling_params.get("seed", 0), self.step, self.response_length
        )
        temperature = float(sampling_params.get("temperature") or 0.0)
        self.waiting.append(
            Request(list(prompt_ids), list(image_data or []), temperature, uniform_T, future)
        )
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(0.5, self.answer)
        return await future

    def answer(self) -> None:
        batch, self.waiting = self.waiting, []
        for request, (token_ids, log_probs) in zip(batch, self.sample(batch), strict=True):
            request.answered.set_result(
                TokenOutput(
                    token_ids=token_ids,
                    log_probs=log_probs,
                    stop_reason="completed",
                    extra_fields={"global_steps": self.step},
                )
            )

    @torch.no_grad()
    def sample(self, batch: list[Request]) -> list[tuple[list[int], list[float]]]:
        longest = max(len(request.prompt) for request in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(batch):
            ids[row, longest - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, longest - len(request.prompt) :] = 1
        pictures = [picture for request in batch for picture in request.pictures]
        seen = self.read_pictures(images=pictures, return_tensors="pt") if pictures else {}
        told: list[torch.Tensor] = []
        for place in range(self.response_length):
            kinds = (ids == self.model.config.image_token_id).long()
            output = self.model(
                input_ids=ids, attention_mask=mask, mm_token_type_ids=kinds, use_cache=False, **seen
            )
            next_ids, log_probs = [], []
            for row, request in enumerate(batch):
                logit_V = output.logits[row, -1].double()
                log_prob_V = (logit_V / (request.temperature or 1.0)).log_softmax(-1)
                token = int(log_prob_V.argmax())
                if request.temperature:
                    below = int((log_prob_V.exp().cumsum(0) < request.uniform_T[place]).sum())
                    token = min(below, len(log_prob_V) - 1)
                next_ids.append(token)
                log_probs.append(float(log_prob_V[token]))
            ids = torch.cat([ids, torch.tensor(next_ids)[:, None]], 1)
            mask = torch.cat([mask, torch.ones(len(batch), 1, dtype=torch.long)], 1)
            told.append(torch.tensor(log_probs))
            if bool((ids[:, longest:] == self.eos).any(1).all()):
                break
        answers = []
        for token_ids, log_probs in zip(
            ids[:, longest:].tolist(), torch.stack(told, 1).tolist(), strict=True
        ):
            end = token_ids.index(self.eos) + 1 if self.eos in token_ids else len(token_ids)
            answers.append((token_ids[:end], log_probs[:end]))
        return answers


class PictureReplica(RolloutReplica):
    """One sampler, whatever its number of ranks."""

    async def launch_servers(self) -> None:
        name = sampler_name(self.replica_rank)
        server = (
            ray.remote(PictureSampler)
            .options(name=name, num_cpus=0, max_concurrency=1000)
            .remote(self.model_config.path, int(self.config.response_length))
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = name
