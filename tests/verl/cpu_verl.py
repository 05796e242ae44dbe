"""Lets verl train on a machine without accelerator; verl itself loads it in every process.

`VERL_USE_EXTERNAL_MODULES=cpu_verl VERL_PLATFORM=cpu`. It adds a platform, a rollout engine and
training engines for the CPU; those also write down which rows pass through them.
"""

import functools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

ROLLOUT = "cpu_sampler"


def cpu_device_module() -> types.ModuleType:
    """`torch.cpu` with the calls that verl makes of `torch.cuda`: no memory, no queue."""
    module = types.ModuleType("cpu_device")
    module.__dict__.update({k: v for k, v in vars(torch.cpu).items() if not k.startswith("_")})
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated"):
        setattr(module, name, lambda *args, **kwargs: 0)
    for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_device"):
        setattr(module, name, lambda *args, **kwargs: None)
    module.is_available = lambda: False
    module.max_memory_reserved = module.memory_reserved
    module.mem_get_info = lambda *args, **kwargs: (0, 0)
    module.get_device_name = lambda *args, **kwargs: "cpu"
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    module.get_rng_state = lambda *args: torch.get_rng_state()
    module.set_rng_state = lambda state, *args: torch.set_rng_state(state)
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """The CPU, which Ray counts as if each process had a GPU of its own."""

    device_name = "cpu"
    device_module = cpu_device_module()

    @property
    def vendor_name(self) -> str:
        """verl asks for it when it looks for an engine: only then are ours worth importing."""
        import cpu_engines  # noqa: F401

        return "cpu"

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def once_a_device(init_process_group: Any) -> Any:
    """verl names a backend for the CPU and one for the device: here that is one and the same."""

    @functools.wraps(init_process_group)
    def init(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        parts = dict.fromkeys((backend or "").split(","))
        return init_process_group(",".join(parts) or None, *args, **kwargs)

    return init


def load_replica() -> type:
    from cpu_sampler import CpuReplica

    return CpuReplica


torch.distributed.init_process_group = once_a_device(torch.distributed.init_process_group)
# The reference model is kept in pinned memory, which only an accelerator has.
torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "cpu_sampler.WeightsToSampler"
RolloutReplicaRegistry.register(ROLLOUT, load_replica)
