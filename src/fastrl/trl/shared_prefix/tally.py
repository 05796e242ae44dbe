"""What was scored behind shared prefixes, and what was not."""

from __future__ import annotations


class SharingTally:
    """Chunks of one generation batch, of all passes, on this process."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._shared = self._unpaid = self._fallback = 0
        self._host_tokens = self._packed_tokens = 0

    def add_shared(self, host_tokens: int, packed_tokens: int) -> None:
        """A chunk behind shared prefixes: the tokens of the host's call, and those of ours."""
        self._shared += 1
        self._host_tokens += host_tokens
        self._packed_tokens += packed_tokens

    def add_unpaid(self) -> None:
        """A chunk that could have been shared, and would not have gained."""
        self._unpaid += 1

    def add_fallback(self, chunks: int) -> None:
        """Chunks that cannot be shared."""
        self._fallback += chunks

    def lap(self) -> list[int]:
        """The counts since the last call, to be summed over processes, for `sharing_metrics`."""
        counts = [
            *(self._shared, self._unpaid, self._fallback),
            *(self._host_tokens, self._packed_tokens),
        ]
        self._clear()
        return counts


def sharing_metrics(counts: list[int]) -> dict[str, float]:
    """The metrics of a generation batch.

    Args:
        counts: of `SharingTally.lap`, summed over all processes.
    """
    shared, unpaid, fallback, host_tokens, packed_tokens = counts
    metrics = {
        "fastrl/shared_prefix": shared / max(shared + unpaid + fallback, 1),
        "fastrl/shared_prefix_fallback": float(fallback),
    }
    if shared:
        metrics["fastrl/shared_prefix_ratio"] = host_tokens / packed_tokens
    return metrics
