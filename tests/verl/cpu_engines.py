"""verl's FSDP engine for the CPU, which writes down the rows of every pass that it makes."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


def as_lists(column: Any) -> list[Any]:
    return [row.tolist() for row in column.unbind()]


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class RecordingEngine(FSDPEngineWithLMHead):
    """verl's engine; a line per pass in `$FASTRL_TEST_PASSES/rank<r>.jsonl`."""

    def forward_backward_batch(
        self, data: Any, loss_function: Any, forward_only: bool = False
    ) -> Any:
        told: dict[str, Any] = {
            "pass": "update"
            if not forward_only
            else ("reference" if self.engine_config.forward_only else "old"),
            "prompts": as_lists(data["prompts"]),
            "responses": as_lists(data["responses"]),
            "masks": as_lists(data["response_mask"]),
        }
        if not forward_only:
            told["advantages"] = as_lists(data["advantages"])
            told["global_batch_size"] = data["global_batch_size"]
            loss = getattr(loss_function, "func", loss_function)  # within a partial
            told["loss"] = f"{loss.__module__}.{loss.__qualname__}"
            if data.get("fastrl_weights") is not None:
                told["weights"] = [row[0] for row in as_lists(data["fastrl_weights"])]
                told["full_tokens"] = data["fastrl_full_tokens"]
        path = Path(os.environ["FASTRL_TEST_PASSES"]) / f"rank{torch.distributed.get_rank()}.jsonl"
        with path.open("a") as file:
            file.write(json.dumps(told) + "\n")
        return super().forward_backward_batch(data, loss_function, forward_only=forward_only)
