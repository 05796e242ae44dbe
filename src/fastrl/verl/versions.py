"""Which verl this host fits, in one place: the versions and every seam that it uses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import cast

from packaging.version import Version

from fastrl.core.seams import HostVersionError, moved_seams

MINIMUM_VERL = "0.9.1"
BELOW_VERL = "0.9.2"
REMEDY = f'install a version that works: pip install "verl>={MINIMUM_VERL},<{BELOW_VERL}"'
# What verl's default trainer imports without declaring it; our [verl] extra does.
UNDECLARED_NEEDS = (
    "TransferQueue",
    "cachetools",
    "fastapi",
    "msgspec",
    "nvtx",
    "pyzmq",
    "uvicorn",
)

# Module, attribute of it ("" for the module itself), and what is used of that with the parameters
# relied on. The canary test and `fastrl doctor` read the same table.
SEAMS: tuple[tuple[str, str, dict[str, tuple[str, ...]]], ...] = (
    (
        "verl.trainer.ppo.v1",
        "PPOTrainerSync",
        {
            "_submit_batch_to_rollout": ("batch",),
            "_balance_batch": ("batch", "metrics"),
            "_get_required_batch_multiple": ("dp_size",),
            "_compute_advantage": ("batch", "metrics"),
            "_update_actor": ("batch", "metrics"),
            "_compute_metrics": ("batch", "metrics", "timing_raw", "global_steps", "epoch"),
            "_load_checkpoint": ("self",),
            "_save_checkpoint": ("self",),
            "_init_dataloader": ("self",),
        },
    ),
    ("verl.trainer.ppo.v1", "", {"register_trainer": ("name",), "get_trainer_cls": ("name",)}),
    (
        "verl.trainer.ppo.v1.utils",
        "",
        {
            "compute_advantage_for_multi_trajectories": (
                "data",
                "batch_keys",
                "adv_estimator",
                "gamma",
                "lam",
                "num_repeat",
                "norm_adv_by_std_in_grpo",
                "config",
            )
        },
    ),
    (
        "verl.workers.engine_workers",
        "ActorRolloutRefWorker",
        {"set_loss_fn": ("loss_fn",), "update_actor": ("data",)},
    ),
    (
        "verl.workers.utils.losses",
        "",
        {"ppo_loss": ("config", "model_output", "data", "dp_group")},
    ),
    (
        "verl.workers.utils.padding",
        "",
        {"response_to_nested": ("tensor", "response_mask")},
    ),
    (
        "verl.utils.tensordict_utils",
        "",
        {
            "assign_non_tensor_data": ("tensor_dict", "key", "val"),
            "assign_non_tensor": ("tensor_dict",),
            "get_non_tensor_data": ("data", "key", "default"),
        },
    ),
    (
        "verl.utils.config",
        "",
        {
            "omega_conf_to_dataclass": ("config",),
            "validate_config": ("config", "use_reference_policy", "use_critic"),
        },
    ),
    (
        "verl.trainer.ppo.utils",
        "",
        {"need_critic": ("config",), "need_reference_policy": ("config",)},
    ),
    ("verl.protocol", "", {"DataProto": ("batch", "non_tensor_batch")}),
    ("verl.utils.debug", "", {"marked_timer": ("name", "timing_raw")}),
    (
        "verl.single_controller.base.worker",
        "Worker",
        {"_query_dispatch_info": ("mesh_name",)},
    ),
    (
        "verl.trainer.main_ppo",
        "",
        {"run_ppo": ("config", "task_runner_class"), "auto_set_device": ("config",)},
    ),
    ("verl.trainer.main_ppo", "TaskRunnerV1", {"__ray_actor_class__": ()}),
    (
        "transfer_queue",
        "",
        {
            "kv_batch_get": ("keys", "partition_id", "select_fields"),
            "kv_batch_put": ("keys", "partition_id", "fields"),
            "kv_clear": ("keys", "partition_id"),
            "KVBatchMeta": ("partition_id", "keys", "tags", "extra_info"),
        },
    ),
    (
        "transfer_queue",
        "KVBatchMeta",
        {"select_keys": ("keys_to_select",), "reorder": ("indexes",)},
    ),
)
# Names inside verl's functions that the host reads or writes, and that no signature shows: module,
# function (a class's as "Class.function") and the text that its source must have. The canary test
# and `fastrl doctor` read the same table.
INNER_SEAMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "verl.trainer.ppo.v1",
        "PPOTrainer._balance_batch",
        (
            "self.actor_rollout_wg",
            "worker_group._query_dispatch_info(role)",
            "worker_group._dispatch_info[role]",
            "max(dp_rank_mapping) + 1",
            "self._get_required_batch_multiple(dp_size)",
        ),
    ),
    ("verl.single_controller.base", "WorkerGroup.__init__", ("self._dispatch_info = {}",)),
    ("verl.trainer.ppo.padding_utils", "construct_minimal_padding_template", ("is_padding=True",)),
    (
        "verl.trainer.ppo.v1",
        "PPOTrainer.fit",
        ("self.timing_raw = {}", "self.global_steps += 1", 'marked_timer("step", self.timing_raw)'),
    ),
    (
        "verl.trainer.ppo.v1",
        "PPOTrainer._update_actor",
        (
            "batch.extra_info.update(extra_info)",
            "self.actor_rollout_wg.update_actor(batch)",
        ),
    ),
    (
        "verl.trainer.ppo.v1",
        "PPOTrainer._init_dataloader",
        ("self.steps_per_epoch = ", "self.total_training_steps = "),
    ),
    (
        "verl.trainer.ppo.v1.agent_loop_tq",
        "AgentLoopWorkerTQ.__ray_actor_class__._run_prompt",
        ('"__rollout_n__"',),
    ),
)


def check_verl_version() -> str:
    """Return the installed verl version.

    Raises:
        HostVersionError: verl is not installed or is not a version that was tested.
    """
    try:
        installed = version("verl")
    except PackageNotFoundError as error:
        raise HostVersionError("fastrl.verl needs verl, which is not installed", REMEDY) from error
    if not Version(MINIMUM_VERL) <= Version(installed) < Version(BELOW_VERL):
        raise HostVersionError(
            f"fastrl.verl works with verl>={MINIMUM_VERL},<{BELOW_VERL}; found verl {installed}",
            REMEDY,
        )
    return installed


def missing_needs() -> list[str]:
    """Packages that verl's default trainer imports, and that are not installed."""
    return [name for name in UNDECLARED_NEEDS if not _is_installed(name)]


def missing_seams() -> list[str]:
    """Every seam of the tables above that is gone or has lost a parameter or name, in words.

    Raises:
        ImportError: verl itself cannot be imported.
    """
    import_module("verl")  # first: verl loads its own parts in its own order
    moved = [problem for owner, seams in _owners() for problem in moved_seams(owner, seams)]
    return moved + [problem for inner in INNER_SEAMS for problem in _lost_names(*inner)]


def check_seams() -> None:
    """Raise if a seam has moved.

    Raises:
        HostVersionError: lists every seam that is missing, and the versions that work.
    """
    problems = missing_seams()
    if problems:
        raise HostVersionError(f"verl's seams have moved: {'; '.join(problems)}", REMEDY)


def _owners() -> Iterator[tuple[object, dict[str, tuple[str, ...]]]]:
    for module_name, attribute, seams in SEAMS:
        module = import_module(module_name)
        if attribute and not hasattr(module, attribute):
            yield module, {attribute: ()}
        else:
            yield (getattr(module, attribute) if attribute else module), seams


def _lost_names(module_name: str, path: str, texts: tuple[str, ...]) -> list[str]:
    """What the source of a function no longer has of the texts, in words."""
    found: object = import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is None:
        return [f"{module_name}.{path} does not exist"]
    source = inspect.getsource(cast("FunctionType", found))
    return [f"{path} no longer has {text!r}" for text in texts if text not in source]


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
