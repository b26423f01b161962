"""Shares one memory budget among the KV caches of all loaded versions."""

import threading
from collections import Counter

from aspira.contracts.errors import ResourceExhausted
from aspira.contracts.identity import ModelName

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
        self._used_mib: Counter[ModelName] = Counter()
        self._lock = threading.Lock()

    def take(self, wanted_mib: int, *, model_name: ModelName) -> int:
        """As much as is wanted, or as is left.

        Raises:
            ResourceExhausted: too little is left.
        """
        with self._lock:
            used_mib = self._used_mib.total()
            left_mib = self._budget_mib - used_mib if self._budget_mib else wanted_mib
            if left_mib < min(wanted_mib, _SMALLEST_MIB):
                raise ResourceExhausted(
                    f"KV caches of loaded versions use {used_mib} of the "
                    f"{self._budget_mib} MiB that --kv_cache_budget_mib gives. Raise it, or lower "
                    "cache_mib of the models: a new version needs room beside the one it replaces"
                )
            taken_mib = min(wanted_mib, left_mib)
            self._used_mib[model_name] += taken_mib
            return taken_mib

    def give_back(self, taken_mib: int, *, model_name: ModelName) -> None:
        """After the cache is freed."""
        with self._lock:
            self._used_mib[model_name] -= taken_mib

    def find_swap_problem(self, taken_mib: int, *, model_name: ModelName) -> str:
        """What keeps a version that has taken so much from being replaced by one alike, in words.

        Empty if nothing does. Other versions of the model are counted as gone by then, since this
        one may be on its way to replace them.
        """
        with self._lock:
            lasting_mib = self._used_mib.total() - self._used_mib[model_name] + taken_mib
        left_mib = self._budget_mib - lasting_mib
        if not self._budget_mib or left_mib >= taken_mib:
            return ""
        outcome = f"would get {left_mib} MiB, not {taken_mib}"
        if left_mib < min(taken_mib, _SMALLEST_MIB):
            outcome = "could not load"
        return (
            f"its next version {outcome}: KV caches use {lasting_mib} of the {self._budget_mib} "
            "MiB that --kv_cache_budget_mib gives, and versions load beside those they replace. "
            f"Make it {lasting_mib + taken_mib}, or lower cache_mib in models' aspira_llm.toml"
        )
