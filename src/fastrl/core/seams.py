"""The seams of a host: what an adapter overrides or calls, and how a moved one is told."""

from __future__ import annotations

import inspect
from collections.abc import Mapping


class HostVersionError(ImportError):
    """The installed host is missing, out of range, or has moved a seam.

    Attributes:
        remedy: the command that mends it.
    """

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}: {remedy}")
        self.remedy = remedy


def moved_seams(owner: object, seams: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Every seam of a class or module that is gone or has lost a parameter, in words.

    Args:
        owner: the class or module.
        seams: attribute -> the parameters that are relied on, none of them for an attribute of
            which only the existence matters.
    """
    owner_name = getattr(owner, "__name__", str(owner))
    problems = []
    for name, needed in seams.items():
        seam = getattr(owner, name, None)
        if seam is None:
            problems.append(f"{owner_name}.{name} does not exist")
            continue
        if not needed:
            continue
        parameters = inspect.signature(seam).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        lost = [n for n in needed if n not in parameters]
        if lost and not takes_any:
            problems.append(f"{owner_name}.{name} no longer takes {', '.join(lost)}")
    return problems
