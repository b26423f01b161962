"""How a model's work is queued and run."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """One request is one run; batching proper widens this."""

    num_threads: int = 0
    """Runs of one version that may go on at once; 0 means one per CPU."""

    @property
    def pool_size(self) -> int:
        return self.num_threads or len(os.sched_getaffinity(0))
