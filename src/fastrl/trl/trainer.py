"""The TRL host: GRPO that prunes its rollouts before any log-prob is computed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl.trainer.utils
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from fastrl.core import AdaptiveRollouts, KeepAll, Rollouts, Selection, prune
from fastrl.trl import batch as rows
from fastrl.trl import weighting as weights
from fastrl.trl.callbacks import GenerationBoundaryCallback, PhaseClockCallback
from fastrl.trl.checkpoints import checkpoint_step, read_state, write_state
from fastrl.trl.config import FastGRPOConfig, FastRLArguments, build_rule
from fastrl.trl.phases import OUTSIDE_PHASES, PhaseClock
from fastrl.trl.record import GenerationRecord, as_text
from fastrl.trl.validation import overridden_seams, run_problems
from fastrl.trl.versions import check_seams

SHARE_KEY = "fastrl_share"


class FastRLMixin:
    """What FastRL adds to a GRPO trainer; put before the trainer class by `with_fastrl`.

    The only changes: rows are dropped before generation when the schedule says so; log-probs asked
    for during generation and scoring wait until pruning has been done; the kept rows are dealt to
    the same number of updates; and a micro-batch's loss is scaled so that unequal ones add up to
    the right mean. With prune_rule="none" only clocks and metrics are added.
    """

    __fastrl__ = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(super().__init__).bind_partial(*args, **kwargs)
        config = bound.arguments.get("args", bound.arguments.get("kwargs", {}).get("args"))
        if config is None:
            config = FastGRPOConfig(output_dir="fastrl-output")
            kwargs["args"] = config
        if not isinstance(config, FastRLArguments):
            raise TypeError(
                f"args is a {type(config).__name__}; FastRL's fields are missing. Use "
                "FastGRPOConfig, or mix FastRLArguments into your config class."
            )
        self.rollout_observers: list[Callable[[GenerationRecord], None]] = []
        self._rule = build_rule(config)
        self._generation_step = 0
        self._schedule: AdaptiveRollouts | None = None
        self._schedule_state: dict[str, Any] | None = None
        self._deferring = False
        self._deferred_models: list[Any] = []
        self._rewards_per_func: torch.Tensor | None = None
        self._selection: Selection | None = None
        self._row_weights: torch.Tensor | None = None
        super().__init__(*args, **kwargs)
        self.clock = PhaseClock(self._synchronize)
        problems = run_problems(config, self) if self._prunes else []
        if problems:
            raise ValueError("FastRL cannot prune this run: " + "; ".join(problems) + ".")
        per_generation = config.steps_per_generation * self.num_iterations
        self._updates_per_generation = max(1, per_generation // config.gradient_accumulation_steps)
        self.add_callback(GenerationBoundaryCallback(self._updates_per_generation))
        self.add_callback(PhaseClockCallback(self))

    @property
    def _prunes(self) -> bool:
        return not isinstance(self._rule, KeepAll)

    @property
    def _prunes_now(self) -> bool:
        return self._prunes and self._generation_step >= self.args.start_step

    @property
    def at_generation_boundary(self) -> bool:
        """Whether every rollout of the last generation batch has been used."""
        return self._step % (self.args.steps_per_generation * self.num_iterations) == 0

    def _synchronize(self) -> None:
        if self.accelerator.device.type != "cpu":
            torch.accelerator.synchronize()

    def _phase(self, name: str) -> Any:
        return self.clock.phase(name if self.model.training else "evaluate")

    # -- how many rollouts ------------------------------------------------------------------

    def _rollouts_per_prompt(self) -> int:
        if not (self._prunes_now and self.args.adaptive_rollouts):
            return self.args.num_generations
        if self._schedule is None:
            self._schedule = self._build_schedule()
            if self._schedule_state is not None:
                self._schedule.load_state_dict(self._schedule_state)
        return self._schedule.num_generations

    def _build_schedule(self) -> AdaptiveRollouts:
        args = self.args
        prompts = args.generation_batch_size // args.num_generations
        steps_per_epoch = args.steps_per_epoch
        if steps_per_epoch is None:
            steps_per_epoch = math.ceil(len(self.train_dataset) / prompts)
        micro_steps = self.state.max_steps * args.gradient_accumulation_steps
        total = math.ceil(micro_steps / (args.steps_per_generation * self.num_iterations))
        return AdaptiveRollouts(
            num_generations=args.num_generations,
            min_generations=args.min_generations,
            steps_per_epoch=steps_per_epoch,
            total_steps=total,
        )

    @contextmanager
    def _generations(self, count: int) -> Any:
        """TRL's group size for one call; its data loader keeps the configured one."""
        configured, self.num_generations = self.num_generations, count
        try:
            yield
        finally:
            self.num_generations = configured

    # -- generation, rewards, pruning -------------------------------------------------------

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, timed."""
        with self._phase("generate"):
            return super()._generate(*args, **kwargs)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's, timed; the rewards of the full group are kept for pruning's record."""
        with self._phase("reward"):
            self._rewards_per_func = super()._calculate_rewards(*args, **kwargs)
        return self._rewards_per_func

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's; deferred while a generation batch is scored, weighted during an update."""
        if self._deferring:
            self._deferred_models.append(model)
            return None, None, None
        if torch.is_grad_enabled():
            logps, *others = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
            return weights.weigh_gradient(logps, self._row_weights), *others
        phase = "ref_logps" if model is self.ref_model else "old_logps"
        with self._phase(phase):
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, on fewer rows when the schedule says so; the log-probs wait until after pruning."""
        if not self.model.training:
            output = super()._generate_and_score_completions(inputs)
            self._log_selection_columns(len(output["completion_ids"]), None)
            return output
        count = self._rollouts_per_prompt()
        configured = self.args.num_generations
        inputs = [row for index, row in enumerate(inputs) if index % configured < count]
        self._deferring, self._deferred_models = self._prunes_now, []
        try:
            with self._generations(count):
                output = super()._generate_and_score_completions(inputs)
        finally:
            self._deferring = False
        if rows.num_rows(output) != len(inputs):
            raise ValueError(
                f"{type(self).__mro__[2].__name__} returned {rows.num_rows(output)} rollouts for "
                f"{len(inputs)} rows; FastRL needs one per row."
            )
        with self.clock.phase("prune"):
            self._selection = self._select(output, count)
        self._record(output, self._selection, count)
        self._generation_step += 1
        return output

    def _select(self, output: dict[str, Any], num_generations: int) -> Selection:
        """Apply the rule to a scored generation batch of whole, consecutive groups."""
        advantages = output["advantages"].float()
        if advantages.dim() == 2:
            mask = rows.loss_mask(output)
            advantages = (advantages * mask).sum(1) / mask.sum(1).clamp(min=1)
        total = rows.num_rows(output)
        rollouts = Rollouts(
            group_ids=np.arange(total) // num_generations,
            advantages=advantages.cpu().numpy(),
            completion_ids=rows.completion_rows(output),
        )
        if not self._prunes_now:
            return prune(rollouts, KeepAll())
        exact = self.args.weighting == "exact"
        return prune(
            rollouts,
            self._rule,
            # Refill rows weigh nothing under "exact": they would only cost time.
            multiple_of=1 if exact else self._windows,
            weighting=self.args.weighting,
            seed=(self.args.seed, self._generation_step),
            drop_uninformative=self.args.drop_uninformative,
        )

    # -- micro-batches ----------------------------------------------------------------------

    @property
    def _micro_batches_per_window(self) -> int:
        return min(self.args.steps_per_generation, self.args.gradient_accumulation_steps)

    @property
    def _windows(self) -> int:
        return self.args.steps_per_generation // self._micro_batches_per_window

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, with its split of the generation batch replaced by one of the kept rows."""
        with self._phase("other"):
            return self._next_micro_batch(generation_batch)

    def _next_micro_batch(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        starts = self.at_generation_boundary or self._buffered_inputs is None
        if starts and self._prunes_now:
            output = self._generate_and_score_completions(generation_batch)
            assert self._selection is not None
            with disable_gradient_checkpointing(
                self.model, self.args.gradient_checkpointing_kwargs
            ):
                self._buffered_inputs = self._micro_batches(output, self._selection)
        elif starts:
            return super()._prepare_inputs(generation_batch)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _micro_batches(self, output: dict[str, Any], selection: Selection) -> list[dict[str, Any]]:
        """The kept rows as `steps_per_generation` micro-batches, with their deferred log-probs."""
        args = self.args
        full = weights.BatchTotals(
            rows.num_rows(output), float(rows.loss_mask(output).sum().item())
        )
        kept = rows.select_rows(output, selection.keep)
        plan = rows.plan_micro_batches(
            rows.token_counts(kept),
            self._windows,
            self._micro_batches_per_window,
            args.per_device_train_batch_size,
            np.random.default_rng((args.seed, self._generation_step)),
        )
        tokens_K = rows.loss_mask(kept).sum(dim=1)
        device = tokens_K.device
        exact = args.weighting == "exact"
        prepared = []
        for window in plan:
            in_window = np.concatenate(window)
            totals = weights.BatchTotals(len(in_window), float(tokens_K[in_window].sum()))
            for part in window:
                if not len(part):
                    prepared.append({SHARE_KEY: weights.MicroBatchShare(rows=0)})
                    continue
                micro = rows.trim_padding(rows.select_rows(kept, part))
                micro["num_items_in_batch"] = weights.items_in_batch(
                    args.weighting, totals, output["num_items_in_batch"], self._windows
                )
                mine = weights.BatchTotals(len(part), float(tokens_K[part].sum()))
                row_weights = torch.as_tensor(selection.weights[part], device=device)
                micro[SHARE_KEY] = weights.MicroBatchShare(
                    rows=len(part),
                    loss_factor=weights.loss_factor(
                        self.loss_type,
                        args.weighting,
                        mine,
                        totals,
                        full,
                        self._windows,
                        self._micro_batches_per_window,
                    ),
                    weights_R=row_weights if exact else None,
                )
                self._add_deferred_logps(micro)
                prepared.append(micro)
        return prepared

    @torch.no_grad()
    def _add_deferred_logps(self, micro: dict[str, Any]) -> None:
        """Compute the log-probs that TRL asked for while scoring, on the rows of a micro-batch."""
        ids = torch.cat([micro["prompt_ids"], micro["completion_ids"]], dim=1)
        mask = torch.cat([micro["prompt_mask"], micro["completion_mask"]], dim=1)
        known = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        forward = {key: micro[key] for key in known if key in micro}
        # TRL asks for the old log-probs first and for the reference's last, each only if needed.
        for index, model in enumerate(self._deferred_models):
            is_reference = self.beta != 0.0 and index == len(self._deferred_models) - 1
            name = "ref_per_token_logps" if is_reference else "old_per_token_logps"
            context = self._reference_adapter() if is_reference else nullcontext()
            before = self.clock.total("old_logps")
            with context:
                micro[name], _, _ = self._get_per_token_logps_and_entropies(
                    model, ids, mask, micro["completion_ids"].size(1), **forward
                )
            if is_reference and model is not self.ref_model:
                seconds = self.clock.total("old_logps") - before
                self.clock.move("old_logps", "ref_logps", seconds)

    def _reference_adapter(self) -> Any:
        """With PEFT the reference is the model without its adapter, or with the one named "ref"."""
        if self.ref_model is not None:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        return use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's, times the micro-batch's factor; a micro-batch without rows costs nothing."""
        share = inputs.get(SHARE_KEY)
        if share is None:
            return super()._compute_loss(model, inputs)
        if not share.rows:
            # No graph reaches a parameter: gradients stay None, and optimisers skip those.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        self._row_weights = share.weights_R
        try:
            return super()._compute_loss(model, inputs) * share.loss_factor
        finally:
            self._row_weights = None

    # -- metrics, logs, checkpoints ---------------------------------------------------------

    def _record(self, output: dict[str, Any], selection: Selection, num_generations: int) -> None:
        """Log what was generated and what is kept; tell the observers."""
        total = rows.num_rows(output)
        assert self._rewards_per_func is not None
        weighted = self._rewards_per_func.cpu() * self.reward_weights.cpu()
        reward_N = weighted.nansum(dim=1).double().numpy()
        reward_N[weighted.isnan().all(dim=1).numpy()] = np.nan
        logged = self._logs
        record = GenerationRecord(
            step=self.state.global_step,
            generation_step=self._generation_step,
            num_generations=num_generations,
            prompts=[as_text(messages) for messages in list(logged["prompt"])[-total:]],
            completions=[as_text(messages) for messages in list(logged["completion"])[-total:]],
            rewards={
                name: self._rewards_per_func[:, index].double().cpu().numpy()
                for index, name in enumerate(self.reward_func_names)
            },
            reward_N=reward_N,
            advantages_N=np.asarray(list(logged["advantages"])[-total:], dtype=np.float64),
            selection=selection,
        )
        if self._schedule is not None:
            self._schedule.record(selection.kept_per_group)
        for name, value in record.metrics().items():
            self._metrics["train"][name].append(value)
        self._log_selection_columns(total, record)
        for observer in self.rollout_observers:
            observer(record)

    def _log_selection_columns(self, total: int, record: GenerationRecord | None) -> None:
        """Two columns for TRL's completions table; empty for rows of an evaluation."""
        kept = record.kept_N.tolist() if record else [None] * total
        reason = record.selection.reason.tolist() if record else [None] * total
        self._logs["extra"]["kept"].extend(kept)
        self._logs["extra"]["reason"].extend(reason)

    def log_phase_times(self) -> None:
        """Append the seconds of each phase since the last call to TRL's metrics."""
        for name, seconds in self.clock.lap().items():
            if name not in OUTSIDE_PHASES or seconds:
                self._metrics["train"][f"fastrl/time/{name}"].append(seconds)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """The host's, timed apart from training."""
        with self.clock.phase("evaluate"):
            return super().evaluate(*args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's, with FastRL's state in the same folder, timed apart from training."""
        with self.clock.phase("checkpoint"):
            if self.args.should_save:
                name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
                schedule = self._schedule.state_dict() if self._schedule else self._schedule_state
                # First, so that a checkpoint with a trainer state (written last) is complete.
                folder = Path(self._get_output_dir(trial=trial)) / name
                write_state(folder, self._generation_step, schedule)
            super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """TRL's, with FastRL's state: the rollout schedule goes on where it was."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        step = checkpoint_step(Path(checkpoint))
        if self._prunes and step % self._updates_per_generation:
            raise ValueError(
                f"{checkpoint}: step {step} lies inside a generation batch "
                f"({self._updates_per_generation} updates), whose rollouts are gone; resume from "
                "an earlier checkpoint."
            )
        state = read_state(Path(checkpoint))
        # A checkpoint of plain TRL has no state of ours: its generations can be counted.
        self._generation_step = step // self._updates_per_generation
        if state is not None:
            self._generation_step = state["generation_step"]
            self._schedule_state = state["schedule"]
        self._schedule = None

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, timed; generation and scoring inside it keep their own clocks."""
        with self.clock.phase("update"):
            return super().training_step(*args, **kwargs)


def with_fastrl(trainer_class: type) -> type:
    """Wrap a GRPO trainer class: the same trainer, pruning its rollouts.

    Args:
        trainer_class: TRL's GRPOTrainer or a subclass. Its config must carry FastRL's fields:
            use `FastGRPOConfig`, or mix `FastRLArguments` into your own config class.

    Returns:
        A subclass of both; checkpoints it writes load without FastRL.

    Raises:
        TypeError: it is no GRPOTrainer, or overrides a method that pruning would bypass.
        HostVersionError: TRL has moved a seam.
    """
    if not (isinstance(trainer_class, type) and issubclass(trainer_class, GRPOTrainer)):
        raise TypeError(f"with_fastrl wraps subclasses of trl.GRPOTrainer, not {trainer_class!r}.")
    check_seams(trainer_class, trl.trainer.utils)
    if issubclass(trainer_class, FastRLMixin):
        return trainer_class
    bypassed = overridden_seams(trainer_class)
    if bypassed:
        raise TypeError(
            f"{', '.join(bypassed)} would be bypassed: FastRL splits the generation batch itself. "
            "Move what it does into _generate_and_score_completions or _compute_loss."
        )
    return type(f"Fast{trainer_class.__name__}", (FastRLMixin, trainer_class), {})


class FastGRPOTrainer(FastRLMixin, GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer with FastRL; takes the same arguments, and a `FastGRPOConfig`."""
