"""Shares one memory budget among the KV caches of all loaded versions."""

import threading

from aspira.contracts.errors import ResourceExhausted

_SMALLEST_MIB = 16
"""Less is not worth starting with."""


class CacheBudget:
    """Any thread.

    A cache keeps its size for life: a version that loads beside another gets what is left, and the
    next one what that other gives back.
    """

    def __init__(self, budget_mib: int) -> None:
        """`budget_mib` of 0 is no limit."""
        self._budget_mib = budget_mib
        self._used_mib = 0
        self._lock = threading.Lock()

    def take(self, wanted_mib: int) -> int:
        """As much as is wanted, or as is left.

        Raises:
            ResourceExhausted: too little is left.
        """
        with self._lock:
            left_mib = self._budget_mib - self._used_mib if self._budget_mib else wanted_mib
            if left_mib < min(wanted_mib, _SMALLEST_MIB):
                raise ResourceExhausted(
                    f"KV caches of loaded versions use {self._used_mib} of the "
                    f"{self._budget_mib} MiB that --kv_cache_budget_mib gives. Raise it, or lower "
                    "cache_mib of the models: a new version needs room beside the one it replaces"
                )
            taken_mib = min(wanted_mib, left_mib)
            self._used_mib += taken_mib
            return taken_mib

    def give_back(self, taken_mib: int) -> None:
        """After the cache is freed."""
        with self._lock:
            self._used_mib -= taken_mib
