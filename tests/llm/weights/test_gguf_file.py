"""The reader against llama.cpp's own Python writer."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from aspira.contracts.errors import DataLoss, NotFound, ServingError, Unimplemented
from aspira.llm.weights.gguf_file import GgufFile

TENSOR = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("u32", 7)
    writer.add_int64("i64", -(1 << 40))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", -2.25)
    writer.add_bool("flag", True)
    writer.add_string("text", "häß 😀")
    writer.add_array("texts", ["a", "", "ö"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("first", TENSOR)
    writer.add_tensor("second", TENSOR[:1].astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata(path: Path) -> None:
    fields = GgufFile(path).metadata
    assert fields["general.architecture"] == "llama"
    assert (fields["u32"], fields["i64"], fields["f32"], fields["f64"]) == (
        7,
        -(1 << 40),
        0.5,
        -2.25,
    )
    assert fields["flag"] is True
    assert (fields["text"], fields["texts"]) == ("häß 😀", ["a", "", "ö"])
    assert fields["numbers"] == [1, -2, 3]


def test_tensors(path: Path) -> None:
    file = GgufFile(path)
    assert {name: tensor.shape for name, tensor in file.tensors.items()} == {
        "first": (4, 6),
        "second": (1, 6),
    }
    np.testing.assert_array_equal(
        file.raw("first", num_bytes=96).view(np.float32).reshape(4, 6), TENSOR
    )
    np.testing.assert_array_equal(
        file.raw("second", num_bytes=12).view(np.float16), TENSOR[0].astype(np.float16)
    )


def test_a_file_cut_anywhere_raises_our_errors_only(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data) - 40):
        path.write_bytes(data[:length])
        with pytest.raises(ServingError):
            GgufFile(path).raw("second", num_bytes=12)


def test_a_file_with_any_byte_changed_raises_our_errors_only(path: Path) -> None:
    data = path.read_bytes()
    for position in range(600):
        for value in (0, 0xFF):
            path.write_bytes(data[:position] + bytes([value]) + data[position + 1 :])
            try:
                file = GgufFile(path)
                for name in file.tensors:
                    file.raw(name, num_bytes=12)
            except ServingError:
                pass


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"", DataLoss, "is empty"),
        (b"PK\x03\x04" + bytes(60), DataLoss, "does not begin with GGUF"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(60), Unimplemented, "GGUF version 1"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(60), Unimplemented, "little-endian"),
    ],
)
def test_other_files(tmp_path: Path, data: bytes, error: type[ServingError], said: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(error, match=said):
        GgufFile(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        GgufFile(tmp_path / "none.gguf")
