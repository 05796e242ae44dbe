"""How far the gradient of the kept rollouts is from the full batch's, for every rule and weighting.

Each rollout's own gradient is taken once (of its policy term, at the policy that is measured, with
ratio 1 and no KL); all that a rule or a weighting can do is a weighted sum of them. So the table
needs their scalar products alone, and as many draws of seeds as one likes cost nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, AutoProcessor, AutoTokenizer
from transformers import Qwen2_5_VLForConditionalGeneration as ToyModel

from fastrl.core import (
    DifferentialPruning,
    KeepAll,
    MaxVariancePruning,
    PruningRule,
    RandomPruning,
    Rollouts,
    TopAdvantagePruning,
    prune,
)
from fastrl.geometry.toy import STARTING_POLICY
from fastrl.geometry.toy.evaluation import complete
from fastrl.geometry.toy.figures import figures
from fastrl.geometry.toy.rewards import accuracy_reward, format_reward
from fastrl.geometry.toy.text import chat

# A gradient with more numbers than this is folded onto so many, with random signs: scalar products
# stay what they are on average, to about one in a thousand of the norms.
FOLD = 1 << 20

ARMS: tuple[tuple[str, PruningRule, str], ...] = (
    ("none", KeepAll(), "kept"),
    ("differential 0.2", DifferentialPruning(0.2), "exact"),
    ("differential 0.2", DifferentialPruning(0.2), "kept"),
    ("differential 0.5", DifferentialPruning(0.5), "exact"),
    ("differential 0.5", DifferentialPruning(0.5), "kept"),
    ("differential 1.0", DifferentialPruning(1.0), "exact"),
    ("differential 1.0", DifferentialPruning(1.0), "kept"),
    ("random 50%", RandomPruning(0.5), "exact"),
    ("random 25%", RandomPruning(0.25), "exact"),
    ("random 50%", RandomPruning(0.5), "kept"),
    ("top_advantage 50%", TopAdvantagePruning(0.5), "kept"),
    ("max_variance 50%", MaxVariancePruning(0.5), "kept"),
)


@dataclass(frozen=True)
class Batch:
    """N rollouts in whole groups, and what their gradients have to do with one another.

    Attributes:
        rollouts: as the rules see them.
        lengths_N: (N,) completion tokens.
        gram_NN: (N, N) scalar products of the gradients of -A_i mean_t log p_it.
    """

    rollouts: Rollouts
    lengths_N: npt.NDArray[np.float64]
    gram_NN: npt.NDArray[np.float64]


def group_advantages(rewards_Gn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(N,) TRL's: centred in the group, over its standard deviation."""
    centred = rewards_Gn - rewards_Gn.mean(axis=1, keepdims=True)
    return (centred / (rewards_Gn.std(axis=1, ddof=1, keepdims=True) + 1e-4)).ravel()


@lru_cache(maxsize=1)
def random_signs(size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (size,), generator=generator, dtype=torch.int8) * 2 - 1


def folded(model: Any) -> torch.Tensor:
    """The gradient as one vector of at most `FOLD` numbers."""
    parts = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    whole = torch.cat(parts)
    if len(whole) <= 2 * FOLD:
        return whole
    padded = torch.nn.functional.pad(whole * random_signs(len(whole)), (0, -len(whole) % FOLD))
    return padded.view(-1, FOLD).sum(dim=0)


def gradients(model: Any, rows: Iterator[tuple[dict[str, Any], list[int], float]]) -> Any:
    """(N, D) gradients of -A mean_t log p_t; a row with advantage zero has none.

    Args:
        rows: per rollout the prompt's inputs, the completion's token ids and the advantage.
    """
    found: list[torch.Tensor | None] = []
    for inputs, completion, advantage in rows:
        if advantage == 0.0 or not completion:
            found.append(None)
            continue
        tokens = torch.tensor([completion])
        ids = torch.cat([inputs["input_ids"], tokens], dim=1)
        given = {key: v for key, v in inputs.items() if key not in ("input_ids", "attention_mask")}
        if "mm_token_type_ids" in given:
            zeros = torch.zeros_like(tokens)
            given["mm_token_type_ids"] = torch.cat([given["mm_token_type_ids"], zeros], dim=1)
        model.zero_grad()
        logits = model(input_ids=ids, **given).logits[0, -len(completion) - 1 : -1]
        logps = torch.log_softmax(logits.float(), dim=-1).gather(1, tokens[0][:, None])
        (-advantage * logps.mean()).backward()
        found.append(folded(model))
    size = next(len(row) for row in found if row is not None)
    return torch.stack([row if row is not None else torch.zeros(size) for row in found])


def toy_batch(prompts: int, samples: int, seed: int, policy: str | Path = STARTING_POLICY) -> Batch:
    """A policy of the toy on its own rollouts: accuracy and format rewards."""
    model = ToyModel.from_pretrained(policy, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(policy)
    torch.manual_seed(seed)
    drawn = list(figures(prompts, seed))
    texts = complete(model, processor, drawn, [figure.question for figure in drawn], samples)
    end = processor.tokenizer.eos_token_id
    ids = [[*processor.tokenizer(text)["input_ids"], end] for group in texts for text in group]
    flat = [text for group in texts for text in group]
    golds = [figure.answer for figure in drawn for _ in range(samples)]
    rewards = np.array(accuracy_reward(flat, answer=golds)) + np.array(format_reward(flat))
    advantages_N = group_advantages(rewards.reshape(prompts, samples))

    def rows() -> Iterator[tuple[dict[str, Any], list[int], float]]:
        for index, completion in enumerate(ids):
            figure = drawn[index // samples]
            text = processor.apply_chat_template(chat(figure.question), add_generation_prompt=True)
            inputs = processor(images=[figure.picture], text=[text], return_tensors="pt")
            yield dict(inputs), completion, float(advantages_N[index])

    return _batch(model, rows(), advantages_N, ids, samples)


def recorded_batch(path: Path, model_folder: str, groups: int, field: str) -> Batch:
    """Recorded groups of text, those with contrast first in the file, under a given model."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = [json.loads(line) for line in content.splitlines()]
    lines = [line for line in lines if len(set(line[field])) > 1][:groups]
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    samples = len(lines[0]["responses"])
    advantages_N = group_advantages(np.array([line[field] for line in lines], dtype=np.float64))
    ids = [
        [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        for line in lines
        for text in line["responses"]
    ]

    def rows() -> Iterator[tuple[dict[str, Any], list[int], float]]:
        for index, completion in enumerate(ids):
            messages = [{"role": "user", "content": lines[index // samples]["question"]}]
            inputs = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            yield dict(inputs), completion, float(advantages_N[index])

    return _batch(model, rows(), advantages_N, ids, samples)


def _batch(
    model: Any,
    rows: Iterator[tuple[dict[str, Any], list[int], float]],
    advantages_N: npt.NDArray[np.float64],
    ids: list[list[int]],
    samples: int,
) -> Batch:
    sketch_ND = gradients(model, rows)
    return Batch(
        rollouts=Rollouts(np.arange(len(ids)) // samples, advantages_N, ids),
        lengths_N=np.array([len(row) for row in ids], dtype=np.float64),
        gram_NN=(sketch_ND @ sketch_ND.T).double().numpy(),
    )


def coefficients(
    batch: Batch, rule: PruningRule, weighting: str, by_tokens: bool, seed: int
) -> tuple[npt.NDArray[np.float64], int]:
    """(N,) what each rollout's gradient is multiplied by, and how many are kept.

    Args:
        by_tokens: the mean is over tokens (DAPO) instead of over rollouts (GRPO).
        seed: of the draws.
    """
    size_N = batch.lengths_N if by_tokens else np.ones(len(batch.rollouts))
    selection = prune(batch.rollouts, rule, weighting=weighting, seed=seed)  # type: ignore[arg-type]
    kept = selection.keep
    total = size_N.sum() if weighting == "exact" else size_N[kept].sum()
    factors_N = np.zeros(len(size_N))
    factors_N[kept] = selection.weights * size_N[kept] / total
    return factors_N, len(kept)


def table(batch: Batch, draws: int, by_tokens: bool) -> list[str]:
    """Markdown: cosine and norm ratio of single draws, and the cosine of their mean."""
    gram, total = batch.gram_NN, len(batch.rollouts)
    full_N, _ = coefficients(batch, KeepAll(), "kept", by_tokens, seed=0)
    full_norm = np.sqrt(full_N @ gram @ full_N)
    lines = [
        "| rule | weighting | kept | cosine | norm ratio | cosine of the mean | its norm ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rule, weighting in ARMS:
        is_drawn = weighting == "exact" or isinstance(rule, RandomPruning)
        found = [
            coefficients(batch, rule, weighting, by_tokens, seed)
            for seed in range(draws if is_drawn else 1)
        ]
        cosines, ratios = [], []
        for factors_N, _ in found:
            norm = np.sqrt(factors_N @ gram @ factors_N)
            cosines.append(factors_N @ gram @ full_N / (norm * full_norm))
            ratios.append(norm / full_norm)
        mean_N = np.mean([factors_N for factors_N, _ in found], axis=0)
        mean_norm = np.sqrt(mean_N @ gram @ mean_N)
        kept = np.mean([count for _, count in found]) / total
        spread = f" ± {np.std(cosines, ddof=1):.3f}" if is_drawn else ""
        lines.append(
            f"| {name} | {'-' if name == 'none' else weighting} | {kept:.0%} "
            f"| {np.mean(cosines):.3f}{spread} | {np.mean(ratios):.2f} "
            f"| {mean_N @ gram @ full_N / (mean_norm * full_norm):.4f} "
            f"| {mean_norm / full_norm:.3f} |"
        )
    return lines


def halves_cosine(batch: Batch) -> float:
    """The cosine between the gradients of the first and the second half of the groups."""
    half = len(batch.rollouts) // 2
    first = np.r_[np.ones(half), np.zeros(len(batch.rollouts) - half)]
    second, gram = 1 - first, batch.gram_NN
    norms = np.sqrt((first @ gram @ first) * (second @ gram @ second))
    return float(first @ gram @ second / norms)


def report(title: str, batch: Batch, draws: int, seconds: float) -> None:
    groups = len(set(batch.rollouts.group_ids.tolist()))
    without = int((np.abs(batch.rollouts.advantages).reshape(groups, -1).max(axis=1) == 0).sum())
    print(f"\n## {title}\n")
    print(
        f"{len(batch.rollouts)} rollouts in {groups} groups, {without} of them without contrast; "
        f"{batch.lengths_N.mean():.0f} tokens each; {seconds:.0f} seconds. Cosine between the "
        f"full gradients of the two halves of the groups: {halves_cosine(batch):.2f}."
    )
    for by_tokens, told in (
        (False, "Mean over rollouts (GRPO)"),
        (True, "Mean over tokens (DAPO)"),
    ):
        print(f"\n{told}:\n")
        print("\n".join(table(batch, draws, by_tokens)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=32, help="toy prompts")
    parser.add_argument("--samples", type=int, default=8, help="toy rollouts of each")
    parser.add_argument("--draws", type=int, default=500, help="draws of seeds")
    parser.add_argument("--seed", type=int, default=1, help="of the toy's pictures and samples")
    parser.add_argument("--recorded", type=Path, help="a JSONL file of recorded groups instead")
    parser.add_argument("--field", default="rewards", help="its field with a reward per response")
    parser.add_argument("--groups", type=int, default=12, help="recorded groups with contrast")
    parser.add_argument("--model", default="", help="folder of the model for recorded groups")
    options = parser.parse_args()
    started = time.perf_counter()
    if options.recorded is not None:
        batch = recorded_batch(options.recorded, options.model, options.groups, options.field)
        title = f"Recorded groups: {options.recorded.parent.name}"
    else:
        batch = toy_batch(options.prompts, options.samples, options.seed)
        title = "The toy's starting policy"
    report(title, batch, options.draws, time.perf_counter() - started)


if __name__ == "__main__":
    main()
