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

    def lap(self) -> dict[str, float]:
        """The metrics since the last call."""
        chunks = self._shared + self._unpaid + self._fallback
        metrics = {
            "fastrl/shared_prefix": self._shared / max(chunks, 1),
            "fastrl/shared_prefix_fallback": float(self._fallback),
        }
        if self._shared:
            metrics["fastrl/shared_prefix_ratio"] = self._host_tokens / self._packed_tokens
        self._clear()
        return metrics
