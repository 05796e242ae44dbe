"""A rollout engine for the CPU: one Ray actor that samples with transformers, batch by batch.

What is sampled depends on prompt, session and weights only, not on which request came first: two
runs of the same policy see the same rollouts.
"""

import asyncio
import hashlib
import os
from typing import Any

import ray
import torch
import verl  # noqa: F401  first: verl loads its own parts in its own order
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


def draws(prompt_ids: list[int], seed: int, step: int, count: int) -> torch.Tensor:
    """`count` uniform numbers that depend on the arguments alone."""
    text = f"{prompt_ids} {seed} {step}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
    return torch.rand(count, generator=torch.Generator().manual_seed(number), dtype=torch.float64)


class Sampler:
    """Answers verl's token-in, token-out requests; those that come together are one batch."""

    def __init__(self, path: str, response_length: int, eos: int) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.response_length = response_length
        self.eos = eos
        self.step = 0
        self.waiting: list[tuple[list[int], float, torch.Tensor, asyncio.Future[Any]]] = []

    async def ready(self) -> None: ...

    async def wake_up(self) -> None: ...

    async def sleep(self) -> None: ...

    async def load_weights(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        self.model.load_state_dict(weights)
        self.step = self.step if step is None else step

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], **ignored: Any
    ) -> TokenOutput:
        future = asyncio.get_running_loop().create_future()
        seed = sampling_params.get("seed", 0)
        uniform_T = draws(prompt_ids, seed, self.step, self.response_length)
        temperature = float(sampling_params.get("temperature") or 0.0)
        self.waiting.append((list(prompt_ids), temperature, uniform_T, future))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(0.2, self.answer)
        return await future

    def answer(self) -> None:
        batch, self.waiting = self.waiting, []
        answers = self.sample([item[:3] for item in batch])
        for (*_, future), (token_ids, log_probs) in zip(batch, answers, strict=True):
            future.set_result(
                TokenOutput(
                    token_ids=token_ids,
                    log_probs=log_probs,
                    stop_reason="completed",
                    extra_fields={"global_steps": self.step},
                )
            )

    @torch.no_grad()
    def sample(
        self, requests: list[tuple[list[int], float, torch.Tensor]]
    ) -> list[tuple[list[int], list[float]]]:
        longest = max(len(prompt) for prompt, _, _ in requests)
        ids = torch.zeros(len(requests), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (prompt, _, _) in enumerate(requests):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        told: list[torch.Tensor] = []
        for place in range(self.response_length):
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
            next_ids, log_probs = [], []
            for row, (_, temperature, uniform_T) in enumerate(requests):
                log_prob_V = (logits[row, -1].double() / (temperature or 1.0)).log_softmax(-1)
                token = int(log_prob_V.argmax())
                if temperature:
                    below = int((log_prob_V.exp().cumsum(0) < uniform_T[place]).sum())
                    token = min(below, len(log_prob_V) - 1)
                next_ids.append(token)
                log_probs.append(float(log_prob_V[token]))
            ids = torch.cat([ids, torch.tensor(next_ids)[:, None]], 1)
            mask = torch.cat([mask, torch.ones(len(requests), 1, dtype=torch.long)], 1)
            told.append(torch.tensor(log_probs))
        answers = []
        for token_ids, log_probs in zip(
            ids[:, longest:].tolist(), torch.stack(told, 1).tolist(), strict=True
        ):
            end = token_ids.index(self.eos) + 1 if self.eos in token_ids else len(token_ids)
            answers.append((token_ids[:end], log_probs[:end]))
        return answers


def sampler_name(rank: int) -> str:
    return f"cpu_sampler_{rank}"


class CpuReplica(RolloutReplica):
    """One sampler, whatever its number of ranks."""

    async def launch_servers(self) -> None:
        from transformers import AutoTokenizer

        name = sampler_name(self.replica_rank)
        server = (
            ray.remote(Sampler)
            .options(name=name, num_cpus=0, max_concurrency=1000)
            .remote(
                self.model_config.path,
                int(self.config.response_length),
                AutoTokenizer.from_pretrained(self.model_config.path).eos_token_id,
            )
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = name


class WeightsToSampler(BaseRollout):
    """In every training process: gathers the weights, of which the first rank's are sent."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **ignored: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self.rank = int(os.environ["RANK"])
        self.ranks = self.config.tensor_model_parallel_size

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, **ignored: Any
    ) -> None:
        gathered = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        if self.rank % self.ranks == 0:
            sampler = ray.get_actor(sampler_name(self.rank // self.ranks))
            await sampler.load_weights.remote(gathered, global_steps)
