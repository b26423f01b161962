"""Serves TensorFlow SavedModels, of TF1 and TF2, through a session.

A signature is run by a session callable, made once: its pruned and optimized graph is kept, and a
call costs a fraction of `Session.run`. Small graphs run on the calling thread, since handing their
ops to TensorFlow's pool costs more than running them.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aspira.contracts.errors import ServingError
from aspira.contracts.events import EventBus
from aspira.contracts.signatures import Signature, SignatureTable, TensorSpec
from aspira.contracts.tensors import QUANTIZED_TYPES, Tensor, Tensors
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.saved_model import (
    MetaGraph,
    Session,
    as_serving_error,
    open_session,
    read_meta_graph,
)
from aspira.runtimes.session_overrides import apply_session_overrides
from aspira.runtimes.straight_graph import find_straight_signatures
from aspira.runtimes.warmup import replay_warmup
from aspira.wire.signature_def import decode_signature

_INTERNAL_SIGNATURES = frozenset({"__saved_model_init_op", "__saved_model_train_op"})
_MAX_NODES_ON_CALLING_THREAD = 512
# Clients choose outputs freely; combinations beyond this many are made anew for each request.
_MAX_CALLABLES = 256

Call = Callable[..., list[Tensor]]


class TensorflowLoader:
    """Loads one SavedModel directory, warm-up included."""

    def __init__(
        self,
        path: Path,
        *,
        options: TensorflowOptions,
        warmup: WarmupOptions,
        events: EventBus,
    ) -> None:
        self._path = path
        self._options = options
        self._warmup = warmup
        self._events = events

    def load(self) -> "TensorflowServable":
        """Read, restore, initialize, warm up.

        Raises:
            ServingError: with TensorFlow's code and text.
        """
        servable = self.open().servable
        try:
            servable.prepare()
            replay_warmup(servable, path=self._path, options=self._warmup, events=self._events)
        except BaseException:
            servable.unload()
            raise
        return servable

    def open(self) -> "OpenModel":
        """Read, restore and initialize. The caller unloads the servable, whatever happens.

        Raises:
            ServingError: with TensorFlow's code and text.
        """
        meta_graph = read_meta_graph(self._path, tags=self._options.saved_model_tags)
        config = make_session_config(self._options)
        apply_session_overrides(config, directory=self._path)
        session = open_session(self._path, meta_graph=meta_graph, config=config)
        servable = TensorflowServable(session, meta_graph=meta_graph)
        return OpenModel(servable, session=session, meta_graph=meta_graph)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model in TensorFlow, and what it was made of, for whoever compiles it further."""

    servable: "TensorflowServable"
    session: Session
    meta_graph: MetaGraph


class TensorflowServable:
    """A session, and one callable for each signature and choice of outputs asked for so far."""

    def __init__(self, session: Session, *, meta_graph: MetaGraph) -> None:
        self._session = session
        self._signatures = _read_signatures(meta_graph)
        self._is_small = _count_nodes(meta_graph) <= _MAX_NODES_ON_CALLING_THREAD
        self._straight = frozenset[str]()
        if self._is_small and not _has_devices(session):
            self._straight = find_straight_signatures(meta_graph, signatures=self._signatures)
        self._calls: dict[tuple[str, tuple[str, ...]], Call] = {}

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._signatures

    @property
    def straight_signatures(self) -> AbstractSet[str]:
        """See `Unblocking`."""
        return self._straight

    def prepare(self) -> None:
        """Have TensorFlow prune and optimize the graph of each signature before requests come."""
        for name, signature in self._signatures.items():
            # A signature that cannot be run says so to whoever asks for it; others still work.
            with suppress(ServingError):
                self._call_for(name, outputs=tuple(signature.outputs))

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`."""
        call = self._call_for(signature_name, outputs=outputs)
        try:
            results = call(*_arguments(self._signatures.resolve(signature_name), inputs=inputs))
        except Exception as error:
            raise as_serving_error(error) from error
        return {
            alias: result if isinstance(result, np.ndarray) else _as_array(result)
            for alias, result in zip(outputs, results, strict=True)
        }

    def run_session(
        self, feeds: Tensors, *, fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        """See `SessionServable.run_session`."""
        call = self._make_callable(feeds=tuple(feeds), fetches=fetches, targets=targets)
        try:
            call(*feeds.values())
        except Exception as error:
            raise as_serving_error(error) from error

    def unload(self) -> None:
        """Close the session; TensorFlow frees variables and tables with it."""
        self._calls.clear()
        self._session.close()
        self._session = None

    def _call_for(self, signature_name: str, *, outputs: tuple[str, ...]) -> Call:
        # Two threads may make the same callable at once: one of the two is dropped, harmlessly.
        call = self._calls.get((signature_name, outputs))
        if call is None:
            signature = self._signatures.resolve(signature_name)
            call = self._make_signature_callable(signature, outputs=outputs)
            if len(self._calls) < _MAX_CALLABLES:
                self._calls[signature_name, outputs] = call
        return call

    def _make_signature_callable(self, signature: Signature, *, outputs: tuple[str, ...]) -> Call:
        specs = [signature.outputs[alias] for alias in outputs]
        call = self._make_callable(
            feeds=tuple(dict.fromkeys(spec.runtime_name for spec in signature.inputs.values())),
            fetches=tuple(spec.runtime_name for spec in specs),
        )
        is_quantized = any(spec.dtype in QUANTIZED_TYPES for spec in specs)
        return _with_quantized_types(call, specs=specs) if is_quantized else call

    def _make_callable(
        self, *, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...] = ()
    ) -> Call:
        from tensorflow.core.protobuf import config_pb2

        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        if self._is_small:
            options.run_options.inter_op_thread_pool = -1
        try:
            # Not public, but what Keras ran all its TF1 models with; a test pins what we use.
            call: Call = self._session._make_callable_from_options(options)  # noqa: SLF001
        except Exception as error:
            raise as_serving_error(error) from error
        return call


def _with_quantized_types(call: Call, *, specs: list[TensorSpec]) -> Call:
    """TensorFlow gives quantized integers as plain ones of their width; clients see the type."""
    dtypes = [spec.dtype.numpy_dtype if spec.dtype in QUANTIZED_TYPES else None for spec in specs]

    def call_and_view(*inputs: Tensor) -> list[Tensor]:
        return [
            result if dtype is None else np.asarray(result).view(dtype)
            for result, dtype in zip(call(*inputs), dtypes, strict=True)
        ]

    return call_and_view


def _as_array(scalar: Any) -> Tensor:
    """A string as an object: numpy's own bytes lose the zeros at their end."""
    return np.asarray(scalar, dtype=object if isinstance(scalar, bytes) else None)


def _arguments(signature: Signature, *, inputs: Tensors) -> Iterable[Tensor]:
    """Inputs in feed order; aliases of one tensor feed it once, with the last one's value."""
    return {spec.runtime_name: inputs[alias] for alias, spec in signature.inputs.items()}.values()


def make_session_config(options: TensorflowOptions) -> Any:
    """The ConfigProto of the flags. They win over the file as in TensorFlow Serving.

    Raises:
        ServingError: the file cannot be read or parsed.
    """
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    from aspira.wire.text_format import parse_text, parse_text_file

    config = config_pb2.ConfigProto()
    if options.session_config_file:
        parse_text_file(Path(options.session_config_file), into=config)
    if options.session_config:
        parse_text(options.session_config, into=config, origin="session_config")
    intra = options.intra_op_parallelism or options.session_parallelism
    inter = options.inter_op_parallelism or options.session_parallelism
    if intra > 0 or inter > 0:
        config.intra_op_parallelism_threads = intra
        config.inter_op_parallelism_threads = inter
    config.gpu_options.per_process_gpu_memory_fraction = options.gpu_memory_fraction
    if options.mixed_precision == "bfloat16":
        rewrites = config.graph_options.rewrite_options
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    config.allow_soft_placement = True
    return config


def _read_signatures(meta_graph: MetaGraph) -> SignatureTable:
    signatures = {
        name: decode_signature(message)
        for name, message in sorted(meta_graph.signature_def.items())
    }
    internal = {name: signatures.pop(name) for name in _INTERNAL_SIGNATURES & signatures.keys()}
    return SignatureTable(signatures, internal=internal)


def _has_devices(session: Session) -> bool:
    """Whether runs may wait for a GPU, and with it for other models."""
    return any(device.device_type != "CPU" for device in session.list_devices())


def _count_nodes(meta_graph: MetaGraph) -> int:
    graph = meta_graph.graph_def
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
