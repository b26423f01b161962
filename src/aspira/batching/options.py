"""How queued requests are run: what the flags say, and what holds for one version."""

from dataclasses import dataclass
from enum import Enum


class BatchingMode(Enum):
    """Whether requests share runs."""

    OFF = "off"
    ON = "on"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """What the server is told; one field, one flag."""

    num_threads: int = 0
    """Runs of one version that may go on at once; 0 means one per CPU."""

    is_enabled: bool = False
    """Merge requests into batches, as TensorFlow Serving's flag asks."""

    mode: str = BatchingMode.OFF.value
    """off, on, or auto: batches as large as the latency target allows."""

    latency_target_s: float = 0.0
    """With auto: what 99 of 100 requests shall not exceed; 0 means none."""

    parameters_file: str = ""
    """A text BatchingParameters for all models."""

    parameters: str = ""
    """A text BatchingParameters for all models, in place of the file."""

    is_per_model: bool = False
    """Each version is batched as the file `batching_params.pbtxt` beside it says, or not at all."""

    max_queued_requests: int = 10_000
    """Requests of one version that may wait where its parameters set no bound."""

    max_queued_bytes: int = 2**30
    """Bytes of inputs of one version that may wait."""

    @property
    def is_on(self) -> bool:
        return self.is_enabled or self.mode != BatchingMode.OFF.value

    @property
    def is_learned(self) -> bool:
        return self.mode == BatchingMode.AUTO.value


@dataclass(frozen=True, slots=True)
class BatchingParameters:
    """How the requests of one version are merged; fields and defaults are TensorFlow Serving's."""

    max_batch_size: int = 1000
    """Rows of the largest request."""

    batch_timeout_s: float = 0.0
    """How long the oldest request waits for company; 0 means only while all threads are busy."""

    max_enqueued_batches: int = 10
    """Batches that may wait, for each kind of run."""

    num_threads: int = 0
    """Batches that may run at once; 0 leaves it to `BatchingOptions.num_threads`."""

    allowed_batch_sizes: tuple[int, ...] = ()
    """Increasing; a batch is padded to the next of them."""

    pad_variable_length_inputs: bool = False
    """Merge requests whose other dimensions differ, padded to the largest."""

    can_split: bool = False
    """A request may be spread over several batches."""

    max_execution_batch_size: int = 0
    """Rows of the largest batch, where requests may be spread; 0 means `max_batch_size`."""

    @property
    def execution_size(self) -> int:
        """Rows of the largest batch."""
        return self.max_execution_batch_size or self.max_batch_size

    def padded_size(self, num_rows: int) -> int:
        """The rows that a batch of `num_rows` is padded to. Nothing is nothing to repeat."""
        if not num_rows:
            return 0
        return next((size for size in self.allowed_batch_sizes if size >= num_rows), num_rows)
