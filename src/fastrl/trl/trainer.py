"""The TRL host: GRPO that prunes its rollouts before any log-prob is computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import trl.trainer.utils
from accelerate.utils import gather_object  # type: ignore[import-untyped,unused-ignore]
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from fastrl.core import KeepAll, Selection
from fastrl.trl.batch import num_rows
from fastrl.trl.callbacks import GenerationBoundaryCallback, PhaseClockCallback
from fastrl.trl.config import FastGRPOConfig, FastRLArguments, build_rule
from fastrl.trl.phases import OUTSIDE_PHASES, PhaseClock
from fastrl.trl.record import GenerationRecord, as_text, weighted_rewards
from fastrl.trl.resuming import ResumableMixin
from fastrl.trl.selecting import full_group_advantages, select_rollouts
from fastrl.trl.splitting import SHARE_KEY, SplitPlan, split_kept_rows
from fastrl.trl.validation import given_argument, model_problems, raise_run_problems, run_problems
from fastrl.trl.versions import check_seams
from fastrl.trl.weighting import weigh_gradient


class FastRLMixin(ResumableMixin):
    """What FastRL adds to a GRPO trainer; put before the trainer class by `with_fastrl`.

    The only changes: rows are dropped before generation when the schedule says so; log-probs asked
    for during generation and scoring wait until pruning has been done; the kept rows are dealt to
    the same number of updates; and a micro-batch's loss is scaled so that unequal ones add up to
    the right mean. With prune_rule="none" only clocks and metrics are added, and a resumed run
    goes on with the order of prompts of its epoch. The loss in the log is that of the kept rows;
    under weighting="exact" the weights act on its gradient, not on this number.

    Attributes:
        rollout_observers: each is called with the `GenerationRecord` of every training batch.

    Raises:
        TypeError: the config lacks FastRL's fields.
        ValueError: lists everything about the run that pruning cannot do.
        HostVersionError: TRL has moved a seam.
    """

    num_generations: int
    _buffered_inputs: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_seams(GRPOTrainer, trl.trainer.utils)
        behind = type(self).__mro__[type(self).__mro__.index(ResumableMixin) + 1 :]
        config = given_argument(behind, "args", args, kwargs)
        if config is None:
            config = kwargs["args"] = FastGRPOConfig(output_dir="fastrl-output")
        if not isinstance(config, FastRLArguments):
            raise TypeError(
                f"args is a {type(config).__name__}; FastRL's fields are missing. Use "
                "FastGRPOConfig, or mix FastRLArguments into your config class."
            )
        self._rule = build_rule(config)
        if self._prunes:
            dataset = given_argument(behind, "train_dataset", args, kwargs)
            raise_run_problems(run_problems(config, dataset))
        self.rollout_observers: list[Callable[[GenerationRecord], None]] = []
        self._deferring = False
        self._deferred_models: list[Any] = []
        self._rewards_per_func: torch.Tensor | None = None
        self._completion_ids: list[npt.NDArray[np.int64]] = []
        self._selection: Selection | None = None
        self._row_weights: torch.Tensor | None = None
        self._rows_in_update = 0
        self._skipped_updates = 0
        super().__init__(*args, **kwargs)
        self.clock = PhaseClock(self._synchronize)
        if self._prunes:
            raise_run_problems(model_problems(self))
        self.add_callback(GenerationBoundaryCallback(self, self._updates_per_generation))
        self.add_callback(PhaseClockCallback(self))

    @property
    def at_generation_boundary(self) -> bool:
        """Whether every rollout of the last generation batch has been used."""
        return bool(self._step % self._micro_steps_per_generation == 0)

    def _synchronize(self) -> None:
        if self.accelerator.device.type != "cpu":
            torch.accelerator.synchronize()

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return self.clock.phase(name if self.model.training else "evaluate")

    # -- how many rollouts ------------------------------------------------------------------

    @contextmanager
    def _generations(self, count: int) -> Iterator[None]:
        """TRL's group size for one call; its data loader keeps the configured one."""
        configured = self.num_generations
        self.num_generations = count
        try:
            yield
        finally:
            self.num_generations = configured

    # -- generation, rewards, pruning -------------------------------------------------------

    def _tokenize_prompts(self, prompts: Any) -> Any:
        """TRL's; rows without a picture get an empty list, where its None makes processors fail."""
        prompt_ids, images, multimodal_fields = super()._tokenize_prompts(prompts)
        if images is not None:
            images = [pictures or [] for pictures in images]
        return prompt_ids, images, multimodal_fields

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, timed."""
        with self._phase("generate"):
            return super()._generate(*args, **kwargs)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """TRL's, timed; rewards and token ids of the full group are kept for pruning."""
        self._completion_ids = [np.asarray(ids, dtype=np.int64) for ids in completion_ids_list]
        with self._phase("reward"):
            rewards: torch.Tensor = super()._calculate_rewards(
                inputs, prompts, completions, completion_ids_list
            )
        self._rewards_per_func = rewards
        return rewards

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's; deferred while a generation batch is scored, weighted during an update."""
        if self._deferring:
            self._deferred_models.append(model)
            return None, None, None
        if torch.is_grad_enabled():
            logps, *others = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
            return weigh_gradient(logps, self._row_weights), *others
        phase = "ref_logps" if model is self.ref_model else "old_logps"
        with self._phase(phase):
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, on fewer rows when the schedule says so; log-probs wait until after pruning."""
        if not self.model.training:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            self._log_selection_columns(num_rows(output), None)
            return output
        count = self._rollouts_per_prompt()
        configured = self.args.num_generations
        inputs = [row for index, row in enumerate(inputs) if index % configured < count]
        self._clear_logged_completions()
        self._rewards_per_func = None
        self._deferring, self._deferred_models = self._prunes_now, []
        try:
            with self._generations(count):
                output = super()._generate_and_score_completions(inputs)
        finally:
            self._deferring = False
        if self._rewards_per_func is None or num_rows(output) != len(inputs):
            raise ValueError(
                f"{type(self).__name__} returned {num_rows(output)} rollouts for {len(inputs)} "
                "rows; FastRL needs one per row, scored by TRL's _calculate_rewards."
            )
        with self.clock.phase("prune"):
            self._selection = self._select(output, count)
        self._record(output, self._selection, count, self._rewards_per_func)
        self._generation_step += 1
        return output

    def _select(self, output: dict[str, Any], num_generations: int) -> Selection:
        args = self.args
        if not self._prunes_now:
            return select_rollouts(output, self._completion_ids, num_generations, KeepAll())
        return select_rollouts(
            output,
            self._completion_ids,
            num_generations,
            self._rule,
            # Refill rows weigh nothing under "exact": they would only cost time.
            multiple_of=1 if args.weighting == "exact" else self._split_plan.windows,
            weighting=args.weighting,
            seed=(args.seed, self._generation_step),
            drop_uninformative=args.drop_uninformative,
        )

    # -- micro-batches ----------------------------------------------------------------------

    @property
    def _split_plan(self) -> SplitPlan:
        args = self.args
        micro_batches = min(args.steps_per_generation, args.gradient_accumulation_steps)
        return SplitPlan(
            loss_type=self.loss_type,
            weighting=args.weighting,
            windows=args.steps_per_generation // micro_batches,
            micro_batches=micro_batches,
            max_rows=args.per_device_train_batch_size,
            pad_to_multiple_of=self.pad_to_multiple_of or 1,
        )

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, with its split of the generation batch replaced by one of the kept rows."""
        with self._phase("other"):
            return self._next_micro_batch(generation_batch)

    def _next_micro_batch(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        starts = self.at_generation_boundary or self._buffered_inputs is None
        if starts and not self._prunes_now:
            return super()._prepare_inputs(generation_batch)
        if starts:
            self._buffered_inputs = self._new_micro_batches(generation_batch)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _new_micro_batches(self, generation_batch: Any) -> list[dict[str, Any]]:
        """Generate, prune and split; then the deferred log-probs, on kept rows alone."""
        args, step = self.args, self._generation_step
        output = self._generate_and_score_completions(generation_batch)
        if self._selection is None:
            raise RuntimeError(f"{type(self).__name__}: the generation batch was not selected.")
        prompt_lengths_N = output["prompt_mask"].sum(dim=1).cpu().numpy()
        lengths_N = prompt_lengths_N + np.array([len(ids) for ids in self._completion_ids])
        rng = np.random.default_rng((args.seed, step))
        micro_batches = split_kept_rows(output, self._selection, lengths_N, self._split_plan, rng)
        with disable_gradient_checkpointing(self.model, args.gradient_checkpointing_kwargs):
            for micro in micro_batches:
                if micro[SHARE_KEY].rows:
                    self._add_deferred_logps(micro)
        return micro_batches

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
            self._rows_in_update += num_rows(inputs)
            whole: torch.Tensor = super()._compute_loss(model, inputs)
            return whole
        self._rows_in_update += share.rows
        if not share.rows:
            # No graph reaches a parameter: gradients stay None, and optimisers skip those.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        self._row_weights = share.weights_R
        try:
            loss: torch.Tensor = super()._compute_loss(model, inputs) * share.loss_factor
        finally:
            self._row_weights = None
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's, timed; generation and scoring inside it keep their own clocks."""
        with self.clock.phase("update"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        return loss

    # -- metrics and logs --------------------------------------------------------------------

    def _record(
        self,
        output: dict[str, Any],
        selection: Selection,
        num_generations: int,
        rewards_per_func: torch.Tensor,
    ) -> None:
        """Log what was generated and what is kept; tell the observers."""
        total, logged = num_rows(output), self._logs
        # TRL gathers rewards and logs over all processes; a record is of this one's rows.
        first = total * self.accelerator.process_index
        mine = slice(first, first + total)
        gathered = total * self.accelerator.num_processes
        rewards_NF = rewards_per_func[mine].double().cpu().numpy()
        prompts, completions = (
            [as_text(messages) for messages in list(logged[name])[-gathered:][mine]]
            for name in ("prompt", "completion")
        )
        record = GenerationRecord(
            step=self.state.global_step,
            generation_step=self._generation_step,
            num_generations=num_generations,
            prompts=prompts,
            completions=completions,
            rewards=dict(zip(self.reward_func_names, rewards_NF.T, strict=True)),
            reward_N=weighted_rewards(rewards_NF, self.reward_weights.double().cpu().numpy()),
            advantages_N=full_group_advantages(output),
            selection=selection,
        )
        if self._schedule is not None:
            self._schedule.record(selection.kept_per_group)
        for name, value in record.metrics().items():
            self._metrics["train"][name].append(value)
        self._log_selection_columns(total, record)
        for observer in self.rollout_observers:
            observer(record)

    def _clear_logged_completions(self) -> None:
        """Leave no rows of earlier batches in TRL's table, which would be told as this batch's.

        A full batch pushes them all out; a smaller one, or one after an evaluation, does not.
        """
        logged = self._logs
        columns = [*logged["rewards"].values(), *logged["extra"].values()]
        for column in (*(logged[name] for name in ("images", "prompt", "completion")), *columns):
            column.clear()
        logged["advantages"].clear()

    def _log_selection_columns(self, total: int, record: GenerationRecord | None) -> None:
        """Two columns for TRL's completions table; empty for rows of an evaluation."""
        kept = record.kept_N.tolist() if record else [None] * total
        reason = record.selection.reason.tolist() if record else [None] * total
        self._logs["extra"]["kept"].extend(gather_object(kept))
        self._logs["extra"]["reason"].extend(gather_object(reason))

    def end_update(self) -> None:
        """Count an update that no row had a part in; its optimiser had nothing to step on."""
        self._skipped_updates += self._rows_in_update == 0
        self._rows_in_update = 0

    def log_generation_end(self) -> None:
        """Append to TRL's metrics: skipped updates and the seconds of each phase."""
        metrics = self._metrics["train"]
        metrics["fastrl/skipped_updates"].append(float(self._skipped_updates))
        self._skipped_updates = 0
        for name, seconds in self.clock.lap().items():
            if name not in OUTSIDE_PHASES or seconds:
                metrics[f"fastrl/time/{name}"].append(seconds)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, timed apart from training."""
        with self.clock.phase("evaluate"):
            return super().evaluate(*args, **kwargs)
