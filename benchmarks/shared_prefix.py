"""What sharing prefixes saves: seconds of TRL's own scoring call over FastRL's, on the same rows.

One group a call: K rollouts behind a prompt with one picture (Qwen-VL policies), or none (any
policy). Told are the ratios of a training step (forward and backward) and of a forward pass alone,
by K, picture tokens and completion length; both ways take turns, in alternating order. Points go
line by line to --jsonl; started again, it measures what is missing.

    python benchmarks/shared_prefix.py --jsonl runs/shared_prefix.jsonl
    python benchmarks/shared_prefix.py --device cuda --dtype bfloat16 --policy runs/qwen
    python benchmarks/shared_prefix.py --end-to-end      # whole steps of the toy, on and off
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fitting import median_interval
from step_time import markdown_table, ratios, take_turns

PASSES = ("step", "forward")


@dataclass(frozen=True)
class Point:
    """One group of rows.

    Attributes:
        rollouts: K.
        picture_tokens: of the prompt's picture; 0 for none.
        prompt_tokens: of the prompt's text.
        completion_tokens: L, of every rollout.
    """

    rollouts: int
    picture_tokens: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def token_ratio(self) -> float:
        """r = K (P + L) / (P - 1 + K (L + 1))."""
        prompt = self.picture_tokens + self.prompt_tokens
        host = self.rollouts * (prompt + self.completion_tokens)
        return host / (prompt - 1 + self.rollouts * (self.completion_tokens + 1))


@dataclass(frozen=True)
class Setting:
    """What the seconds of a point hang on beside the point itself."""

    policy: str
    width: int
    layers: int
    device: str
    dtype: str
    form: str
    checkpointing: bool


def points(options: argparse.Namespace) -> Iterator[Point]:
    for pictures, length, rollouts in itertools.product(
        options.pictures, options.tokens, options.rollouts
    ):
        yield Point(rollouts, pictures, options.prompt, length)


def policy_config(options: argparse.Namespace) -> Any:
    """That of a Qwen2.5-VL of the given size, or of the policy in a folder or on the hub."""
    if options.policy != "random":
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(options.policy)
    from fastrl.geometry.toy.policy import build_config, build_processor

    config = build_config(build_processor(), layers=options.layers)
    text, tower = config.text_config, config.vision_config
    text.hidden_size = tower.out_hidden_size = options.width
    text.intermediate_size = 3 * options.width
    section = options.width // text.num_attention_heads // 2
    half = section * 3 // 8
    text.rope_parameters["mrope_section"] = [section - 2 * half, half, half]
    tower.hidden_size, tower.depth = options.width, max(1, options.layers // 2)
    tower.fullatt_block_indexes = list(range(tower.depth))
    return config


def takes_pictures(config: Any) -> bool:
    """Whether pictures can be drawn for a policy: patches in a grid, as all Qwen-VL have them."""
    return hasattr(getattr(config, "vision_config", None), "spatial_merge_size")


def build_policy(options: argparse.Namespace) -> Any:
    """A Qwen2.5-VL of the given size with random weights, or the one of a folder or the hub."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration
    from trl.trainer.utils import add_fused_lm_head, create_model_from_path

    from fastrl.trl.shared_prefix.attention import let_calls_choose

    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    if options.policy == "random":
        model = Qwen2_5_VLForConditionalGeneration(policy_config(options)).to(dtype)
    else:
        # As TRL loads a policy: the class that its config names, with pictures or without.
        model = create_model_from_path(options.policy, dtype=dtype, device_map=None)
    model = model.to(options.device).train()
    if options.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    let_calls_choose(model.get_decoder())
    return model


def draw_rows(point: Point, model: Any, seed: int = 0) -> dict[str, Any]:
    """TRL's arguments for the rows of a point, of drawn tokens and pixels."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    config = model.config
    special = {getattr(config, f"{kind}_token_id", None) for kind in ("image", "video")}
    ordinary = torch.tensor([t for t in range(min(1000, vocabulary(config))) if t not in special])

    def text(rows: int, length: int) -> Any:
        return ordinary[torch.randint(len(ordinary), (rows, length), generator=generator)]

    prompt = text(1, point.prompt_tokens)[0]
    if point.picture_tokens:
        half = point.prompt_tokens // 2
        picture = torch.full((point.picture_tokens,), config.image_token_id)
        prompt = torch.cat([prompt[:half], picture, prompt[half:]])
    completions = text(point.rollouts, point.completion_tokens)
    ids = torch.cat([prompt.expand(point.rollouts, -1), completions], dim=1).to(model.device)
    rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if point.picture_tokens:
        tower = config.vision_config
        merge = tower.spatial_merge_size
        high = int(point.picture_tokens**0.5)
        while point.picture_tokens % high:
            high -= 1
        grid = torch.tensor([[1, high * merge, point.picture_tokens // high * merge]])
        size = 3 * tower.temporal_patch_size * tower.patch_size**2
        pixels = torch.randn(int(grid.prod()), size, generator=generator)
        rows |= {
            "pixel_values": pixels.repeat(point.rollouts, 1).to(model.device),
            "image_grid_thw": grid.repeat(point.rollouts, 1).to(model.device),
            "num_images": [1] * point.rollouts,
            "mm_token_type_ids": (ids == config.image_token_id).long(),
        }
    return rows


def vocabulary(config: Any) -> int:
    return int(config.get_text_config().vocab_size)


def two_ways(
    model: Any, rows: dict[str, Any], length: int, form: str
) -> dict[str, Callable[[], Any]]:
    """Both ways to the log-probs of the rows: TRL's own method, and ours, packing included."""
    from accelerate import Accelerator
    from trl import GRPOTrainer

    from fastrl.trl.shared_prefix.forms import build_form
    from fastrl.trl.shared_prefix.pictures import RowPictures
    from fastrl.trl.shared_prefix.scoring import Chunk, score_packed

    host = SimpleNamespace(accelerator=Accelerator(cpu=model.device.type == "cpu"))
    pictures = [rows.get(name) for name in ("pixel_values", "image_grid_thw", "num_images")]

    def trl() -> Any:
        return GRPOTrainer._get_per_token_logps_and_entropies(
            host, model, logits_to_keep=length, compute_entropy=True, **rows
        )[0]

    def shared() -> Any:
        chunk = Chunk(
            rows["input_ids"],
            rows["attention_mask"],
            length,
            RowPictures.of(*pictures) if pictures[0] is not None else None,
            rows.get("mm_token_type_ids"),
        )
        packing = chunk.pack()
        attend = build_form(form, packing.layout)
        rope_index = getattr(model.model, "get_rope_index", None)
        return score_packed(model, chunk, packing, attend, rope_index, compute_entropy=True)[0]

    return {"trl": trl, "shared": shared}


def measured(model: Any, call: Callable[[], Any], trains: bool) -> tuple[float, int]:
    """Seconds of one call, and on CUDA the most bytes held."""
    import torch

    on_cuda = model.device.type == "cuda"
    if on_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    with torch.set_grad_enabled(trains):
        logps = call()
        if trains:
            logps.sum().backward()
    if on_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated() if on_cuda else 0


def measure(model: Any, point: Point, form: str, rounds: int) -> dict[str, Any]:
    """Seconds and bytes of each way and pass, round by round; and the largest difference."""
    import torch

    rows = draw_rows(point, model)
    ways = two_ways(model, rows, point.completion_tokens, form)
    with torch.no_grad():
        left, right = (ways[name]().float() for name in ways)
    found: dict[str, Any] = {"largest_difference": float((left - right).abs().max())}
    for name, trains in zip(PASSES, (True, False), strict=True):
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        most = dict.fromkeys(ways, 0)
        for number in range(rounds + 1):
            for way in list(ways) if number % 2 else reversed(list(ways)):
                taken, held = measured(model, ways[way], trains)
                if number:  # the first is a warm-up
                    seconds[way].append(taken)
                    most[way] = max(most[way], held)
        found[name] = {"seconds": seconds, "bytes": most}
    return found


def table_row(point: Point, found: dict[str, Any]) -> list[str]:
    """A point and its ratios, as text."""
    cells = [
        str(point.picture_tokens),
        str(point.completion_tokens),
        str(point.rollouts),
        f"{point.token_ratio:.2f}",
    ]
    for name in PASSES:
        seconds = found[name]["seconds"]
        paired = [a / b for a, b in zip(seconds["trl"], seconds["shared"], strict=True)]
        interval = median_interval(paired)
        cells.append(f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]")
        cells.append(f"{statistics.median(seconds['shared']):.3f}")
    held = found["step"]["bytes"]
    cells.append(f"{held['shared'] / held['trl']:.2f}" if held["trl"] else "")
    cells.append(f"{found['largest_difference']:.0e}")
    return cells


HEADER = [
    "picture tokens",
    "completion",
    "rollouts",
    "token ratio",
    "training step, TRL / shared",
    "shared, s",
    "forward, TRL / shared",
    "shared, s",
    "peak memory, shared / TRL",
    "log-probs differ by",
]


def read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def run_points(options: argparse.Namespace, setting: Setting) -> list[list[str]]:
    """Rows of the table; points that the file has are not measured again."""
    known = {
        json.dumps(line["point"], sort_keys=True): line["found"]
        for line in read(options.jsonl)
        if line["setting"] == asdict(setting)
    }
    model, rows = None, []
    for point in points(options):
        found = known.get(json.dumps(asdict(point), sort_keys=True))
        if found is None:
            model = model or build_policy(options)
            found = measure(model, point, setting.form, options.rounds)
            if options.jsonl:
                options.jsonl.parent.mkdir(parents=True, exist_ok=True)
                line = {"setting": asdict(setting), "point": asdict(point), "found": found}
                with options.jsonl.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        rows.append(table_row(point, found))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def end_to_end(options: argparse.Namespace) -> None:
    """Whole generation batches of training, pruned and not, with shared prefixes and without."""
    from dataclasses import replace

    from step_runs import Work

    pruned = Work(arm="exact", replayed=True, tokens=options.tokens[0], shared_prefix=False)
    whole = replace(pruned, arm="none")
    rows = []
    for name, work in (("all kept", whole), (f"{pruned.kept_share:.0%} kept", pruned)):
        arms = {"off": work, "on": replace(work, shared_prefix=True)}
        found = take_turns(arms, warmup=1, rounds=options.rounds)
        interval = median_interval(ratios(found["off"], found["on"]))
        cell = f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
        rows.append([name, str(options.rounds), cell])
    print(f"{pruned}; completions given\n")
    print(markdown_table(["rows", "pairs", "a generation batch, off / on"], rows))


def chosen_form(options: argparse.Namespace) -> str:
    import torch

    from fastrl.trl.shared_prefix.forms import model_form

    if options.form:
        return str(options.form)
    device = torch.device(options.device, 0 if options.device == "cuda" else None)
    return model_form(policy_config(options), device, getattr(torch, options.dtype), trains=True)


def main() -> int:
    from fastrl.trl.shared_prefix.forms import FORMS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    numbers = {"type": int, "nargs": "+"}
    parser.add_argument("--policy", default="random", help="'random', a folder or a hub name")
    parser.add_argument("--width", type=int, default=128, help="of the random policy")
    parser.add_argument("--layers", type=int, default=8, help="of the random policy")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--form", choices=FORMS, help="of attention; the machine's by default")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing")
    parser.add_argument("--rollouts", default=[2, 4, 8], **numbers, help="K, of a prompt")
    parser.add_argument("--pictures", default=[0, 64, 256], **numbers, help="tokens of a picture")
    parser.add_argument("--tokens", default=[32, 128, 512], **numbers, help="of a completion")
    parser.add_argument("--prompt", type=int, default=32, help="text tokens of a prompt")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each point")
    parser.add_argument("--jsonl", type=Path, help="points are kept there, and not measured again")
    parser.add_argument("--end-to-end", action="store_true", help="whole steps of the toy instead")
    parser.add_argument("--quick", action="store_true", help="a look that means nothing")
    options = parser.parse_args()
    if options.quick:
        options.width, options.layers, options.rounds = 64, 1, 2
        options.rollouts, options.pictures, options.tokens = [2, 4], [0, 16], [8]
    if options.end_to_end:
        end_to_end(options)
        return 0
    if not takes_pictures(policy_config(options)):
        options.pictures = [number for number in options.pictures if not number]
        if not options.pictures:
            parser.error(f"no pictures can be drawn for {options.policy}: --pictures 0")
        print(f"no pictures can be drawn for {options.policy}: text alone", file=sys.stderr)
    setting = Setting(
        options.policy,
        options.width,
        options.layers,
        options.device,
        options.dtype,
        chosen_form(options),
        options.checkpointing,
    )
    rows = run_points(options, setting)
    print(f"{setting}\n")
    print(markdown_table(HEADER, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
