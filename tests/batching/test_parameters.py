from pathlib import Path

import pytest

from aspira.batching.options import BatchingMode, BatchingOptions, BatchingParameters
from aspira.batching.parameters import ParametersFinder, read_batching_parameters
from aspira.contracts.errors import InvalidArgument, NotFound
from aspira.cpus import count_cpus

FULL = """
max_batch_size { value: 128 }
batch_timeout_micros { value: 1500 }
max_enqueued_batches { value: 7 }
num_batch_threads { value: 3 }
thread_pool_name { value: 'pool' }
allowed_batch_sizes: 32
allowed_batch_sizes: 64
pad_variable_length_inputs: true
enable_large_batch_splitting { value: true }
max_execution_batch_size { value: 64 }
"""


def write(directory: Path, text: str, *, name: str = "batching.pbtxt") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    assert read_batching_parameters(write(tmp_path, FULL)) == BatchingParameters(
        max_batch_size=128,
        batch_timeout_s=1500e-6,
        max_enqueued_batches=7,
        num_threads=3,
        allowed_batch_sizes=(32, 64),
        pad_variable_length_inputs=True,
        can_split=True,
        max_execution_batch_size=64,
    )


def test_fields_left_out_have_the_originals_defaults(tmp_path: Path) -> None:
    parameters = read_batching_parameters(write(tmp_path, ""))
    assert parameters == BatchingParameters(
        max_batch_size=1000,
        batch_timeout_s=0.0,
        max_enqueued_batches=10,
        num_threads=count_cpus(),
    )
    assert parameters.execution_size == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_batch_threads { value: 0 }", "num_batch_threads must be positive; was 0"),
        ("max_batch_size { value: 0 }", "input_batch_size_limit must be positive; was 0"),
        (
            "batch_timeout_micros { value: -1 }",
            "batch_timeout_micros must be non-negative; was -1",
        ),
        (
            "max_enqueued_batches { value: 0 } enable_large_batch_splitting { value: true }",
            "max_enqueued_batches must be positive; was 0",
        ),
        (
            "allowed_batch_sizes: 2 allowed_batch_sizes: 4",
            (
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; "
                "expected 1000"
            ),
        ),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: 4 allowed_batch_sizes: 4",
            "allowed_batch_sizes must be positive and increasing; they are [4, 4]",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_batching_parameters(write(tmp_path, text))
    assert caught.value.message == message


def test_a_batch_cannot_be_larger_than_a_request(tmp_path: Path) -> None:
    text = (
        "max_batch_size { value: 4 } max_execution_batch_size { value: 8 } "
        "enable_large_batch_splitting { value: true }"
    )
    with pytest.raises(InvalidArgument, match="When enable_large_batch_splitting is true, "):
        read_batching_parameters(write(tmp_path, text))


def test_no_room_without_splitting_means_one_batch(tmp_path: Path) -> None:
    path = write(tmp_path, "max_enqueued_batches { value: 0 }")
    assert read_batching_parameters(path).max_enqueued_batches == 1


def test_a_file_that_does_not_parse_names_the_place(tmp_path: Path) -> None:
    path = write(tmp_path, "max_batch_size: 12")
    with pytest.raises(InvalidArgument, match=f"Invalid protobuf file: '{path}'.* 1:1"):
        read_batching_parameters(path)


def test_sizes_are_padded_to_the_next_allowed() -> None:
    parameters = BatchingParameters(max_batch_size=8, allowed_batch_sizes=(2, 8))
    assert [parameters.padded_size(size) for size in (0, 1, 2, 3, 8, 9)] == [0, 2, 2, 8, 8, 9]


class TestFinder:
    def test_off(self, tmp_path: Path) -> None:
        write(tmp_path, FULL, name="batching_params.pbtxt")
        assert ParametersFinder(BatchingOptions()).find(tmp_path) is None

    @pytest.mark.parametrize(
        "options",
        [BatchingOptions(is_enabled=True), BatchingOptions(mode=BatchingMode.AUTO.value)],
    )
    def test_on_without_a_file(self, options: BatchingOptions, tmp_path: Path) -> None:
        assert ParametersFinder(options).find(tmp_path) == BatchingParameters()

    def test_one_file_for_all(self, tmp_path: Path) -> None:
        path = write(tmp_path, FULL)
        options = BatchingOptions(is_enabled=True, parameters_file=str(path))
        assert ParametersFinder(options).find(tmp_path / "1") == read_batching_parameters(path)

    def test_a_file_for_all_that_is_not_there(self, tmp_path: Path) -> None:
        options = BatchingOptions(is_enabled=True, parameters_file=str(tmp_path / "none"))
        with pytest.raises(NotFound):
            ParametersFinder(options)

    def test_a_version_has_its_own_file_but_not_its_own_threads(self, tmp_path: Path) -> None:
        for_all = write(tmp_path, "num_batch_threads { value: 5 } max_batch_size { value: 9 }")
        options = BatchingOptions(is_enabled=True, parameters_file=str(for_all), is_per_model=True)
        write(tmp_path, "max_batch_size { value: 3 }", name="batching_params.pbtxt")
        finder = ParametersFinder(options)
        assert finder.find(tmp_path) == BatchingParameters(max_batch_size=3, num_threads=5)
        assert finder.find(tmp_path / "other") is None
