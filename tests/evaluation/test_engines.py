"""The two engines: transformers for real, vLLM against a stand-in with its call shape."""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen2Config, Qwen2ForCausalLM

from fastrl.evaluation.engines import (
    Completion,
    EngineSettings,
    batch_seed,
    build_engine,
    model_place,
)
from fastrl.evaluation.questions import Question
from fastrl.evaluation.sampling import PRESETS, Sampling
from fastrl.evaluation.sources import load_questions
from fastrl.evaluation.transformers_engine import TransformersEngine
from fastrl.evaluation.vllm_engine import VllmEngine
from fastrl.geometry.toy import STARTING_POLICY, figures
from fastrl.geometry.toy.evaluation import complete
from fastrl.geometry.toy.text import build_tokenizer

GREEDY = Sampling(0.0, max_new_tokens=24)
WARM = Sampling(1.0, max_new_tokens=24)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(EngineSettings("toy"))


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_questions("toy", limit=4).questions


def texts(found: list[list[Completion]]) -> list[list[str]]:
    return [[completion.text for completion in row] for row in found]


def test_greedy_completions_are_those_of_the_toys_own_evaluation(
    engine: TransformersEngine, questions: list[Question]
) -> None:
    model = AutoModelForImageTextToText.from_pretrained(STARTING_POLICY, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(STARTING_POLICY)
    drawn = list(figures(4, 0, held_out=True))
    expected = complete(model, processor, drawn, [figure.question for figure in drawn], samples=0)
    assert texts(engine.complete(questions, 1, GREEDY, seed=0)) == expected


def test_the_same_seed_gives_the_same_completions_and_touches_nothing(
    engine: TransformersEngine, questions: list[Question]
) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = engine.complete(questions, 3, WARM, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert engine.complete(questions, 3, WARM, seed=1) == first
    assert engine.complete(questions, 3, WARM, seed=2) != first
    assert [len(row) for row in first] == [3, 3, 3, 3]


def test_more_samples_than_fit_at_once_are_drawn_in_rounds(
    engine: TransformersEngine, questions: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransformersEngine, "batch_size", 4)
    found = engine.complete(questions[:2], 5, WARM, seed=1)
    assert [len(row) for row in found] == [5, 5]
    assert len({text for row in texts(found) for text in row}) > 2


def test_lengths_and_what_was_cut(engine: TransformersEngine, questions: list[Question]) -> None:
    whole = engine.complete(questions, 1, GREEDY, seed=0)
    for (completion,) in whole:
        assert completion.finished
        ids = engine.prompts.tokenizer(completion.text)["input_ids"]
        assert completion.tokens == len(ids) + 1  # the end mark
    for (completion,) in engine.complete(questions, 1, Sampling(0.0, max_new_tokens=3), seed=0):
        assert (completion.tokens, completion.finished) == (3, False)


def test_a_checkpoints_own_generation_config_does_not_count(
    engine: TransformersEngine, questions: list[Question], tmp_path: Path
) -> None:
    shutil.copytree(STARTING_POLICY, tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    odd = {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1, "min_new_tokens": 20}
    odd |= {"do_sample": True, "temperature": 3.0, "num_beams": 3}
    path.write_text(json.dumps({**json.loads(path.read_text()), **odd}))
    other = TransformersEngine(EngineSettings(str(tmp_path)))
    for sampling in (GREEDY, WARM):
        expected = engine.complete(questions, 1, sampling, seed=0)
        assert other.complete(questions, 1, sampling, seed=0) == expected


def test_pictures_are_resized_to_the_limits(questions: list[Question]) -> None:
    engine = TransformersEngine(EngineSettings("toy", max_pixels=56 * 56))
    sizes = {picture.size for picture in engine.prompts.pictures(questions[0])}
    assert sizes == {(56, 56)}
    assert engine.complete(questions[:1], 1, GREEDY, seed=0)[0][0].tokens > 0


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    tokenizer = build_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return str(folder)


def test_a_text_model_answers_text_and_refuses_pictures(
    text_model: str, questions: list[Question]
) -> None:
    assert model_place(text_model) == f"{text_model}/model"  # as `fastrl train` leaves it
    engine = TransformersEngine(EngineSettings(text_model))
    asked = [Question("a", "2 + 2?", "4"), Question("b", "And now a longer one: 3 + 3?", "6")]
    found = engine.complete(asked, 2, WARM, seed=0)
    assert [len(row) for row in found] == [2, 2]
    # Padding on the left: alone or in company, greedy answers are the same.
    together = engine.complete(asked, 1, GREEDY, seed=0)
    assert texts([engine.complete(asked[:1], 1, GREEDY, seed=0)[0]]) == texts(together[:1])
    with pytest.raises(ValueError, match="reads text alone, but question held-out/0/0"):
        engine.complete(questions, 1, GREEDY, seed=0)


def test_an_adapter_is_loaded_over_its_base(
    tmp_path: Path, engine: TransformersEngine, questions: list[Question]
) -> None:
    peft = pytest.importorskip("peft")
    base = AutoModelForImageTextToText.from_pretrained(STARTING_POLICY, dtype=torch.float32)
    base.name_or_path = str(STARTING_POLICY)
    settings = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    adapter = peft.get_peft_model(base, settings)
    adapter.save_pretrained(tmp_path)
    AutoProcessor.from_pretrained(STARTING_POLICY).save_pretrained(tmp_path)
    adapted = TransformersEngine(EngineSettings(str(tmp_path)))
    inputs = adapted.prompts.inputs(questions)
    with torch.inference_mode():
        logits, plain, expected = (
            model(**inputs).logits for model in (adapted.model, engine.model, adapter)
        )
    torch.testing.assert_close(logits, expected)
    assert (logits - plain).abs().max() > 0.01


def test_models_and_engines_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither 'toy', nor a folder"):
        build_engine("transformers", EngineSettings(str(tmp_path)))
    with pytest.raises(ValueError, match="--engine sglang: expected one of transformers, vllm"):
        build_engine("sglang", EngineSettings("toy"))
    with pytest.raises(ValueError, match="--dtype int8"):
        build_engine("transformers", EngineSettings("toy", dtype="int8"))
    with pytest.raises(ValueError, match="cannot be loaded"):
        build_engine("transformers", EngineSettings("toy", arguments={"no_such_thing": 1}))


def test_batches_have_seeds_of_their_own() -> None:
    seeds = [batch_seed(seed, batch) for seed in range(3) for batch in range(50)]
    assert len(set(seeds)) == 150
    assert batch_seed(1, 2) == batch_seed(1, 2)


# -- vLLM: the classes and calls of its offline interface ---------------------------------------


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    seed: int | None = None


@dataclass
class Output:
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None


@dataclass
class RequestOutput:
    prompt: str
    outputs: list[Output]


@dataclass
class LLM:
    """Answers with the prompt's length, its pictures, and the seed."""

    arguments: dict[str, Any]
    calls: list[Any] = field(default_factory=list)

    def generate(
        self, prompts: list[dict[str, Any]], sampling_params: list[SamplingParams], use_tqdm: bool
    ) -> list[RequestOutput]:
        self.calls.append((prompts, sampling_params, use_tqdm))
        replies = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            seen = len(prompt.get("multi_modal_data", {}).get("image", []))
            outputs = [
                Output(i, f"\\boxed{{{seen}}} {params.seed} {i}", [1] * (i + 1), reason)
                for i, reason in zip(range(params.n), ["stop", "length"] * params.n, strict=False)
            ]
            replies.append(RequestOutput(prompt["prompt"], outputs))
        return replies


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("vllm")
    module.LLM = lambda **arguments: LLM(arguments)  # type: ignore[attr-defined]
    module.SamplingParams = SamplingParams  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module


def test_vllm_is_asked_with_the_same_prompts(
    vllm: ModuleType, engine: TransformersEngine, questions: list[Question]
) -> None:
    settings = EngineSettings("toy", arguments={"tensor_parallel_size": 2})
    other = build_engine("vllm", settings)
    assert isinstance(other, VllmEngine)
    llm = other._llm
    assert llm.arguments == {
        "model": str(STARTING_POLICY),
        "dtype": "auto",
        "tensor_parallel_size": 2,
        "limit_mm_per_prompt": {"image": 8},
    }
    sampling = PRESETS["validation"]
    found = other.complete(questions, 3, sampling, seed=7)
    ((prompts, params, use_tqdm),) = llm.calls
    assert not use_tqdm
    assert [p["prompt"] for p in prompts] == [engine.prompts.text(q) for q in questions]
    assert "<|vision_start|><|image_pad|><|vision_end|>" in prompts[0]["prompt"]
    assert [image.size for image in prompts[0]["multi_modal_data"]["image"]] == [(112, 112)]
    assert params == [SamplingParams(3, 0.6, 0.95, 2048, batch_seed(7, row)) for row in range(4)]
    assert found[1][2] == Completion(f"\\boxed{{1}} {batch_seed(7, 1)} 2", 3, True)
    assert [completion.finished for completion in found[0]] == [True, False, True]
    assert other.batch_size == 2048


def test_vllm_that_is_not_installed_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match=r"vLLM cannot be imported .* pip install vllm"):
        build_engine("vllm", EngineSettings("toy"))
