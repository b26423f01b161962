"""How the manager and the filesystem source behave; one field, one flag."""

from dataclasses import dataclass

from aspira.cpus import count_cpus

_REST_S = 1.0


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

    is_rest_awaited: bool = True
    """Load a version directory only once its files have come to rest, where it is looked at often
    enough to tell."""

    ready_marker: str = ""
    """Name of a file that says that its version directory is complete; empty for none."""

    is_moved_version_reloaded: bool = True
    """Load a version again when its model is configured with another base path."""

    is_failed_version_retried: bool = True
    """Try a version whose tries are used up again, when its files change and on a reload."""

    is_model_listed_alone: bool = True
    """A base path that cannot be listed concerns its model alone, not the discovery of others."""

    @property
    def rest_s(self) -> float:
        """How long the files of a new version must not change. A single look cannot tell."""
        return min(max(self.poll_interval_s, 0.0), _REST_S) if self.is_rest_awaited else 0.0

    @property
    def load_pool_size(self) -> int:
        return self.num_load_threads or count_cpus()

    @property
    def unload_pool_size(self) -> int:
        return self.num_unload_threads or 1
