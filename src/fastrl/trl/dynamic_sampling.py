"""Dynamic sampling: groups without contrast give way to groups of further prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather_object  # type: ignore[import-untyped,unused-ignore]
from transformers.utils import logging

from fastrl.core import Selection
from fastrl.trl.batch import loss_mask, select_rows
from fastrl.trl.fetching import own_containers
from fastrl.trl.generating import GeneratingMixin
from fastrl.trl.prompt_stream import PromptStream
from fastrl.trl.ranks import GlobalRows, RowPlaces, full_group_advantages
from fastrl.trl.record import GenerationRecord, as_text, weighted_rewards
from fastrl.trl.scored_rounds import (
    Column,
    ScoredRound,
    groups_with_contrast,
    join_rounds,
    shareable_groups,
    with_discarded,
    without_any,
)

logger = logging.get_logger(__name__)

BoolGroups = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Resampling:
    """What dynamic sampling did for one generation batch.

    Attributes:
        rounds: further rounds of generation.
        num_generations: rollouts of a group.
        generated: rollouts generated, all rounds.
        groups_wanted, groups_accepted: groups of a full batch; those that have contrast.
        first_without_contrast: share of groups without contrast among those generated first.
        first_reward: mean reward of those generated first.
        discarded: the rows of rejected groups that are not in the batch; None without any.
    """

    rounds: int
    num_generations: int
    generated: int
    groups_wanted: int
    groups_accepted: int
    first_without_contrast: float
    first_reward: float
    discarded: ScoredRound | None

    def metrics(self) -> dict[str, float]:
        """In place of, and beside, those of the batch that is trained on."""
        used = self.groups_accepted * self.num_generations
        return {
            "fastrl/generated": float(self.generated),
            "fastrl/groups_without_contrast": self.first_without_contrast,
            "fastrl/reward": self.first_reward,
            "fastrl/resample_rounds": float(self.rounds),
            "fastrl/wasted_generation": 1 - used / self.generated,
            "fastrl/batch_filled": self.groups_accepted / self.groups_wanted,
        }


class DynamicSamplingMixin(GeneratingMixin):
    """The part of `FastRLMixin` that fills a batch with groups that teach something.

    The only changes, with dynamic_sampling: TRL's generation and scoring run again, for as many
    further prompts as groups lack contrast, until none does or `max_resamples` is reached; what
    is trained on are the groups that have some. TRL's own metrics are those of the first round.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._resampling: Resampling | None = None
        self._is_shortage_told = False
        super().__init__(*args, **kwargs)

    def _score_batch(self, inputs: list[dict[str, Any]], num_generations: int) -> dict[str, Any]:
        """The rows of accepted groups; those of the first round where no group is accepted."""
        self._resampling, self._places = None, None
        if not self.args.dynamic_sampling:
            return super()._score_batch(inputs, num_generations)
        ranks = self.accelerator.num_processes
        wanted = ranks * len(inputs) // num_generations
        first = self._scored_round(inputs)
        # Tensors of rejected rows of later rounds are let go at once.
        parts = [first.parted(self._accepted_groups(first, num_generations), num_generations)]
        asked_for = list(self._deferred_models)
        missing, ends_seen = wanted - len(parts[0][0]) // num_generations, 0
        while missing and len(parts) <= self.args.max_resamples:
            stream = self._further_prompts()
            count = shareable_groups(missing, num_generations, ranks)
            prompts, ends_seen = stream.take(count, ends_seen)
            prompts = prompts[: shareable_groups(len(prompts), num_generations, ranks)]
            if not prompts:
                break
            scored = self._further_round(self._own_rows(prompts, num_generations))
            accepted_G = self._accepted_groups(scored, num_generations)
            parts.append(scored.parted(accepted_G, num_generations))
            missing -= int(accepted_G.sum())
        self._deferred_models = asked_for
        if missing:
            self._tell_shortage(wanted - missing, wanted, len(parts) - 1)
        return self._batch_of(first, parts, num_generations)

    def _own_rows(
        self, prompts: list[dict[str, Any]], num_generations: int
    ) -> list[dict[str, Any]]:
        """This process's rows of these prompts' groups, laid out as TRL's loader does."""
        local = len(prompts) * num_generations // self.accelerator.num_processes
        first = local * self.accelerator.process_index
        return [
            own_containers(prompts[row // num_generations]) for row in range(first, first + local)
        ]

    def _scored_round(self, inputs: list[dict[str, Any]]) -> ScoredRound:
        """TRL's generation and scoring, and what it left behind for the completions table."""
        self._clear_logged_completions()
        output = self._score(inputs)
        if self._rewards_per_func is None:
            raise RuntimeError(f"{type(self).__name__}: a batch was scored without rewards.")
        logged = self._logs
        columns: dict[Column, list[Any]] = {
            (name,): list(logged[name]) for name in ("images", "prompt", "completion")
        }
        columns[("advantages",)] = list(logged["advantages"])
        for table in ("rewards", "extra"):
            columns |= {(table, name): list(column) for name, column in logged[table].items()}
        return ScoredRound(
            output=output,
            completion_ids=self._completion_ids,
            rank=self.accelerator.process_index,
            home_N=np.repeat(np.arange(self.accelerator.num_processes), len(inputs)),
            rewards_NF=self._rewards_per_func,
            advantages_N=np.array(gather_object(full_group_advantages(output).tolist())),
            pictures_N=self._pictures_N,
            columns=columns,
        )

    def _further_round(self, inputs: list[dict[str, Any]]) -> ScoredRound:
        """A round whose metrics are not logged: means over rounds of other sizes mean nothing."""
        metrics = self._metrics["train"]
        self._metrics["train"] = defaultdict(list)
        try:
            return self._scored_round(inputs)
        finally:
            if "num_tokens" in self._metrics["train"]:  # a running total
                metrics["num_tokens"] = self._metrics["train"]["num_tokens"]
            self._metrics["train"] = metrics

    def _accepted_groups(self, scored: ScoredRound, num_generations: int) -> BoolGroups:
        contrast = self.args.contrast
        reward = None if contrast == "sum" else self.reward_func_names.index(contrast)
        return groups_with_contrast(scored, num_generations, reward)

    def _batch_of(
        self,
        first: ScoredRound,
        parts: Sequence[tuple[ScoredRound, ScoredRound]],
        num_generations: int,
    ) -> dict[str, Any]:
        """Make one batch of the accepted groups, as if TRL had generated it in one go."""
        pad_token_id = self._tokenizer.pad_token_id
        batch = join_rounds([accepted for accepted, _ in parts], pad_token_id)
        rejected = [part for _, part in parts]
        num_accepted = len(batch)
        if not num_accepted:
            # Something has to stand for the batch: the first round, of which nothing is kept.
            batch, rejected = first, rejected[1:]
        discarded = join_rounds(rejected, pad_token_id) if rejected else None
        self._resampling = Resampling(
            rounds=len(parts) - 1,
            num_generations=num_generations,
            generated=sum(len(accepted) + len(rejected) for accepted, rejected in parts),
            groups_wanted=len(first) // num_generations,
            groups_accepted=num_accepted // num_generations,
            first_without_contrast=len(parts[0][1]) / len(first),
            first_reward=float(np.nanmean(self._summed_rewards(first))),
            discarded=discarded if discarded is not None and len(discarded) else None,
        )
        self._places = RowPlaces.in_order(batch.home_N)
        output, self._completion_ids = batch.output, batch.completion_ids
        items = loss_mask(output).sum() if output else torch.zeros((), dtype=torch.long)
        if not output:
            # No accepted row is here: something has to stand for a row that nobody refers to.
            output = select_rows(first.output, np.array([0]))
            self._completion_ids = first.completion_ids[:1]
        self._rewards_per_func = batch.rewards_NF
        self._pictures_N = batch.pictures_N
        self._restore_logged(batch)
        items = items.to(self.accelerator.device)
        return output | {"num_items_in_batch": self.accelerator.gather(items).sum()}

    def _summed_rewards(self, scored: ScoredRound) -> npt.NDArray[np.float64]:
        return weighted_rewards(
            scored.rewards_NF.double().cpu().numpy(), self.reward_weights.double().cpu().numpy()
        )

    def _restore_logged(self, batch: ScoredRound) -> None:
        """Let TRL's completions table hold the batch that is trained on."""
        self._clear_logged_completions()
        for name, values in batch.columns.items():
            column = self._logs
            for part in name:
                column = column[part]
            column.extend(values)

    def _tell_shortage(self, accepted: int, wanted: int, rounds: int) -> None:
        """Say once that a batch is not full."""
        if self._is_shortage_told or not self.accelerator.is_main_process:
            return
        self._is_shortage_told = True
        logger.warning(
            f"Dynamic sampling: {accepted} of {wanted} groups have contrast after {rounds} further "
            "rounds (max_resamples, or every prompt tried); training goes on with those. This is "
            "said once: fastrl/batch_filled tells it of every batch."
        )

    def _select(self, rows: GlobalRows, num_generations: int) -> Selection:
        selection = super()._select(rows, num_generations)
        sampled = self._resampling
        if sampled is not None and not sampled.groups_accepted:
            return without_any(selection)
        return selection

    def _metrics_of(self, record: GenerationRecord) -> dict[str, float]:
        metrics = super()._metrics_of(record)
        return metrics | self._resampling.metrics() if self._resampling is not None else metrics

    def _told_record(self, record: GenerationRecord) -> GenerationRecord:
        """The record with the discarded rows behind the batch's own: observers see everything."""
        discarded = self._resampling.discarded if self._resampling is not None else None
        if discarded is None:
            return record
        rewards_NF = discarded.rewards_NF.double().cpu().numpy()
        names = self.reward_func_names
        return replace(
            record,
            prompts=record.prompts + [as_text(text) for text in discarded.columns[("prompt",)]],
            completions=record.completions
            + [as_text(text) for text in discarded.columns[("completion",)]],
            rewards={
                name: np.append(record.rewards[name], values)
                for name, values in zip(names, rewards_NF.T, strict=True)
            },
            reward_N=np.append(record.reward_N, self._summed_rewards(discarded)),
            advantages_N=np.append(record.advantages_N, discarded.advantages_N),
            selection=with_discarded(record.selection, len(discarded), record.num_generations),
            pictures_G=record.pictures_G + tuple(discarded.pictures_N[:: record.num_generations]),
        )

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """TRL's, with the place in the walk over the training set."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.args.dynamic_sampling:
            self._further_prompts()

    # -- further prompts ---------------------------------------------------------------------

    def _further_prompts(self) -> PromptStream:
        """The walk over the training set, where the checkpoint left it.

        Raises:
            ValueError: the position in the checkpoint is malformed or of other data.
        """
        if self._prompt_stream is None:
            dataset = self.train_dataset
            if self.args.remove_unused_columns:
                dataset = self._remove_unused_columns(dataset, description="resampling")
            stream = PromptStream(dataset, self.args.seed)
            if self._prompt_stream_state is not None:
                try:
                    stream.load_state_dict(self._prompt_stream_state)
                except ValueError as error:
                    raise ValueError(f"{self._state_file}: {error}") from error
            self._prompt_stream = stream
        return self._prompt_stream
