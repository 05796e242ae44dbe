"""Launching verl with the pruning trainer in place of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ray
import verl  # noqa: F401  first: verl loads its own parts in its own order
from omegaconf import DictConfig, open_dict
from verl.trainer import main_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from fastrl.verl.refusals import TRAINER_MODE, check_run


class FastRLTaskRunner(main_ppo.TaskRunnerV1.__ray_actor_class__):  # type: ignore[misc]
    """verl's task runner, in whose process the pruning trainer is registered first."""

    def run(self, config: DictConfig) -> Any:
        """verl's."""
        import_module("fastrl.verl.trainer")
        return super().run(config)


def launch(config: DictConfig) -> None:
    """Train as verl's `main_ppo` does, pruned.

    Args:
        config: verl's whole configuration, with `trainer.fastrl`.

    Raises:
        ValueError: lists everything that cannot work; nothing was started.
    """
    check_run(config)
    main_ppo.auto_set_device(config)
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    with open_dict(config):
        config.trainer.v1.trainer_mode = TRAINER_MODE
    main_ppo.run_ppo(config, task_runner_class=ray.remote(FastRLTaskRunner))
