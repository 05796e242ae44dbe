"""Between the TransferQueue and arrays: read a scored batch, write what the update needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.utils.padding import response_to_nested

from fastrl.verl.pruning import ScoredRows
from fastrl.verl.weighting import WEIGHTS

SCORED_FIELDS = ["uid", "index", "response_mask", "rm_scores", "responses"]


class ScoredBatch:
    """A generation batch with its full-group advantages.

    Attributes:
        rows: what pruning looks at.
        tokens: tokens that are trained on, of all rows.
        advantages, returns: key -> (T,) of that row's answer, as verl computes them of the full
            groups.
    """

    def __init__(self, batch: KVBatchMeta, algorithm: Any, num_generations: int) -> None:
        data = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=SCORED_FIELDS
        )
        answers = data.pop("responses").unbind()
        masks = [mask.bool() for mask in data["response_mask"].unbind()]
        prompts = [str(name) for name in _as_list(data.pop("index"))]
        uids = np.array(_as_list(data.pop("uid")), dtype=object)
        nested_mask = data["response_mask"]
        scored = _with_advantages(data, uids, batch.keys, algorithm, num_generations)
        advantages = response_to_nested(scored["advantages"], nested_mask).unbind()
        returns = response_to_nested(scored["returns"], nested_mask).unbind()
        self.advantages = dict(zip(batch.keys, advantages, strict=True))
        self.returns = dict(zip(batch.keys, returns, strict=True))
        self.tokens = int(sum(int(mask.sum()) for mask in masks))
        self.rows = ScoredRows(
            keys=list(batch.keys),
            prompt_N=prompts,
            advantages_N=np.array(
                [_masked_mean(row, mask) for row, mask in zip(advantages, masks, strict=True)]
            ),
            rewards_N=data["rm_scores"].to_padded_tensor(0.0).double().sum(1).numpy(),
            token_rows=[answer[mask].numpy() for answer, mask in zip(answers, masks, strict=True)],
        )


def _with_advantages(
    data: TensorDict,
    uids: np.ndarray[Any, Any],
    keys: Sequence[str],
    algorithm: Any,
    num_generations: int,
) -> Mapping[str, torch.Tensor]:
    """verl's own advantages of whole groups, padded: (N, T) "advantages" and "returns"."""
    batch = DataProto(batch=data.to_padded_tensor())
    batch.non_tensor_batch["uid"] = uids
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    scored = compute_advantage_for_multi_trajectories(
        batch,
        batch_keys=list(keys),
        adv_estimator=algorithm.adv_estimator,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        num_repeat=num_generations,
        norm_adv_by_std_in_grpo=algorithm.get("norm_adv_by_std_in_grpo", True),
        config=algorithm,
    )
    return {name: scored.batch[name] for name in ("advantages", "returns")}


def write_update_fields(
    batch: KVBatchMeta,
    scored: ScoredBatch,
    weight_of_key: Mapping[str, float] | None,
) -> KVBatchMeta:
    """Write full-group advantages over those that verl computed of the pruned groups.

    Args:
        batch: the rows of the update; those that verl added as padding have advantage and weight
            0.
        scored: the generation batch they are of.
        weight_of_key: weights of the rows, or None to write none.

    Returns:
        The batch, its list of fields brought up to date.
    """
    zero = torch.zeros(1)
    fields = {
        name: torch.nested.as_nested_tensor(
            [values.get(key, zero) for key in batch.keys], layout=torch.jagged
        )
        for name, values in (("advantages", scored.advantages), ("returns", scored.returns))
    }
    if weight_of_key is not None:
        fields[WEIGHTS] = torch.tensor([[weight_of_key.get(key, 0.0)] for key in batch.keys])
    return transfer_queue.kv_batch_put(
        keys=batch.keys,
        partition_id=batch.partition_id,
        fields=TensorDict(fields, batch_size=len(batch)),
    )


def check_advantages(batch: KVBatchMeta, scored: ScoredBatch) -> None:
    """What the update is about to read is what the full groups gave.

    Raises:
        RuntimeError: names the rows whose advantages differ.
    """
    read = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"]
    )["advantages"].unbind()
    wrong = [
        key
        for key, row in zip(batch.keys, read, strict=True)
        if key in scored.advantages and not torch.equal(row, scored.advantages[key])
    ]
    if wrong:
        raise RuntimeError(
            f"{len(wrong)} of {len(batch)} rows reach the update with other advantages than "
            f"those of their full group, {wrong[0]} first: something writes them after FastRL"
        )


def drop_rows(batch: KVBatchMeta, kept_keys: Sequence[str]) -> KVBatchMeta:
    """The batch of these keys alone; the others leave the TransferQueue."""
    kept = set(kept_keys)
    dropped = [key for key in batch.keys if key not in kept]
    remaining = batch.select_keys(list(kept_keys))
    if dropped:
        transfer_queue.kv_clear(keys=dropped, partition_id=batch.partition_id)
    return remaining


def _as_list(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _masked_mean(row: torch.Tensor, mask: torch.Tensor) -> float:
    return float(row[mask].double().mean()) if bool(mask.any()) else 0.0
