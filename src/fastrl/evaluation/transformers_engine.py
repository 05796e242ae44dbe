"""Completions with transformers' `generate`, on a CPU or one accelerator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from fastrl.evaluation.engines import Completion, EngineSettings, model_place
from fastrl.evaluation.prompts import Prompts
from fastrl.evaluation.questions import Question
from fastrl.evaluation.sampling import Sampling

DTYPES = ("auto", "float32", "bfloat16", "float16")


class TransformersEngine:
    """A model that transformers runs.

    Args:
        settings: the model and how it is loaded; an adapter's folder loads its base first.

    Raises:
        ValueError: the model cannot be loaded, or a setting cannot be used.
    """

    batch_size = 64

    def __init__(self, settings: EngineSettings) -> None:
        if settings.dtype not in DTYPES:
            raise ValueError(f"--dtype {settings.dtype}: expected one of {', '.join(DTYPES)}.")
        self.device = _device()
        self.prompts = Prompts(settings)
        self.model = _load(settings, self.device)
        tokenizer = self.prompts.tokenizer
        ends = self.model.generation_config.eos_token_id
        ends = tokenizer.eos_token_id if ends is None else ends
        self._ends = torch.tensor(ends if isinstance(ends, list) else [ends])
        pad = tokenizer.pad_token_id
        # Only what is said here counts: a checkpoint's own config may ask for penalties or beams.
        self.model.generation_config = GenerationConfig(
            eos_token_id=self._ends.tolist(),
            pad_token_id=int(self._ends[0]) if pad is None else pad,
        )

    def complete(
        self, questions: Sequence[Question], samples: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        """See `Engine.complete`; torch's random state is put back afterwards.

        More samples than `batch_size` are drawn one round after the other.
        """
        found: list[list[Completion]] = [[] for _ in questions]
        inputs = {
            name: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in self.prompts.inputs(questions).items()
        }
        with _seeded(seed, self.device):
            while len(found[0]) < samples:
                rounds = max(1, self.batch_size // len(questions))
                each = min(samples - len(found[0]), rounds)
                for row, completion in enumerate(self._generate(inputs, each, sampling)):
                    found[row // each].append(completion)
        return found

    def _generate(self, inputs: Any, each: int, sampling: Sampling) -> list[Completion]:
        drawing: dict[str, Any] = {"do_sample": False, "num_return_sequences": 1}
        if not sampling.is_greedy:
            drawing = {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": 0,
                "num_return_sequences": each,
            }
        with torch.inference_mode():
            output = self.model.generate(
                **inputs, max_new_tokens=sampling.max_new_tokens, **drawing
            )
        new_tokens = output[:, inputs["input_ids"].shape[1] :].cpu()
        texts = self.prompts.tokenizer.batch_decode(new_tokens, skip_special_tokens=True)
        is_end = torch.isin(new_tokens, self._ends)
        finished = is_end.any(dim=1)
        lengths = torch.where(finished, is_end.int().argmax(dim=1) + 1, new_tokens.shape[1])
        return [
            Completion(text, int(length), bool(ended))
            for text, length, ended in zip(texts, lengths, finished, strict=True)
        ]


def _device() -> torch.device:
    if torch.accelerator.is_available():
        found = torch.accelerator.current_accelerator()
        assert found is not None
        return torch.device(found.type, torch.accelerator.current_device_index())
    return torch.device("cpu")


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws from a seed; afterwards it goes on as if nothing had been drawn."""
    on_cpu = device.type == "cpu"
    devices = [] if on_cpu else [device.index]
    with torch.random.fork_rng(devices, device_type="cuda" if on_cpu else device.type):
        torch.manual_seed(seed)
        yield


def _load(settings: EngineSettings, device: torch.device) -> Any:
    place = model_place(settings.model)
    dtype = settings.dtype
    if dtype == "auto" and device.type == "cpu":
        dtype = "float32"  # half precision is slow on a CPU
    adapter = Path(place) / "adapter_config.json"
    base = place
    if adapter.exists():
        base = json.loads(adapter.read_text())["base_model_name_or_path"]
    try:
        config = AutoConfig.from_pretrained(base)
        sees = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        model = kind.from_pretrained(base, dtype=dtype, **(settings.arguments or {}))
        if adapter.exists():
            model.load_adapter(place)
    except (OSError, ValueError, ImportError, TypeError) as error:
        raise ValueError(f"model {settings.model!r}: cannot be loaded ({error}).") from error
    if getattr(model, "hf_device_map", None) is None:
        model.to(device)
    return model.eval()
