"""Log-probs behind shared prefixes: the rollouts of a prompt, and one copy of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakSet

import torch
from transformers.utils import logging
from trl import GRPOTrainer

from fastrl.trl.group_dealing import LEAST_RATIO
from fastrl.trl.measuring import MeasuringMixin
from fastrl.trl.shared_prefix.attention import let_calls_choose
from fastrl.trl.shared_prefix.forms import build_form, model_form
from fastrl.trl.shared_prefix.pictures import RowPictures
from fastrl.trl.shared_prefix.prompts_once import prompts_once
from fastrl.trl.shared_prefix.scoring import Chunk, score_packed
from fastrl.trl.shared_prefix.support import bare_model, why_not_inputs, why_not_model
from fastrl.trl.shared_prefix.tally import SharingTally, sharing_metrics

logger = logging.get_logger(__name__)

SCORING = "_get_per_token_logps_and_entropies"


def overriding_class(trainer_class: type) -> str | None:
    """Name of a class between this mixin and TRL's trainer that scores its own way, if any."""
    mro = trainer_class.__mro__
    behind = mro[mro.index(SharedPrefixMixin) + 1 : mro.index(GRPOTrainer)]
    return next((owner.__name__ for owner in behind if SCORING in vars(owner)), None)


class SharedPrefixMixin(MeasuringMixin):
    """The part of `FastRLMixin` that computes log-probs, of every pass.

    The only change: where it is exact and pays, rows of one prompt go through the model behind one
    copy of the prompt and its pictures. All else goes TRL's way, and is counted.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._training_tally = SharingTally()
        self._reasons_told: set[str] = set()
        self._decoders: WeakSet[torch.nn.Module] = WeakSet()
        # Whether the generation batch at hand is split here, not by TRL.
        self._splits_batch = False
        super().__init__(*args, **kwargs)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **inputs: Any,
    ) -> Any:
        """TRL's, chunk by chunk behind shared prefixes."""
        batch_size = batch_size or input_ids.size(0)
        shares, pictures, pixels = self._shares_prefixes, None, inputs.get("pixel_values")
        if shares:
            why_not = self._why_not_shared(model, input_ids, attention_mask, logits_to_keep, inputs)
            if why_not is None and pixels is not None:
                pictures = RowPictures.of(
                    pixels, inputs.get("image_grid_thw"), inputs["num_images"]
                )
                why_not = "pixels laid out otherwise" if pictures is None else None
            if why_not is not None:
                self._tell_fallback(why_not)
                self._tally.add_fallback(-(-len(input_ids) // batch_size))
                shares = False
        if not shares:
            return super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                **inputs,
            )
        kinds = inputs.get("mm_token_type_ids")
        logps: list[torch.Tensor] = []
        entropies: list[torch.Tensor] = []
        for start in range(0, len(input_ids), batch_size):
            rows = range(start, min(start + batch_size, len(input_ids)))
            chunk = Chunk(
                input_ids[rows.start : rows.stop],
                attention_mask[rows.start : rows.stop],
                logits_to_keep,
                None if pictures is None else pictures.select(rows),
                None if kinds is None else kinds[rows.start : rows.stop],
            )
            of_chunk, entropies_of_chunk = self._score_chunk(model, chunk, compute_entropy)
            logps.append(of_chunk)
            if entropies_of_chunk is not None:
                entropies.append(entropies_of_chunk)
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None

    @property
    def _tally(self) -> SharingTally:
        """Counts the pass at hand; an evaluation's is thrown away.

        The policy's mode tells them apart, as in TRL: old and reference passes leave it alone.
        """
        return self._training_tally if self.model.training else SharingTally()

    @property
    def _shares_prefixes(self) -> bool:
        """Whether prefixes may be shared: "auto" leaves a batch that is TRL's own untouched."""
        wanted = self.args.shared_prefix
        return bool(wanted is True or (wanted == "auto" and self._splits_batch))

    def _prompts_once(self, images: Any) -> AbstractContextManager[None]:
        """Within it generation by transformers reads each prompt once, where that is exact.

        Not where weights are gathered layer by layer: every process would have to make the same
        number of forward passes.
        """
        is_sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if self.use_vllm or is_sharded or not self._can_share:
            return nullcontext()
        bare = bare_model(self.accelerator.unwrap_model(self.model))
        return prompts_once(bare, None if images is None else [len(row or ()) for row in images])

    @property
    def _keeps_groups(self) -> str | bool:
        """The setting, for the split: nothing is gained by it where the model cannot share."""
        return self.args.shared_prefix if self._can_share else False

    @property
    def _can_share(self) -> bool:
        """Whether prefixes may be shared, and this model can share them."""
        return self._shares_prefixes and self._why_not_model(self.model) is None

    def _why_not_shared(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        inputs: dict[str, Any],
    ) -> str | None:
        why_not = self._why_not_model(model)
        if why_not is not None:
            return why_not
        config = bare_model(self.accelerator.unwrap_model(model)).config
        ids, mask = input_ids.cpu(), attention_mask.cpu()
        return why_not_inputs(config, ids, mask, logits_to_keep, inputs)

    def _why_not_model(self, model: Any) -> str | None:
        overriding = overriding_class(type(self))
        if overriding is not None:
            return f"{overriding}.{SCORING} would be bypassed"
        if self.args.use_liger_kernel:
            return "Liger's kernels were not tested"
        if self.args.torch_compile:
            return "torch.compile: a packed row has another length every time"
        return why_not_model(self.accelerator.unwrap_model(model))

    def _score_chunk(
        self, model: Any, chunk: Chunk, compute_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(B, C) log-probs and entropies of a chunk, TRL's way where sharing does not pay."""
        packing = chunk.pack()
        if self.args.shared_prefix == "auto" and packing.ratio < LEAST_RATIO:
            self._tally.add_unpaid()
            return self._score_as_host(model, chunk, compute_entropy)
        if not packing.saves:
            # Asked for, and nothing to share: not counted among the chunks that could have been.
            return self._score_as_host(model, chunk, compute_entropy)
        self._tally.add_shared(packing.host_tokens, len(packing.source_T))
        bare = bare_model(self.accelerator.unwrap_model(model))
        decoder = bare.get_decoder()
        if decoder not in self._decoders:
            let_calls_choose(decoder)
            self._decoders.add(decoder)
        with self.accelerator.autocast():
            return score_packed(
                model,
                chunk,
                packing,
                build_form(self._form_name(bare, chunk.input_ids.device), packing.layout),
                getattr(bare.model, "get_rope_index", None),
                compute_entropy,
            )

    def _form_name(self, bare: Any, device: torch.device) -> str:
        is_half = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type) if is_half else bare.dtype
        return model_form(bare.config, device, dtype, bare.training)

    def _score_as_host(
        self, model: Any, chunk: Chunk, compute_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        inputs: dict[str, Any] = {"mm_token_type_ids": chunk.mm_token_type_ids}
        if chunk.pictures is not None:
            # TRL's cuts need the counts also where no row has a picture.
            inputs |= {"num_images": chunk.pictures.num_images, **chunk.pictures.inputs()}
        logps, entropies, _ = super()._get_per_token_logps_and_entropies(
            model,
            chunk.input_ids,
            chunk.attention_mask,
            chunk.completion_width,
            None,
            compute_entropy,
            **inputs,
        )
        return logps, entropies

    def _tell_fallback(self, why_not: str) -> None:
        """Say once why prefixes are not shared."""
        if why_not in self._reasons_told or not self.accelerator.is_main_process:
            return
        self._reasons_told.add(why_not)
        logger.warning(
            f"shared_prefix: {why_not}; log-probs go TRL's way, every prompt once per rollout. "
            "This is said once; fastrl/shared_prefix_fallback counts it."
        )

    def log_generation_end(self) -> None:
        """Append what was shared on all processes, too; every one of them has to call it."""
        super().log_generation_end()
        # The setting and the step decide: a sum on every process, or on none.
        if not self._shares_prefixes:
            return
        counts = torch.tensor(self._training_tally.lap(), device=self.accelerator.device)
        of_all = self.accelerator.reduce(counts, reduction="sum")
        for name, value in sharing_metrics(of_all.tolist()).items():
            self._metrics["train"][name].append(value)
