"""How fast bodies become tensors and tensors bodies: in process, without a server or a model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import process_time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework.tensor_pb2 import TensorProto

from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.frontends.rest.json_response import encode_predictions
from aspira.frontends.rest.json_tensors import decode_inputs, parse_predict_body
from aspira.wire.tensor_proto import decode_tensor, encode_tensor
from machine import read_machine_facts

_MIB = 2**20
SIZES_MIB = (1, 16, 64)
_COLUMNS = 1024
_Floats = npt.NDArray[np.float32]


class Speed(NamedTuple):
    """One conversion: what it is, and bytes of the tensor and of the message in each second."""

    name: str
    size_mib: int
    tensor_mb_per_s: float
    message_mb_per_s: float


def measure_codecs(sizes_mib: Sequence[int], *, num_rounds: int) -> str:
    """The report, of the best of so many rounds."""
    speeds = [
        speed
        for size_mib in sizes_mib
        for name, floats in _make_contents(size_mib).items()
        for speed in _measure_json(name, floats=floats, size_mib=size_mib, num_rounds=num_rounds)
    ]
    for size_mib in sizes_mib:
        floats = _make_contents(size_mib)["normal"]
        speeds += _measure_protos(floats, size_mib=size_mib, num_rounds=num_rounds)
    return _format(speeds, sizes_mib=sizes_mib)


def _make_contents(size_mib: int) -> Mapping[str, _Floats]:
    """Rows of 1,024 float32, of three kinds that print differently."""
    random = np.random.default_rng(0)
    shape = (size_mib * _MIB // (4 * _COLUMNS), _COLUMNS)
    normal = random.standard_normal(shape, np.float32)
    likely = np.exp(3 * normal)
    return {
        "normal": normal,
        "3 digits": random.random(shape, np.float32).round(3),
        "softmax": likely / likely.sum(axis=1, keepdims=True),
    }


def _measure_json(name: str, *, floats: _Floats, size_mib: int, num_rounds: int) -> Iterator[Speed]:
    signature = Signature(
        inputs={"x": TensorSpec(DataType.FLOAT, (None, _COLUMNS), "x:0")}, outputs={}
    )
    answer = encode_predictions({"y": floats}, is_row_format=True)
    body = answer.replace(b"predictions", b"instances", 1)

    def decode() -> None:
        decode_inputs(parse_predict_body(body), signature=signature)

    yield _measure(
        f"JSON to tensor, {name}",
        size_mib=size_mib,
        num_bytes=(floats.nbytes, len(body)),
        convert=decode,
        num_rounds=num_rounds,
    )
    for form, is_row_format in (("rows", True), ("columns", False)):
        encode = partial(encode_predictions, {"y": floats}, is_row_format=is_row_format)
        yield _measure(
            f"tensor to JSON {form}, {name}",
            size_mib=size_mib,
            num_bytes=(floats.nbytes, len(encode())),
            convert=encode,
            num_rounds=num_rounds,
        )


def _measure_protos(floats: _Floats, *, size_mib: int, num_rounds: int) -> Iterator[Speed]:
    for field, use_tensor_content in (("float_val", False), ("tensor_content", True)):
        message = _serialize(floats, use_tensor_content=use_tensor_content)
        num_bytes = (floats.nbytes, len(message))

        encode = partial(_serialize, floats, use_tensor_content=use_tensor_content)
        decode = partial(_parse, message)
        for name, convert in ((f"{field} to tensor", decode), (f"tensor to {field}", encode)):
            yield _measure(
                name,
                size_mib=size_mib,
                num_bytes=num_bytes,
                convert=convert,
                num_rounds=num_rounds,
            )


def _serialize(floats: _Floats, *, use_tensor_content: bool) -> bytes:
    proto = TensorProto()
    encode_tensor(floats, into=proto, use_tensor_content=use_tensor_content)
    serialized: bytes = proto.SerializeToString()
    return serialized


def _parse(message: bytes) -> _Floats:
    tensor: _Floats = decode_tensor(TensorProto.FromString(message), alias="x")
    return tensor


def _measure(
    name: str,
    *,
    size_mib: int,
    num_bytes: tuple[int, int],
    convert: Callable[[], object],
    num_rounds: int,
) -> Speed:
    """By the CPU's clock."""
    best_s = min(_time(convert) for _ in range(num_rounds))
    of_tensor, of_message = (count / best_s / 1e6 for count in num_bytes)
    return Speed(name, size_mib, of_tensor, of_message)


def _time(convert: Callable[[], object]) -> float:
    started_s = process_time()
    convert()
    return process_time() - started_s


def _format(speeds: Sequence[Speed], *, sizes_mib: Sequence[int]) -> str:
    """A table in Markdown: for each size, MB/s of the tensor and of the message."""
    titles = "".join(f" {size} MiB |" for size in sizes_mib)
    lines = [
        f"| MB/s of the tensor (of the message) |{titles}",
        "|---" * (len(sizes_mib) + 1) + "|",
    ]
    for name in dict.fromkeys(speed.name for speed in speeds):
        cells = "".join(
            f" {speed.tensor_mb_per_s:,.0f} ({speed.message_mb_per_s:,.0f}) |"
            for speed in speeds
            if speed.name == name
        )
        lines.append(f"| {name} |{cells}")
    facts = ", ".join(
        f"{key}: {value}"
        for key, value in read_machine_facts(("numpy", "orjson", "protobuf")).items()
    )
    return "\n".join([*lines, "", f"float32, one thread. {facts}"])
