"""One training job: build everything, train, score, summarise."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoProcessor, ProgressCallback, set_seed
from transformers.trainer_callback import PrinterCallback

from fastrl.geometry.toy import STARTING_POLICY
from fastrl.geometry.toy.evaluation import ToyScore, evaluate_policy
from fastrl.runs.adapters import lora_config
from fastrl.runs.arguments import TOY, RunArguments
from fastrl.runs.callback import MetricsCallback, ScoringCallback
from fastrl.runs.data import TrainingData, processor_resizes, training_data
from fastrl.runs.folder import RunFolder
from fastrl.runs.machine import machine, versions
from fastrl.runs.progress import Progress
from fastrl.trl import FastGRPOConfig, FastGRPOTrainer, FastRLArguments
from fastrl.trl.validation import raise_run_problems, run_problems

# Fields that a config computes for itself; read back from YAML they would contradict each other.
DERIVED_FIELDS = ("generation_batch_size", "logging_dir")
# What a resumed run may change: where it lies and what is kept of it, not what it learns.
FREE_ON_RESUME = ("output_dir", "save_total_limit", "log_rollouts", "log_pictures", "disable_tqdm")


class Job:
    """A checked recipe, ready to run.

    Args:
        recipe: its name, for the summary.
        run: the run's own fields; config: the trainer's.
        progress: where progress is shown.
    """

    def __init__(
        self, recipe: str, run: RunArguments, config: FastGRPOConfig, progress: Progress
    ) -> None:
        self.recipe = recipe
        self.run = run
        self.config = config
        self.progress = progress
        self.folder = RunFolder(Path(config.output_dir))
        self.processor: Any = None
        self.trainer: Any = None
        self.data: TrainingData | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes; of several, all train."""
        return bool(self.config.process_index == 0)

    def check_settings(self) -> None:
        """Raise for everything that FastRL refuses and that the settings alone tell."""
        if self.config.prune_rule != "none" or self.config.dynamic_sampling:
            raise_run_problems(run_problems(self.config, train_dataset=None))

    def build(self) -> None:
        """Load data and policy; everything that can fail early fails here."""
        set_seed(self.config.seed)
        model = str(STARTING_POLICY) if self.run.model == TOY else self.run.model
        try:
            self.processor = AutoProcessor.from_pretrained(model)
        except OSError as error:
            raise ValueError(
                f"model = {self.run.model!r}: neither 'toy', nor a folder with a processor, nor a "
                f"hub name that can be reached ({error})."
            ) from error
        # Prompts are padded on the left; a tokenizer set otherwise would shift picture positions.
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        tokenizer.padding_side = "left"
        self.data = self._load_data()
        self.trainer = FastGRPOTrainer(
            model=model,
            reward_funcs=list(self.data.reward_funcs),
            args=self.config,
            train_dataset=self.data.train,
            eval_dataset=self.data.held_out,
            processing_class=self.processor,
            peft_config=lora_config(self.run),
        )
        for callback in (ProgressCallback, PrinterCallback):
            self.trainer.remove_callback(callback)
        is_split = self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled
        if is_split and self.run.dataset == TOY and self.run.eval_pictures:
            raise ValueError(
                f"eval_pictures = {self.run.eval_pictures}: the toy is scored with whole weights, "
                "which fsdp and deepspeed split; set eval_pictures=0."
            )

    def _load_data(self) -> TrainingData:
        # vLLM prepares pictures by the limits in the model's folder, whatever this processor's are;
        # pictures that the data set has brought within ours are the same to both.
        run = self.run
        dataset_resizes = self.config.use_vllm or not processor_resizes(
            self.processor, run.min_pixels, run.max_pixels
        )
        # Drawn only on a terminal: what --dry_run prints can be read back.
        with (
            self.config.main_process_first(desc="loading the data set"),
            self.progress.counting("Checking the data set", announce=False) as on_row,
        ):
            return training_data(run, self.processor, self.config.seed, dataset_resizes, on_row)

    def resolved(self) -> dict[str, Any]:
        """The whole configuration, as it is written to `config.yaml`."""
        config = {
            name: value
            for name, value in json.loads(self.config.to_json_string()).items()
            if name not in DERIVED_FIELDS
        }
        return {
            "recipe": self.recipe,
            **{f.name: getattr(self.run, f.name) for f in fields(self.run)},
            **config,
        }

    def execute(self, resume: bool) -> dict[str, Any]:
        """Train from the start or from the last complete checkpoint; returns the summary.

        Of several processes the main one writes. What the others read of the folder they read
        before it does.
        """
        if resume:
            finished = self._finished_summary()
            if finished is not None:
                return finished
        assert self.data is not None, "build() comes first"
        checkpoint = self.folder.last_complete_checkpoint() if resume else None
        before = self.folder.read_summary().get("before") if checkpoint else None
        everyone = self.trainer.accelerator
        everyone.wait_for_everyone()
        if self.is_main:
            self.folder.create()
            self.folder.rewind(checkpoint)
            if not (resume and self.folder.is_used()):
                self.folder.write_config(self.resolved())
        if before is None:
            before = self._score("before")
            self._append_score(0, 0.0, before)
        if self.is_main:
            self.folder.update_summary(
                recipe=self.recipe,
                data=self.data.facts,
                before=before,
                versions=versions(),
                machine=machine(self.config.world_size),
            )
        self._train(checkpoint)
        self.trainer.save_model(str(self.folder.path / "model"))
        after = self._score("after")
        if self.is_main:
            self._save_processor()
            last = self.folder.read_metrics()[-1]
            self._append_score(last["step"], last["seconds"], self._end_of_curve(after))
            self.folder.update_summary(
                after=after, finished=time.strftime("%Y-%m-%d %H:%M:%S"), **self.folder.totals()
            )
        everyone.wait_for_everyone()
        return self.folder.read_summary()

    def _save_processor(self) -> None:
        """Save the processor within the run's pixel limits: whoever scores the model gets them."""
        # Under vLLM the live one keeps the model's own; see `_load_data`.
        processor = copy.deepcopy(self.processor)
        processor_resizes(processor, self.run.min_pixels, self.run.max_pixels)
        processor.save_pretrained(self.folder.path / "model")

    def _train(self, checkpoint: Path | None) -> None:
        with self.progress.training(self.config) as on_step:
            if self.is_main:
                if self.run.log_rollouts:
                    write = partial(self.folder.write_rollouts, with_pictures=self.run.log_pictures)
                    self.trainer.rollout_observers.append(write)
                self.trainer.add_callback(
                    MetricsCallback(self.folder, on_step, self._score_on_the_way)
                )
            else:
                self.trainer.add_callback(ScoringCallback(self._score_on_the_way))
            self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def resume_problems(self) -> list[str]:
        """Settings that differ from those of the run that is to be taken up again, in words."""
        # A run begun before a field was added went by what is its default now.
        defaults = {**vars(RunArguments()), **vars(FastRLArguments())}
        stored = {**yaml.safe_load(yaml.safe_dump(defaults)), **self.folder.read_config()}
        resolved = yaml.safe_load(yaml.safe_dump(self.resolved()))
        # A generation batch has so many rows per process.
        processes = self.config.world_size
        started = self.folder.read_summary().get("machine", {}).get("processes", processes)
        stored["number of processes"], resolved["number of processes"] = started, processes
        return [
            f"{name} = {resolved.get(name)!r}, the run was started with {stored.get(name)!r}"
            for name in sorted({*stored, *resolved} - set(FREE_ON_RESUME))
            if stored.get(name) != resolved.get(name)
        ]

    def _finished_summary(self) -> dict[str, Any] | None:
        summary = self.folder.read_summary()
        return summary if "finished" in summary else None

    def _score(self, when: str) -> dict[str, float | None] | None:
        if self.run.dataset != TOY:
            return self._score_held_out(when)
        if not self.run.eval_pictures or not self.is_main:
            return None
        short = when == "before" and self.run.score_every
        with self.progress.counting(f"Scoring held-out pictures, {when}") as on_batch:
            pictures = self.run.score_pictures if short else self.run.eval_pictures
            return self._score_toy(pictures, on_batch=on_batch)

    def _score_on_the_way(self, step: int, seconds: float) -> None:
        every = self.run.score_every
        if not every or step % every or step == self.trainer.state.max_steps:
            return
        score: dict[str, float | None] | None = None
        if self.run.dataset != TOY:
            score = self._evaluate_held_out()
        elif self.is_main:
            with self.trainer.clock.phase("evaluate"):
                score = self._score_toy(self.run.score_pictures, with_greedy=False)
        self._append_score(step, seconds, score)

    def _end_of_curve(
        self, after: dict[str, float | None] | None
    ) -> dict[str, float | None] | None:
        """The last point, on the pictures of all others: `after` may be on more of them."""
        is_curve = self.run.dataset == TOY and self.run.score_every and after is not None
        if not is_curve or self.run.score_pictures == self.run.eval_pictures:
            return after
        return self._score_toy(self.run.score_pictures, with_greedy=False)

    def _append_score(
        self, step: int, seconds: float, score: dict[str, float | None] | None
    ) -> None:
        # Where accuracy earns nothing it is not known.
        if self.is_main and score is not None and "sampled" in score:
            self.folder.append_score(step, seconds, score)

    def _score_toy(self, pictures: int, **settings: Any) -> dict[str, float | None]:
        score: ToyScore = evaluate_policy(
            self.trainer.accelerator.unwrap_model(self.trainer.model),
            self.processor,
            pictures=pictures,
            samples=self.run.eval_samples,
            **settings,
        )
        return score.as_dict()

    def _score_held_out(self, when: str) -> dict[str, float | None] | None:
        assert self.data is not None, "build() comes first"
        if self.data.held_out is None:
            return None
        self.progress.console.print(f"Scoring {self.run.eval_split}, {when}")
        return self._evaluate_held_out()

    def _evaluate_held_out(self) -> dict[str, float | None]:
        """The trainer's own evaluation of the held-out split, sampled as in training.

        All processes take part in it.
        """
        assert self.data is not None
        assert self.data.held_out is not None
        trainer = self.trainer
        # On the way it lies within a step: what the step goes on with is put back afterwards.
        mode, asked_for = trainer.model.training, trainer.control.should_evaluate
        # What is drawn here must not change what is drawn in training.
        device = trainer.accelerator.device
        on_cpu = device.type == "cpu"
        with (
            torch.random.fork_rng(
                [] if on_cpu else [device], device_type="cuda" if on_cpu else device.type
            ),
            trainer.rewards_alone(),
        ):
            metrics = trainer.evaluate()
        trainer.model.train(mode)
        trainer.control.should_evaluate = asked_for
        score = {
            name: metrics[f"eval_rewards/{reward}/mean"] / weight
            for name, reward, weight in (
                ("sampled", "accuracy_reward", self.run.accuracy_weight),
                ("in_format", "format_reward", self.run.format_weight),
            )
            if weight
        }
        return {
            **score,
            "pictures": len(self.data.held_out),
            "samples": trainer.num_generations_eval,
        }
