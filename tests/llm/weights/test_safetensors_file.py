from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from aspira.contracts.errors import DataLoss, NotFound, ServingError, Unimplemented
from aspira.llm.weights.safetensors_file import SafetensorsFile
from language_models import write_safetensors

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1.5], np.float16),
    "c": np.array([[1, -2]], ml_dtypes.bfloat16),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.float32(4).reshape(()),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "x.safetensors", TENSORS)
    return tmp_path / "x.safetensors"


def test_tensors_are_read_as_they_were_written(path: Path) -> None:
    file = SafetensorsFile(path)
    assert file.names == set(TENSORS)
    for name, tensor in TENSORS.items():
        read = file.read(name)
        assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
        np.testing.assert_array_equal(read, tensor)


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"q": np.zeros(3, np.int8)})
    with pytest.raises(Unimplemented, match="tensor q is I8"):
        SafetensorsFile(path).read("q")
    path.write_bytes(header_of(b'{"q": {"dtype": ["F32"], "shape": [], "data_offsets": [0, 4]}}'))
    with pytest.raises(Unimplemented, match="tensor q is"):
        SafetensorsFile(path).read("q")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        SafetensorsFile(tmp_path / "none.safetensors")


def header_of(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x05",
        (1 << 40).to_bytes(8, "little") + b"{}",
        header_of(b"{"),
        header_of(b"[]"),
        header_of(b'{"a": 1}'),
        header_of(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'),
        header_of(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}'),
        header_of(b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}}') + b"1234",
        header_of(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}') + b"1234",
        header_of(b'{"a": {"dtype": "F32", "shape": null, "data_offsets": [0, 4]}}') + b"1234",
        header_of(
            b'{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}'
        ),
        header_of(b'{"a": {"shape": [1], "data_offsets": [0, 4, 8]}}') + b"1234",
    ],
)
def test_damaged_files_are_data_loss(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(DataLoss):
        SafetensorsFile(path).read("a")


def test_a_file_cut_anywhere_raises_our_errors_only(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ServingError):
            [SafetensorsFile(path).read(name) for name in TENSORS]
