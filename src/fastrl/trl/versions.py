"""Which TRL this host fits, in one place: the version range and every seam that it uses."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from fastrl.core.seams import HostVersionError, moved_seams

MINIMUM_TRL = "1.16.0"
BELOW_TRL = "1.17"
REMEDY = f'install a version that works: pip install "trl>={MINIMUM_TRL},<{BELOW_TRL}"'
# What that TRL asks for with use_vllm=True; FastRL itself imports nothing of it.
MINIMUM_VLLM = "0.22.0"
MAXIMUM_VLLM = "0.31.0"

# Every method of TRL's GRPOTrainer that the mixin overrides or calls, with the parameters it
# relies on. The canary test and `fastrl doctor` read the same table.
TRAINER_SEAMS: dict[str, tuple[str, ...]] = {
    "_prepare_inputs": ("generation_batch",),
    "_generate_and_score_completions": ("inputs",),
    "_generate": ("prompts",),
    "_generate_single_turn": ("prompt_ids", "images"),
    "_tokenize_prompts": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
        "pixel_values",
        "image_grid_thw",
        "num_images",
        "mm_token_type_ids",
    ),
    "_compute_loss": ("model", "inputs"),
    "training_step": ("model", "inputs", "num_items_in_batch"),
    "prediction_step": ("model", "inputs"),
    "evaluate": ("eval_dataset",),
    "_save_checkpoint": ("model", "trial"),
    "_load_from_checkpoint": ("resume_from_checkpoint",),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_get_train_sampler": ("dataset",),
    "_get_dataloader": ("dataset", "description", "sampler_fn", "is_training"),
    "_remove_unused_columns": ("dataset", "description"),
    "_get_output_dir": ("trial",),
}
# What the mixin reads or writes on a trainer whose `__init__` has run; the canary test builds one.
TRAINER_ATTRIBUTES = (
    "_buffered_inputs",
    "_is_vlm",
    "_logs",
    "_metrics",
    "_step",
    "_tokenizer",
    "accelerator",
    "aux_loss_enabled",
    "beta",
    "is_deepspeed_enabled",
    "is_fsdp_enabled",
    "loss_type",
    "num_generations",
    "num_iterations",
    "pad_to_multiple_of",
    "processing_class",
    "ref_model",
    "reward_func_names",
    "reward_weights",
    "rollout_func",
    "use_vllm",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
)
UTILITY_SEAMS = {
    "split_pixel_values_by_grid": ("batch",),
    "unsplit_pixel_values_by_grid": ("batch",),
    "RepeatSampler": ("data_source", "shuffle", "seed"),
    "use_adapter": ("model", "adapter_name"),
    # What it adds takes shifted labels too, and hands our keyword on to the text layers.
    "add_fused_lm_head": ("model", "temperature", "outputs"),
}
# Of transformers' GenerationMixin, for reading each prompt once.
GENERATION_SEAMS = {
    "generate": ("generation_config",),
    "_prepare_position_ids_for_generation": ("inputs_tensor", "model_kwargs"),
}


def check_trl_version() -> str:
    """Return the installed TRL version.

    Raises:
        HostVersionError: TRL is not installed or lies outside the range that was tested.
    """
    try:
        installed = version("trl")
    except PackageNotFoundError as error:
        raise HostVersionError("fastrl.trl needs TRL, which is not installed", REMEDY) from error
    if not Version(MINIMUM_TRL) <= Version(installed) < Version(BELOW_TRL):
        raise HostVersionError(
            f"fastrl.trl works with trl>={MINIMUM_TRL},<{BELOW_TRL}; found trl {installed}", REMEDY
        )
    return installed


def is_known_vllm(installed: str) -> bool:
    """Whether TRL supports this version of vLLM; a local segment (`+cu129`) does not count."""
    base = Version(Version(installed).base_version)
    return Version(MINIMUM_VLLM) <= base <= Version(MAXIMUM_VLLM)


def missing_seams(trainer_class: type, utilities: object, generation: type) -> list[str]:
    """Every seam of the tables above that is gone or has lost a parameter, in words.

    Args:
        trainer_class: TRL's GRPOTrainer, or a subclass of it.
        utilities: the module `trl.trainer.utils`.
        generation: transformers' GenerationMixin.
    """
    return [
        *moved_seams(trainer_class, TRAINER_SEAMS),
        *moved_seams(utilities, UTILITY_SEAMS),
        *moved_seams(generation, GENERATION_SEAMS),
    ]


def check_seams(trainer_class: type, utilities: object, generation: type) -> None:
    """Raise if a seam has moved.

    Raises:
        HostVersionError: lists every seam that is missing, and the versions that work.
    """
    problems = missing_seams(trainer_class, utilities, generation)
    if problems:
        raise HostVersionError(f"TRL's seams have moved: {'; '.join(problems)}", REMEDY)
