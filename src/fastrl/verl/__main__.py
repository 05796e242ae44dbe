"""`python -m fastrl.verl <ordinary verl overrides>`: verl's own training, pruned."""

from __future__ import annotations

import sys
from dataclasses import Field
from typing import Any

import hydra
from omegaconf import DictConfig

from fastrl.verl.config import SETTINGS
from fastrl.verl.launching import launch

USAGE = """\
python -m fastrl.verl <overrides>: verl's training, with rollouts pruned before log-probs.

Every override of `python -m verl.trainer.main_ppo` works as it does there.
`--cfg job` prints the whole configuration and starts nothing; `--hydra-help` tells of Hydra.
FastRL's own settings:
"""


def describe(name: str, setting: Field[Any]) -> str:
    """A setting as it is typed, with its default and its meaning."""
    return f"  +trainer.fastrl.{name}={setting.default}\n      {setting.metadata['help']}\n"


@hydra.main(  # type: ignore[untyped-decorator,unused-ignore]
    config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None
)
def train(config: DictConfig) -> None:
    """Train with the composed configuration."""
    launch(config)


def main() -> None:
    """Tell of the settings, or train."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.stdout.write(USAGE + "".join(describe(*item) for item in SETTINGS.items()))
        return
    train()


if __name__ == "__main__":
    main()
