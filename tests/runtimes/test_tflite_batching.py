from pathlib import Path

import pytest

from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.parameters import ParametersFinder
from aspira.runtimes.options import LitertOptions
from aspira.runtimes.tflite_batching import TfliteBatching


class TestTfliteBatching:
    """More than one interpreter a pool: the figures are TensorFlow Serving's."""

    def find(self, directory: Path, *, options: LitertOptions) -> BatchingParameters | None:
        for_others = ParametersFinder(BatchingOptions(is_enabled=True))
        return TfliteBatching(options, otherwise=for_others).find(directory)

    def test_the_largest_request_is_shared_among_the_interpreters(self, tmp_path: Path) -> None:
        (tmp_path / "model.tflite").touch()
        options = LitertOptions(is_preferred=True, num_pools=2, num_interpreters_per_pool=3)
        assert self.find(tmp_path, options=options) == BatchingParameters(
            max_batch_size=500,
            max_execution_batch_size=167,
            can_split=True,
            max_enqueued_batches=200,
            num_threads=2,
        )

    @pytest.mark.parametrize(
        ("options", "is_tflite"),
        [
            (LitertOptions(is_preferred=True), True),
            (LitertOptions(num_interpreters_per_pool=3), True),
            (LitertOptions(is_preferred=True, num_interpreters_per_pool=3), False),
        ],
    )
    def test_other_models_are_batched_as_usual(
        self, options: LitertOptions, is_tflite: bool, tmp_path: Path
    ) -> None:
        if is_tflite:
            (tmp_path / "model.tflite").touch()
        assert self.find(tmp_path, options=options) == BatchingParameters()
