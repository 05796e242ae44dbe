"""A generation batch: fewer rollouts when the schedule says so, and which of them are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather_object  # type: ignore[import-untyped,unused-ignore]
from datasets import Dataset

from fastrl.core import KeepAll, Selection
from fastrl.trl.batch import num_rows
from fastrl.trl.fetching import FetchedOnce
from fastrl.trl.planning import SplitPlan
from fastrl.trl.prompting import prompts_once
from fastrl.trl.ranks import GlobalRows, RowPlaces, gather_rows
from fastrl.trl.record import row_pictures
from fastrl.trl.scoring import ScoringMixin
from fastrl.trl.selecting import select_rollouts


class GeneratingMixin(ScoringMixin):
    """The part of `FastRLMixin` around TRL's generation, rewards and advantages."""

    num_generations: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._rewards_per_func: torch.Tensor | None = None
        self._completion_ids: list[npt.NDArray[np.int64]] = []
        self._pictures_N: list[tuple[Any, ...]] = []
        self._rows: GlobalRows | None = None
        self._places: RowPlaces | None = None
        self._selection: Selection | None = None
        super().__init__(*args, **kwargs)

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Any = None,
        is_training: bool = False,
        dataloader_key: str | None = None,
    ) -> Any:
        """The host's; where batches are split here, training rows are read once per prompt."""
        # A stream is repeated by TRL itself, which reads it once.
        if is_training and self._splits and isinstance(dataset, Dataset):
            rows = self._remove_unused_columns(dataset, description=description)
            # A sampler of the user's own may ask more of the data set than its length.
            sampler = sampler_fn and sampler_fn(rows)
            dataset, sampler_fn = FetchedOnce(rows), lambda _: sampler
        return super()._get_dataloader(
            dataset, description, batch_size, sampler_fn, is_training, dataloader_key
        )

    @contextmanager
    def _generations(self, count: int) -> Iterator[None]:
        """TRL's group size for one call; its data loader keeps the configured one."""
        configured = self.num_generations
        self.num_generations = count
        try:
            yield
        finally:
            self.num_generations = configured

    def _tokenize_prompts(self, prompts: Any) -> Any:
        """TRL's; rows without a picture get an empty list, where its None makes processors fail."""
        prompt_ids, images, multimodal_fields = super()._tokenize_prompts(prompts)
        if images is not None:
            images = [pictures or [] for pictures in images]
        return prompt_ids, images, multimodal_fields

    def _generate_single_turn(self, prompt_ids: Any, images: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's, which reads each prompt once; for vLLM rows without a picture are None.

        It looks for the first of a list.
        """
        if self.use_vllm and images is not None:
            images = [pictures or None for pictures in images]
        with self._prompts_once(images):
            return super()._generate_single_turn(prompt_ids, images, *args, **kwargs)

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

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, on fewer rows when the schedule says so; log-probs wait until after pruning."""
        if not self.model.training:
            # Whoever wants rewards alone never asks for what is noted down here.
            with self._deferred_logps(self._rewards_alone):
                output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            empty = gather_object([None] * num_rows(output))
            self._log_selection_columns(empty, empty)
            return output
        count = self._rollouts_per_prompt()
        configured = self.args.num_generations
        inputs = [row for index, row in enumerate(inputs) if index % configured < count]
        with self._deferred_logps(self._splits_now), self._generations(count):
            output = self._score_batch(inputs, count)
        if self._rewards_per_func is None:
            raise RuntimeError(f"{type(self).__name__}: a batch was scored without rewards.")
        with self.clock.phase("prune"):
            self._rows = gather_rows(output, self._completion_ids, gather_object, self._places)
            self._selection = self._select(self._rows, count)
        pictures_G = tuple(self._pictures_N[::count])
        self._record(self._rows, self._selection, count, self._rewards_per_func, pictures_G)
        self._generation_step += 1
        return output

    def _score_batch(self, inputs: list[dict[str, Any]], num_generations: int) -> dict[str, Any]:
        """TRL's generation and scoring of the batch; dynamic sampling does it in rounds."""
        self._clear_logged_completions()
        return self._score(inputs)

    def _score(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's generation and scoring of some rows, once; equal prompts are processed once."""
        self._rewards_per_func = None
        # A rollout function may ask for more of the processor than it has methods: its class.
        with nullcontext() if self.rollout_func else prompts_once(self):
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._rewards_per_func is None or num_rows(output) != len(inputs):
            raise ValueError(
                f"{type(self).__name__} returned {num_rows(output)} rollouts for {len(inputs)} "
                "rows; FastRL needs one per row, scored by TRL's _calculate_rewards."
            )
        self._pictures_N = self._pictures_of(inputs)
        return output

    def _pictures_of(self, inputs: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        """Per row its prompt's pictures; on several processes TRL's, with `log_multimodal`."""
        if self.accelerator.num_processes == 1:
            return [row_pictures(row) for row in inputs]
        gathered = [tuple(pictures or ()) for pictures in self._logs["images"]]
        return gathered or [()] * (len(inputs) * self.accelerator.num_processes)

    def _select(self, rows: GlobalRows, num_generations: int) -> Selection:
        """What is kept of the rows of all processes: every one of them finds the same."""
        args = self.args
        if not self._prunes_now:
            return select_rollouts(rows, num_generations, KeepAll())
        return select_rollouts(
            rows,
            num_generations,
            self._rule,
            # Refill rows weigh nothing under "exact": they would only cost time.
            multiple_of=1 if args.weighting == "exact" else self._updates_times_ranks,
            weighting=args.weighting,
            seed=(args.seed, self._generation_step),
            drop_uninformative=args.drop_uninformative,
        )

    @property
    def _updates_times_ranks(self) -> int:
        return self._split_plan.windows * self._split_plan.ranks

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
            pad_token_id=self._tokenizer.pad_token_id,
            ranks=self.accelerator.num_processes,
            rank=self.accelerator.process_index,
            fills_all=self.is_deepspeed_enabled,
            spans_batches=args.gradient_accumulation_steps > args.steps_per_generation,
            keeps_groups=self._keeps_groups,
        )
