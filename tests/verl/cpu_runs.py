"""Real verl trainings on the CPU: a tiny Qwen2, real Ray, real FSDP."""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
LETTERS = "0123456789+=abeinrstu"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(folder: Path) -> None:
    """A Qwen2 of 20,000 parameters that writes letters and digits at random."""
    vocabulary = {letter: number for number, letter in enumerate([*LETTERS, "Ċ"])}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_prompts(path: Path, count: int) -> None:
    draw = random.Random(0)
    rows = []
    for index in range(count):
        a, b = draw.randint(10, 99), index + 10
        rows.append(
            {
                "data_source": "sums",
                "prompt": [{"role": "user", "content": f"{a}+{b}="}],
                "ability": "sums",
                "reward_model": {"style": "rule", "ground_truth": str(a + b)},
                "extra_info": {"index": index, "split": "train"},
            }
        )
    pandas.DataFrame(rows).to_parquet(path)


@dataclass(frozen=True)
class Run:
    """What a training left behind.

    Attributes:
        folder: of the run.
        log: all that was printed.
        returncode: 0 where it trained to the end.
    """

    folder: Path
    log: str
    returncode: int

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One dictionary a step."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [line["data"] for line in map(json.loads, lines)]

    @property
    def rewards(self) -> list[dict[str, Any]]:
        """Every rollout that was graded."""
        lines = (self.folder / "rewards.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def rollouts(self) -> list[dict[str, Any]]:
        """Every rollout that was sampled, those of groups that were filtered out included."""
        lines = (self.folder / "rollouts.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def passes(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        """The passes of a kind ("old", "reference", "update") on one rank, in order."""
        lines = (self.folder / f"rank{rank}.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["pass"] == kind]

    def weights(self, step: int) -> dict[str, torch.Tensor]:
        """The policy in the checkpoint of a step, trained on one rank."""
        path = self.folder / f"checkpoints/global_step_{step}/actor"
        return torch.load(path / "model_world_size_1_rank_0.pt", weights_only=False)


def overrides(assets: Path, folder: Path, ranks: int) -> list[str]:
    """An ordinary GRPO run of verl's: 4 prompts x 6 rollouts a step, one update."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        "algorithm.adv_estimator=grpo",
        f"data.train_files={assets}/prompts.parquet",
        f"data.val_files={assets}/prompts.parquet",
        "data.train_batch_size=4",
        "data.max_prompt_length=64",
        "data.max_response_length=10",
        "data.seed=1",
        f"actor_rollout_ref.model.path={assets}/model",
        f"{actor}.optim.lr=1e-3",
        f"{actor}.ppo_mini_batch_size=4",
        f"{actor}.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
        f"{rollout}.n=6",
        f"reward.custom_reward_function.path={HERE}/answer_reward.py",
        "reward.custom_reward_function.name=compute_score",
        "trainer.total_epochs=2",
        *cpu_overrides(folder, ranks),
    ]


def cpu_overrides(folder: Path, ranks: int) -> list[str]:
    """What any run of verl's needs on a CPU and in a test."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    fp32 = [
        f"+actor_rollout_ref.{part}.fsdp_config.mixed_precision.{name}=fp32"
        for part in ("actor", "ref")
        for name in ("param_dtype", "reduce_dtype")
    ]
    uncompiled = [
        f"actor_rollout_ref.{part}.use_torch_compile=False"
        for part in ("actor", "actor.fsdp_config", "ref", "ref.fsdp_config")
    ]
    return [
        "data.dataloader_num_workers=0",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        f"{actor}.strategy=fsdp2",
        "actor_rollout_ref.ref.strategy=fsdp2",
        "actor_rollout_ref.ref.fsdp_config.model_dtype=fp32",
        f"{rollout}.name=cpu_sampler",
        f"{rollout}.tensor_model_parallel_size={ranks}",
        f"{rollout}.free_cache_engine=False",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.agent.agent_loop_config_path={HERE}/cpu_agents.yaml",
        f"{rollout}.agent.default_agent_loop=seeded",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"trainer.n_gpus_per_node={ranks}",
        "trainer.nnodes=1",
        "trainer.device=cpu",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=False",
        "trainer.logger=[console,file]",
        f"trainer.default_local_dir={folder}/checkpoints",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.include_dashboard=False",
        *fp32,
        *uncompiled,
    ]


def train(
    assets: Path, folder: Path, *extra: str, module: str = "fastrl.verl", ranks: int = 1
) -> Run:
    """Run a training in processes of its own, to its end."""
    words = [*overrides(assets, folder, ranks), *extra]
    return run_command([sys.executable, "-m", module, *words], folder)


def run_command(command: list[str], folder: Path, modules: str = "cpu_verl") -> Run:
    """Run a command that trains, to its end; `modules` are what verl loads in every process."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": modules,
        "PYTHONPATH": f"{SOURCE}:{HERE}",
        "FASTRL_TEST_PASSES": str(folder),
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "HYDRA_FULL_ERROR": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_DEDUP_LOGS": "0",
        # else a worker starts for every CPU that Ray is told of, on two real ones
        "RAY_prestart_worker_first_driver": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # else workers run at niceness 15: on a busy machine they wait for everything else
        "RAY_worker_niceness": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }
    log = folder / "log.txt"
    with log.open("w") as file:
        result = subprocess.run(
            [*command, f"hydra.run.dir={folder}/hydra"],
            env=environment,
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    return Run(folder, log.read_text(), result.returncode)
