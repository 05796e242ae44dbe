"""What a run learns from: prompts, pictures and rewards, for the toy and for real data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from datasets import Dataset

from fastrl.geometry.datasets import GeometryData, load_geometry, prompt_counter
from fastrl.geometry.rewards import GeometryReward
from fastrl.geometry.toy import accuracy_reward, format_reward, toy_dataset
from fastrl.runs.arguments import TOY, RunArguments


@dataclass(frozen=True)
class TrainingData:
    """Prompts and what rewards their completions.

    Attributes:
        train: the prompts, in TRL's columns.
        reward_funcs: accuracy, then format.
        held_out: prompts to score before and after with the same rewards; None for none.
        facts: what the run's summary says of the data.
    """

    train: Dataset
    reward_funcs: Sequence[Callable[..., list[float]]]
    held_out: Dataset | None
    facts: dict[str, Any]


def training_data(
    run: RunArguments,
    processor: Any,
    seed: int,
    dataset_resizes: bool,
    on_row: Callable[[int, int], None] | None = None,
) -> TrainingData:
    """Load and check what a recipe names.

    Args:
        run: the recipe's own fields.
        processor: the model's, within its pixel limits.
        seed: of the toy's pictures.
        dataset_resizes: whether pictures are resized here; see `processor_resizes`.
        on_row: told how many rows are checked, and of how many.

    Raises:
        ValueError: the data cannot be used with this model; says which rows, or why.
    """
    if run.dataset == TOY:
        train = toy_dataset(run.train_pictures, seed=seed)
        return TrainingData(train, (accuracy_reward, format_reward), None, {"name": TOY})
    if find_spec("math_verify") is None:
        raise ValueError(
            f"dataset = {run.dataset!r}: grading its answers needs math-verify: "
            "pip install 'fastrl-grpo[geometry]'."
        )
    limits = (run.min_pixels, run.max_pixels) if dataset_resizes else (None, None)
    assert not isinstance(run.examples, str), "problems() comes first"
    prompting = (run.format_instruction, run.system_prompt, *limits, run.examples)

    def load(split: str | None, max_rows: int | None) -> GeometryData:
        data = load_geometry(
            run.dataset,
            split,
            choices_as=run.choices_as,
            max_rows=max_rows,
            skip_broken=run.skip_broken,
            max_prompt_length=run.max_prompt_length,
            prompt_length=prompt_counter(processor, *prompting),
            skip_long=run.skip_long,
            on_row=on_row,
        )
        if data.pictures and not hasattr(processor, "image_processor"):
            raise ValueError(
                f"model = {run.model!r} reads text alone, and {data.name} has pictures: choose a "
                "vision-language model."
            )
        return data

    if run.eval_split and Path(run.dataset).is_file():
        raise ValueError(
            f"eval_split = {run.eval_split!r}: {run.dataset} is one file, used whole, and has no "
            "splits: put train.jsonl and test.jsonl (or .parquet) in a folder and give that."
        )
    data = load(run.dataset_split, run.max_rows)
    held_out = load(run.eval_split, run.eval_rows) if run.eval_split else None
    reward = GeometryReward(accuracy_weight=run.accuracy_weight, format_weight=run.format_weight)
    return TrainingData(
        data.for_training(*prompting),
        (reward.accuracy_reward, reward.format_reward),
        held_out.for_training(*prompting) if held_out else None,
        _facts(data),
    )


def _facts(data: GeometryData) -> dict[str, Any]:
    return {
        "name": data.name,
        "rows": len(data.rows),
        "pictures": data.pictures,
        "skipped_broken": len(data.skipped),
        "skipped_long": len(data.too_long),
        "broken_rows": [str(problem) for problem in data.skipped[:20]],
    }


def processor_resizes(processor: Any, min_pixels: int | None, max_pixels: int | None) -> bool:
    """Give a processor the pixel limits; False if it knows none and the data set has to resize.

    Processors of the Qwen2-VL kind resize each picture anyway, to whole patches between their
    limits, so that resizing before them would blur it twice. Others count sides or tiles.

    Args:
        processor: changed in place; its limits are saved with the model.
        min_pixels, max_pixels: in pixels; None leaves that limit as it is.
    """
    images: Any = getattr(processor, "image_processor", None)
    known = getattr(getattr(images, "valid_kwargs", None), "__annotations__", {})
    if not {"min_pixels", "max_pixels"} <= set(known):
        return False
    if min_pixels is not None:
        images.size = replace(images.size, shortest_edge=min_pixels)
    if max_pixels is not None:
        images.size = replace(images.size, longest_edge=max_pixels)
    return True
