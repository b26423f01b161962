"""Runs a decoder on CPUs by OpenVINO, with its paged attention.

The attention operation belongs to OpenVINO's own serving library and may change with any release:
the version is pinned, and the shapes of the cache are checked when a model is loaded.
"""

from collections.abc import Sequence

import numpy as np
import openvino as ov

from aspira.contracts.errors import (
    FailedPrecondition,
    Internal,
    ResourceExhausted,
)
from aspira.llm.batch_checks import check_batch, check_payload
from aspira.llm.decoders.kv_cache import KvCache
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.runner import BlockPayload, Logits, StepBatch

DEVICE = "CPU"
_BLOCK_SIZE = 32
_CACHE_PREFIXES = ("key_cache.", "value_cache.")
# Beside each channel's 32 keys and each token's values u8 caches hold a scale and a zero point.
_U8_EXTRA = 8


class OpenvinoRunner:
    """See `Runner`."""

    def __init__(
        self, model: ov.Model, *, digest: str, max_context: int, options: DecoderOptions
    ) -> None:
        """The model is one that `build_decoder` or `read_ir` returns, the options are resolved.

        Raises:
            ServingError: OpenVINO cannot run it, or not with this cache.
        """
        try:
            compiled = ov.Core().compile_model(model, DEVICE, _settings(options))
            self._request = compiled.create_infer_request()
        except RuntimeError as error:
            raise Internal(f"OpenVINO cannot compile this decoder: {error}") from error
        ports = [port for port in compiled.inputs if port.any_name.startswith(_CACHE_PREFIXES)]
        self._cache = _make_cache(ports, cache_mib=options.cache_mib)
        for port, tensor in zip(ports, self._cache.tensors, strict=True):
            self._request.set_tensor(port, tensor)
        self._vocab_size = int(compiled.output(0).partial_shape[-1].get_length())
        self._max_context = max_context
        self._fingerprint = "/".join(
            (
                digest,
                f"openvino-{ov.get_version()}",
                f"{options.precision}-{options.weight_format}",
                *sorted(
                    {f"{port.element_type.get_type_name()}{port.partial_shape}" for port in ports}
                ),
            )
        )

    @property
    def block_size(self) -> int:
        return _BLOCK_SIZE

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_context(self) -> int:
        return self._max_context

    @property
    def num_late_compilations(self) -> int:
        return 0

    @property
    def kv_fingerprint(self) -> str:
        return self._fingerprint

    def run(self, batch: StepBatch) -> Logits:
        """See `Runner.run`."""
        check_batch(batch, runner=self)
        lengths = batch.past_lens + np.diff(batch.sequence_begins)
        feeds = {
            "input_ids": batch.tokens,
            "position_ids": batch.positions,
            "past_lens": batch.past_lens,
            "subsequence_begins": batch.sequence_begins,
            "block_indices": batch.block_ids,
            "block_indices_begins": batch.block_begins,
            "max_context_len": np.array(lengths.max(), np.int32),
            "sampled_rows": batch.sampled_rows,
        }
        try:
            results = self._request.infer(feeds, share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            raise Internal(f"A step of the decoder failed: {error}") from error
        logits: Logits = results[0]
        return logits

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        return self._cache.export_blocks(block_ids)

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        check_payload(payload, num_blocks=len(block_ids), block_bytes=self._cache.block_bytes)
        self._cache.import_blocks(block_ids, payload=payload)

    def close(self) -> None:
        """Free the decoder and its cache; nothing else may be called afterwards."""
        del self._request, self._cache


def _settings(options: DecoderOptions) -> dict[str, str | int]:
    return {
        "INFERENCE_PRECISION_HINT": options.precision,
        "KV_CACHE_PRECISION": options.cache_precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": options.num_threads,
    }


def _make_cache(ports: Sequence[ov.Output], *, cache_mib: int) -> KvCache:
    assert ports, "every decoder has a layer"
    shapes = [
        tuple(int(size.get_length()) for size in list(port.partial_shape)[1:]) for port in ports
    ]
    dtype = ports[0].element_type
    for port, shape in zip(ports, shapes, strict=True):
        _check_layout(port, shape=shape, dtype=dtype)
    block_bytes = sum(int(np.prod(shape)) * dtype.size for shape in shapes)
    num_blocks = (cache_mib << 20) // block_bytes
    if num_blocks < 1:
        raise ResourceExhausted(
            f"cache_mib = {cache_mib} does not hold one block of {block_bytes} bytes; raise it"
        )
    return KvCache(shapes, dtype=dtype, num_blocks=num_blocks)


def _check_layout(port: ov.Output, *, shape: tuple[int, ...], dtype: ov.Type) -> None:
    is_key = port.any_name.startswith(_CACHE_PREFIXES[0])
    extra = _U8_EXTRA if dtype == ov.Type.u8 and is_key else 0
    if len(shape) != 3 or shape[1] != _BLOCK_SIZE + extra or port.element_type != dtype:
        raise FailedPrecondition(
            f"OpenVINO {ov.get_version()} lays the cache out as {port.any_name} "
            f"{port.element_type.get_type_name()}{list(shape)}, which this version of Aspira was "
            "not tested with; install the version that its constraints name"
        )
