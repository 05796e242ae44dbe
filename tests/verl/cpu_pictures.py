"""As `cpu_verl`, with a rollout engine that looks at pictures."""

import cpu_verl  # noqa: F401  registers platform and engines
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

ROLLOUT = "cpu_pictures"


def load_replica() -> type:
    from picture_sampler import PictureReplica

    return PictureReplica


_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "cpu_sampler.WeightsToSampler"
RolloutReplicaRegistry.register(ROLLOUT, load_replica)
