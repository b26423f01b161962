"""Writes model status and metadata as the reference does, through protobuf's JSON printer.

That printer indents by 1 space, prints default values, writes int64 as a string, and escapes some
characters that JSON would allow, for the safety of HTML and scripts.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from aspira.batching.scheduler import BatchingStatistics
from aspira.contracts.errors import Code
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import SignatureRuntime
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import Tensor
from aspira.service.listing import ServingFacts
from aspira.wire.tensor_proto import encode_tensor

_UNSAFE_CHARACTERS = re.compile(
    "[<>\x7f-\x9f\xad\u0600-\u0603\u06dd\u070f\u17b4\u17b5\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb]"
)

_NO_CARD: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """What is told about one version; `state` as the proto names it, such as `AVAILABLE`."""

    version: int
    state: str
    code: Code
    message: str


def encode_model_status(
    statuses: Sequence[VersionStatus], *, card: Mapping[str, object] = _NO_CARD
) -> bytes:
    """The body that answers a status request, newest version first.

    `card` is what OpenAI's clients look for at the same path.
    """
    newest_first = sorted(statuses, key=lambda status: status.version, reverse=True)
    entries = [_describe_status(status) for status in newest_first]
    return f"{_print_message({**card, 'model_version_status': entries})}\n".encode()


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """What is told about one version in a listing."""

    status: VersionStatus
    labels: Sequence[str]
    facts: ServingFacts


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What is told about one model in a listing; what is empty is left out."""

    name: str
    versions: Sequence[VersionEntry]
    problem: str = ""
    base_path: str = ""


def encode_listing(entries: Sequence[ModelEntry], *, asked_by_openai: Sequence[str] = ()) -> bytes:
    """The body that lists models, in the style of a status; the original has no such thing.

    OpenAI's clients read `data`, the models that their API can ask.
    """
    listing = {
        "object": "list",
        "data": [describe_for_openai(name) for name in asked_by_openai],
        "models": [_describe_entry(entry) for entry in entries],
    }
    return f"{_print_message(listing)}\n".encode()


def describe_for_openai(name: str) -> dict[str, object]:
    """A model as OpenAI's clients know it. When it was created, nobody told us."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "aspira"}


def encode_metadata(servable_id: ServableId, *, signatures: Mapping[str, Signature]) -> bytes:
    """The body that answers a metadata request: two printed messages inside a frame of text."""
    spec = {
        "name": servable_id.name,
        "signature_name": "",
        "version": str(servable_id.version),
    }
    described = {name: _describe_signature(signatures[name]) for name in sorted(signatures)}
    return (
        f'{{\n"model_spec":{_print_message(spec)}\n,\n'
        f'"metadata": {{"signature_def": {_print_message({"signature_def": described})}\n}}\n}}\n'
    ).encode()


def _describe_entry(entry: ModelEntry) -> dict[str, object]:
    told = {"base_path": entry.base_path, "unavailable": entry.problem}
    return {
        "name": entry.name,
        **{key: text for key, text in told.items() if text},
        "model_version_status": [_describe_version(version) for version in entry.versions],
    }


def _describe_version(entry: VersionEntry) -> dict[str, object]:
    facts = entry.facts
    described: dict[str, object] = {
        **_describe_status(entry.status),
        "version_labels": list(entry.labels),
        "signature_names": list(facts.signature_names),
    }
    if facts.runtimes:
        described["signature_runtimes"] = {
            name: _describe_runtime(facts.runtimes[name]) for name in sorted(facts.runtimes)
        }
    if facts.batching is not None:
        described["batching"] = _describe_batching(facts.batching)
    return described


def _describe_runtime(runtime: SignatureRuntime) -> dict[str, object]:
    """What serves a signature; of what was not compared, there are no times and no difference."""
    told = {
        "difference": runtime.difference or None,
        "tensorflow_usecs": _as_usecs(runtime.tensorflow_s),
        "accelerated_usecs": _as_usecs(runtime.accelerated_s),
    }
    return {
        "runtime": runtime.runtime,
        "reason": runtime.reason,
        "precision": runtime.precision,
        **{key: value for key, value in told.items() if value is not None},
    }


def _describe_batching(statistics: BatchingStatistics) -> dict[str, object]:
    """By the names of the metrics; there are no times before the first run."""
    described: dict[str, object] = {
        "requests_waiting": statistics.num_waiting,
        "batch_size_limit": statistics.max_batch_rows,
    }
    if statistics.cost is not None:
        described["run_time_fixed_usecs"] = _as_usecs(statistics.cost.fixed_s)
        described["run_time_per_row_usecs"] = _as_usecs(statistics.cost.per_row_s)
    return described


def _as_usecs(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 1)


def _describe_status(status: VersionStatus) -> dict[str, object]:
    return {
        "version": str(status.version),
        "state": status.state,
        "status": {"error_code": status.code.name, "error_message": status.message},
    }


def _describe_signature(signature: Signature) -> dict[str, object]:
    return {
        "inputs": _describe_specs(signature.inputs),
        "outputs": _describe_specs(signature.outputs),
        "method_name": signature.method_name,
        "defaults": {
            alias: _describe_tensor(signature.defaults[alias])
            for alias in sorted(signature.defaults)
        },
    }


def _describe_specs(specs: Mapping[str, TensorSpec]) -> dict[str, object]:
    return {name: _describe_spec(specs[name]) for name in sorted(specs)}


def _describe_spec(spec: TensorSpec) -> dict[str, object]:
    sizes = [-1 if size is None else size for size in spec.shape or ()]
    return {
        "dtype": spec.dtype.wire_name,
        "tensor_shape": {
            "dim": [{"size": str(size), "name": ""} for size in sizes],
            "unknown_rank": spec.shape is None,
        },
        "name": spec.runtime_name,
    }


def _describe_tensor(tensor: Tensor) -> dict[str, object]:
    """A TensorProto with all its fields, in the order of their numbers."""
    from google.protobuf.json_format import MessageToDict
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    message = TensorProto()
    encode_tensor(tensor, into=message)
    described = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    fields = sorted(message.DESCRIPTOR.fields, key=lambda field: field.number)
    return {field.name: described[field.name] for field in fields if field.name in described}


def _print_message(message: Mapping[str, object]) -> str:
    text = json.dumps(message, indent=1, ensure_ascii=False)
    # A lone surrogate stands for a byte that was not UTF-8; the printed text must be.
    readable = text.encode("utf-8", "replace").decode()
    return _UNSAFE_CHARACTERS.sub(lambda found: f"\\u{ord(found.group()):04x}", readable)
