"""`fastrl` with FSDP on gloo processes: accelerate shards on accelerators only, this makes it.

Run as a script by `test_fsdp.py`, with the settings that `accelerate launch` puts into the
environment.
"""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from fastrl.cli import main

_set_up = AcceleratorState.__init__


def _set_up_sharded(self: AcceleratorState, *args: Any, fsdp_plugin: Any = None, **kw: Any) -> None:
    _set_up(self, *args, fsdp_plugin=fsdp_plugin, **kw)
    if fsdp_plugin is not None:
        self.fsdp_plugin = fsdp_plugin
    if getattr(self, "fsdp_plugin", None) is not None:
        self.distributed_type = DistributedType.FSDP


AcceleratorState.__init__ = _set_up_sharded  # type: ignore[method-assign]
main()
