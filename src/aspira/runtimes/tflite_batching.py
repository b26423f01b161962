"""How TFLite models are batched where a pool is to have several interpreters."""

from math import ceil
from pathlib import Path

from aspira.batching.options import BatchingParameters
from aspira.batching.parameters import FindParameters
from aspira.runtimes.litert import MODEL_FILE
from aspira.runtimes.options import LitertOptions

_MAX_ROWS = 500
_BATCHES_PER_POOL = 100


class TfliteBatching:
    """TFLite models are batched in a way of their own if a pool is to have several interpreters.

    The figures are TensorFlow Serving's, whatever the batching of other models is.
    """

    def __init__(self, options: LitertOptions, *, otherwise: FindParameters) -> None:
        self._options = options
        self._otherwise = otherwise

    def find(self, version_directory: Path) -> BatchingParameters | None:
        """See `FindParameters.find`."""
        options = self._options
        is_batched = options.is_preferred and options.num_interpreters_per_pool > 1
        if not is_batched or not (version_directory / MODEL_FILE).exists():
            return self._otherwise.find(version_directory)
        return BatchingParameters(
            max_batch_size=_MAX_ROWS,
            max_execution_batch_size=ceil(_MAX_ROWS / options.num_interpreters_per_pool),
            can_split=True,
            max_enqueued_batches=_BATCHES_PER_POOL * options.pool_size,
            num_threads=options.pool_size,
        )
