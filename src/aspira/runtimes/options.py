"""How models are opened and warmed up; no framework is imported to say so."""

from dataclasses import dataclass

from aspira.cpus import count_cpus


@dataclass(frozen=True, slots=True)
class TensorflowOptions:
    """How sessions are made; one field, one flag."""

    saved_model_tags: tuple[str, ...] = ("serve",)
    """The tag set of the MetaGraph to serve."""

    session_parallelism: int = 0
    """Threads for both intra and inter op pools; 0 leaves the choice to TensorFlow."""

    intra_op_parallelism: int = 0
    """Threads within one op."""

    inter_op_parallelism: int = 0
    """Threads across ops."""

    session_config_file: str = ""
    """A text `tensorflow.ConfigProto` to start from."""

    session_config: str = ""
    """A text `tensorflow.ConfigProto` to start from, in place of the file's."""

    gpu_memory_fraction: float = 0.0
    """Share of GPU memory; 0 leaves TensorFlow's default."""

    custom_op_libraries: tuple[str, ...] = ()
    """Shared libraries with ops, loaded before any model."""

    mixed_precision: str = ""
    """`bfloat16`: the graph is rewritten to compute in it where that is safe. Empty: it is not."""


@dataclass(frozen=True, slots=True)
class LitertOptions:
    """How TFLite models are served; one field, one flag."""

    is_preferred: bool = False
    """Serve `model.tflite` where a version directory has one."""

    num_pools: int = 0
    """Interpreters of a model; 0 means one per CPU."""

    num_interpreters_per_pool: int = 1
    """More than one asks for batching: this many runs make up the largest request."""

    @property
    def pool_size(self) -> int:
        return max(self.num_pools or count_cpus(), 1)


@dataclass(frozen=True, slots=True)
class WarmupOptions:
    """Whether and how records are replayed."""

    is_enabled: bool = True
    """Replay the file if there is one."""

    num_request_iterations: int = 1
    """Runs of each record; with 0 the file is only read."""

    num_threads: int = 1
    """Threads that replay records of one file, in no fixed order."""

    batch_sizes: tuple[int, ...] = ()
    """Rows with which each record is run too, its inputs repeated or cut to them."""

    is_for_all_batch_sizes: bool = False
    """`batch_sizes` are those that batching may make of the version's requests."""

    is_session_run_refused: bool = False
    """A record of a session's run fails the load, as it does in TensorFlow Serving."""
