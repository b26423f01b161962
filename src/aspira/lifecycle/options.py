"""How the manager and the filesystem source behave; one field, one flag."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """Defaults are TensorFlow Serving's, except that thread counts of 0 never block the manager."""

    num_load_threads: int = 0
    """Versions loading at once; 0 means one per CPU."""

    num_unload_threads: int = 0
    """Versions unloading at once; 0 means one."""

    max_num_load_retries: int = 5
    """Further tries after a failed load."""

    load_retry_interval_s: float = 60.0
    """Wait between tries; negative means none."""

    poll_interval_s: float = 1.0
    """Seconds between directory listings; 0 or less lists once, and again on each reload."""

    @property
    def load_pool_size(self) -> int:
        return self.num_load_threads or len(os.sched_getaffinity(0))

    @property
    def unload_pool_size(self) -> int:
        return self.num_unload_threads or 1
