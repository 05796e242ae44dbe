"""Agent loops of the tests: verl's own, with the session told to the sampler; one in two turns."""

import json
import os
from pathlib import Path
from typing import Any

import verl  # noqa: F401  first: verl loads its own parts in its own order
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class SeededLoop(SingleTurnAgentLoop):
    """verl's single turn; the session number seeds the sampler. Every rollout is written down."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        seed = 1000 * int(kwargs["index"]) + int(kwargs["session_id"])
        output = await super().run({**sampling_params, "seed": seed}, **kwargs)
        told = {
            "step": int(kwargs["global_steps"]),
            "session": int(kwargs["session_id"]),
            "prompt": output.prompt_ids,
            "answer": output.response_ids,
        }
        with (Path(os.environ["FASTRL_TEST_PASSES"]) / "rollouts.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        return output


class TwoOutputsLoop(SeededLoop):
    """Every second prompt's rollouts are two rows: the answer's beginning, and what follows."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        whole = await super().run(sampling_params, **kwargs)
        if int(kwargs["index"]) % 2 or len(whole.response_ids) < 2:
            return whole
        half = len(whole.response_ids) // 2
        first, second = whole.model_copy(deep=True), whole.model_copy(deep=True)
        first.response_ids = whole.response_ids[:half]
        first.response_mask = whole.response_mask[:half]
        second.prompt_ids = whole.prompt_ids + whole.response_ids[:half]
        second.response_ids = whole.response_ids[half:]
        second.response_mask = whole.response_mask[half:]
        for part, log_probs in ((first, slice(half)), (second, slice(half, None))):
            if whole.response_logprobs:
                part.response_logprobs = whole.response_logprobs[log_probs]
        return [first, second]
