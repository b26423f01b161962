"""Bounds the queue: who would wait too long is told so at once, and when to come back."""

import threading

from aspira.contracts.errors import ResourceExhausted
from aspira.llm.options import EngineOptions

_SHORTEST_RETRY_S = 1.0
_LONGEST_RETRY_S = 120.0
_SMOOTHING = 0.1


class QueueGate:
    """Counts the requests that were submitted and have not started. Any thread."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._tokens_per_s = 0.0
        self.num_requests = 0
        self.num_tokens = 0
        self.num_rejections = 0

    def enter(self, num_tokens: int) -> None:
        """Count a request in.

        Raises:
            ResourceExhausted: the queue is full; with an estimate of when it will not be.
        """
        with self._lock:
            if self._is_full(num_tokens):
                self.num_rejections += 1
                retry_after_s = self._estimate_wait_s()
                raise ResourceExhausted(
                    f"The model's queue is full: {self.num_requests} requests with "
                    f"{self.num_tokens} tokens are waiting. Retry in {retry_after_s:.0f} s, or "
                    "use another replica.",
                    retry_after_s=retry_after_s,
                )
            self.num_requests += 1
            self.num_tokens += num_tokens

    def leave(self, num_tokens: int) -> None:
        """Count a request out: it started, or it ended."""
        with self._lock:
            self.num_requests -= 1
            self.num_tokens -= num_tokens

    def note_step(self, num_tokens: int, *, duration_s: float) -> None:
        """Learn the engine's pace, from which waits are estimated."""
        if duration_s > 0:
            pace = num_tokens / duration_s
            self._tokens_per_s += (pace - self._tokens_per_s) * (
                _SMOOTHING if self._tokens_per_s else 1.0
            )

    def _is_full(self, num_tokens: int) -> bool:
        # An empty queue takes any request, so that a long one is not refused for ever.
        return self.num_requests >= self._options.max_queued_requests or (
            self.num_requests > 0 and self.num_tokens + num_tokens > self._options.max_queued_tokens
        )

    def _estimate_wait_s(self) -> float:
        """Until half the queue is done, at the present pace."""
        if not self._tokens_per_s:
            return _SHORTEST_RETRY_S
        wait_s = self.num_tokens / 2 / self._tokens_per_s
        return min(max(wait_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)
