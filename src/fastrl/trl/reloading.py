"""A checkpoint's weights under the names that the model has in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME


def has_renamed_weights(model: PreTrainedModel, checkpoint: Path) -> bool:
    """Whether a checkpoint of this model names weights otherwise than the model does.

    `save_pretrained` gives some architectures (Qwen2.5-VL among them) their published names back.

    Args:
        model: as it is in memory.
        checkpoint: a folder with safetensors, whole or in shards; False without them.
    """
    return not set(_stored_names(checkpoint)) <= model.state_dict().keys()


def _stored_names(checkpoint: Path) -> Iterable[str]:
    index, whole = checkpoint / SAFE_WEIGHTS_INDEX_NAME, checkpoint / SAFE_WEIGHTS_NAME
    if index.exists():
        names: dict[str, str] = json.loads(index.read_text())["weight_map"]
        return names
    if not whole.exists():
        return ()
    with safe_open(whole, framework="pt") as file:
        return list(file.keys())


def load_renamed_weights(model: PreTrainedModel, checkpoint: Path) -> None:
    """Load a checkpoint the way `from_pretrained` does, which knows the names.

    transformers' Trainer loads by bare names and only warns about those it does not find, so that
    a resumed vision-language model would silently start again from its first weights.

    Args:
        model: overwritten in place; keeps its device and precision.
        checkpoint: the folder to load.
    """
    stored = type(model).from_pretrained(checkpoint, dtype=model.dtype)
    model.load_state_dict(stored.state_dict())
