"""A checkpoint's weights under the names that the model has in memory."""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME


def has_renamed_weights(model: PreTrainedModel, checkpoint: Path) -> bool:
    """Whether a checkpoint of this model names weights otherwise than the model does.

    `save_pretrained` gives some architectures (Qwen2.5-VL among them) their published names back.
    """
    path = checkpoint / SAFE_WEIGHTS_NAME
    if not path.exists():
        return False
    with safe_open(path, framework="pt") as file:
        return not set(file.keys()) <= model.state_dict().keys()


def load_renamed_weights(model: PreTrainedModel, checkpoint: Path) -> None:
    """Load a checkpoint the way `from_pretrained` does, which knows the names.

    transformers' Trainer loads by bare names and only warns about those it does not find, so that
    a resumed vision-language model would silently start again from its first weights.
    """
    stored = type(model).from_pretrained(checkpoint, dtype=model.dtype)
    model.load_state_dict(stored.state_dict())
