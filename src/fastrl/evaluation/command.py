"""What `fastrl evaluate` does between its words and its table."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from fastrl.evaluation.engines import ENGINES, EngineSettings, build_engine
from fastrl.evaluation.evaluation import Evaluation, default_folder
from fastrl.evaluation.folder import EvaluationFolder
from fastrl.evaluation.questions import with_instruction
from fastrl.evaluation.sampling import Sampling, build_sampling
from fastrl.evaluation.sources import load_questions, source_of
from fastrl.evaluation.summary import summary_table
from fastrl.geometry.datasets.rows import EXAMPLES_EXAMPLE, are_examples

DTYPES = ("auto", "float32", "bfloat16", "float16")
BATCH_SIZES = {"transformers": 64, "vllm": 2048}


# Takes a title; the context gives what is told how many questions are done, and of how many.
Counting = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True)
class Request:
    """The words of the command, as given."""

    model: str
    dataset: str
    data_path: str | None = None
    split: str | None = None
    limit: int | None = None
    samples: int = 1
    sampling: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    instruction: str | None = None
    system: str = ""
    examples: str = "{}"
    min_pixels: int | None = None
    max_pixels: int | None = None
    batch_size: int | None = None
    seed: int = 0
    engine: str = "transformers"
    dtype: str = "auto"
    engine_args: str = "{}"
    skip_broken: bool = False
    output_dir: Path | None = None


def evaluate_model(
    console: Console,
    request: Request,
    counting: Counting,
    resume: bool = False,
    dry_run: bool = False,
) -> dict[str, Any] | None:
    """Evaluate, show the table and return the summary; None for a dry run.

    Args:
        console: what the table is printed on.
        request: the words of the command.
        counting: shows progress.
        resume: go on with what the folder holds.
        dry_run: show the settings and the first question, and write nothing.

    Raises:
        ValueError: lists what cannot be used, before anything is generated.
    """
    evaluation, engine = prepare(request)
    folder = evaluation.folder
    if dry_run:
        text = yaml.safe_dump(evaluation.resolved(), sort_keys=False, allow_unicode=True)
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        console.print(f"batches: {len(evaluation.batches)}\n\nThe first question:")
        first = evaluation.questions[0]
        console.print(first.text, highlight=False, markup=False, soft_wrap=True)
        console.print(f"(pictures: {len(first.pictures)}; answer: {first.answer})", markup=False)
        return None
    if folder.is_used() and not resume:
        raise ValueError(
            f"--output_dir {folder.path}: holds an evaluation already: go on with --resume, or "
            "choose another."
        )
    if resume:
        if not folder.is_used():
            raise ValueError(f"--resume: {folder.path} holds no evaluation.")
        if problems := evaluation.resume_problems():
            raise ValueError("--resume: " + "; ".join(problems) + ". Give the same settings.")
    with counting(f"Asking {request.model}") as on_batch:
        summary = evaluation.execute(lambda: build_engine(request.engine, engine), on_batch)
    console.print(summary_table(summary))
    published = evaluation.published
    if published is not None and published != len(evaluation.questions):
        console.print(
            f"{len(evaluation.questions)} of the {published} published questions: not comparable "
            "with published figures.",
            soft_wrap=True,
        )
    if skipped := evaluation.settings["skipped"]:
        told = f"Left out, and named in summary.json: {len(skipped)}, the first {skipped[0]}"
        console.print(told, markup=False, soft_wrap=True)
    console.print(f"Everything is in {folder.path.resolve()}", soft_wrap=True, highlight=False)
    return summary


def prepare(request: Request) -> tuple[Evaluation, EngineSettings]:
    """Check the words of the command, open the data, and put the evaluation together.

    Raises:
        ValueError: lists every word that cannot be used; or what is wrong with the data.
    """
    source = source_of(request.dataset)
    sampling, arguments, examples = _checked(request, source.max_new_tokens)
    questions, skipped = load_questions(
        request.dataset,
        request.data_path,
        request.split,
        request.limit,
        request.instruction,
        request.seed,
        request.skip_broken,
    )
    words = source.instruction if request.instruction is None else request.instruction
    engine = EngineSettings(
        request.model,
        request.dtype,
        request.system,
        request.min_pixels,
        request.max_pixels,
        arguments,
        {with_instruction(asked, words): reply for asked, reply in examples.items()},
    )
    settings = {
        "model": request.model,
        "dataset": request.dataset,
        "data_path": request.data_path or source.place,
        "split": request.split or source.split,
        "skipped": skipped,
        "engine": request.engine,
        "dtype": request.dtype,
        "system": request.system,
        "examples": examples or None,
        "min_pixels": request.min_pixels,
        "max_pixels": request.max_pixels,
        "engine_args": arguments,
    }
    folder = request.output_dir or default_folder(
        request.model, request.dataset, sampling, request.samples
    )
    evaluation = Evaluation(
        questions,
        request.samples,
        sampling,
        request.batch_size or BATCH_SIZES[request.engine],
        request.seed,
        EvaluationFolder(folder),
        settings,
        source.published,
    )
    return evaluation, engine


def _checked(request: Request, most_tokens: int) -> tuple[Sampling, dict[str, Any], dict[str, str]]:
    """The sampling, the engine's arguments and the examples; raises for what cannot be used."""
    problems = []
    sampling = Sampling(0.0)
    arguments: Any = {}
    examples: Any = {}
    wanted = most_tokens if request.max_new_tokens is None else request.max_new_tokens
    try:
        sampling = build_sampling(
            request.sampling, request.temperature, request.top_p, wanted, request.samples
        )
    except ValueError as error:
        problems.append(str(error).rstrip("."))
    for word, value, known in (
        ("engine", request.engine, ENGINES),
        ("dtype", request.dtype, DTYPES),
    ):
        if value not in known:
            problems.append(f"--{word} {value}: expected one of {', '.join(known)}")
    if request.batch_size is not None and request.batch_size < 1:
        problems.append(f"--batch_size {request.batch_size}: expected at least 1")
    low, high = request.min_pixels or 1, request.max_pixels
    if low < 1 or (high is not None and high < low):
        problems.append(f"--min_pixels {low}, --max_pixels {high}: expected 1 or more, in order")
    try:
        arguments = json.loads(request.engine_args)
    except json.JSONDecodeError as error:
        problems.append(f"--engine_args {request.engine_args}: not valid JSON ({error})")
    if not isinstance(arguments, dict):
        problems.append(f"--engine_args {request.engine_args}: expected names and values in braces")
    try:
        examples = json.loads(request.examples)
    except json.JSONDecodeError:
        examples = None
    if not are_examples(examples):
        problems.append(
            f"--examples {request.examples}: expected questions and their replies as JSON, such as "
            f"{EXAMPLES_EXAMPLE}"
        )
    if find_spec("math_verify") is None:
        problems.append("math-verify is not installed: pip install 'fastrl-grpo[geometry]'")
    if problems:
        raise ValueError("; ".join(problems) + ".")
    return sampling, arguments, examples
