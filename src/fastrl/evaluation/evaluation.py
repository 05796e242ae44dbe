"""One evaluation: ask in batches, judge, write, and go on where it was stopped."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fastrl
from fastrl.evaluation.answers import judge
from fastrl.evaluation.engines import Completion, Engine, batch_seed
from fastrl.evaluation.folder import EvaluationFolder, Prediction
from fastrl.evaluation.questions import Question, fingerprint
from fastrl.evaluation.sampling import Sampling
from fastrl.evaluation.summary import summarise
from fastrl.geometry.grading import Grader, Outcome
from fastrl.geometry.rewards import has_format

PACKAGES = ("torch", "transformers", "vllm", "math-verify")


@dataclass(frozen=True)
class Evaluation:
    """What is asked, how, and where the answers go.

    Attributes:
        questions: Q questions.
        samples: completions of each.
        sampling: how they are drawn.
        batch_size: completions asked for at once; what a crash loses at most.
        seed: of the drawing; each batch has its own, whatever ran before it.
        folder: where everything is written.
        settings: further facts that make the result what it is (model, engine, data set); a resumed
            evaluation must agree on them.
        published: how many questions the published set has; None where it does not say.
    """

    questions: Sequence[Question]
    samples: int
    sampling: Sampling
    batch_size: int
    seed: int
    folder: EvaluationFolder
    settings: dict[str, Any]
    published: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"--batch_size {self.batch_size}: expected at least 1.")

    @property
    def batches(self) -> list[Sequence[Question]]:
        """The questions in the order and company in which they are asked."""
        each = max(1, self.batch_size // self.samples)
        starts = range(0, len(self.questions), each)
        return [self.questions[start : start + each] for start in starts]

    def resolved(self) -> dict[str, Any]:
        """Everything that the predictions depend on, as `evaluation.json` holds it."""
        return {
            **self.settings,
            "samples": self.samples,
            **asdict(self.sampling),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "questions": len(self.questions),
            "fingerprint": fingerprint(self.questions),
        }

    def resume_problems(self) -> list[str]:
        """Settings that differ from those of the evaluation that it goes on with, in words."""
        stored, resolved = self.folder.read_settings(), self.resolved()
        return [
            f"{name} = {resolved.get(name)!r}, it was started with {stored.get(name)!r}"
            for name in sorted({*stored, *resolved})
            if stored.get(name) != resolved.get(name)
        ]

    def execute(
        self,
        build: Callable[[], Engine],
        on_batch: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[str, Any]:
        """Ask what was not asked yet, and return the summary.

        Args:
            build: makes the engine; not called where every batch is there already.
            on_batch: told how many questions are done, and of how many.

        Raises:
            GoldError: a right answer cannot be read.
        """
        self.folder.create(self.resolved())
        engine: Engine | None = None
        done = 0
        batches = self.batches
        with Grader() as grader:
            for number, batch in enumerate(batches):
                if not self.folder.holds(number, len(batch) * self.samples):
                    engine = engine or build()
                    started = time.perf_counter()
                    completions = engine.complete(
                        batch, self.samples, self.sampling, batch_seed(self.seed, number)
                    )
                    rows = predictions(batch, completions, grader)
                    self.folder.write_batch(number, rows, time.perf_counter() - started)
                done += len(batch)
                on_batch(done, len(self.questions))
        return self._summary(len(batches))

    def _summary(self, batches: int) -> dict[str, Any]:
        table, seconds = self.folder.read_predictions(batches)
        summary = {
            **self.resolved(),
            "published_questions": self.published,
            **summarise(table, self.samples),
            "seconds": round(seconds, 2),
            "versions": versions(),
        }
        self.folder.write_summary(summary)
        return summary


def predictions(
    batch: Sequence[Question], completions: Sequence[Sequence[Completion]], grader: Grader
) -> list[Prediction]:
    """Judge the completions of a batch: Q x S predictions, the samples of a question together."""
    rows = []
    for question, samples in zip(batch, completions, strict=True):
        for number, completion in enumerate(samples):
            verdict = judge(completion.text, question, grader)
            right = verdict.outcome is Outcome.CORRECT
            shaped = has_format(completion.text)
            rows.append(Prediction(question, number, completion, verdict, right, shaped))
    return rows


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    found = {"fastrl": fastrl.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def default_folder(model: str, dataset: str, sampling: Sampling, samples: int) -> Path:
    """Where an evaluation goes by default: named after what it evaluates."""
    how = "greedy" if sampling.is_greedy else f"t{sampling.temperature:g}x{samples}"
    parts = (Path(model).name or "model", Path(dataset).name or "data", how)
    return Path("evaluations") / "-".join(part.replace("/", "_") for part in parts)
