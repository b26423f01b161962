"""Runs a decoder that was exported as a SavedModel, on TensorFlow."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from aspira.contracts.errors import InvalidArgument, ResourceExhausted
from aspira.llm.batch_checks import check_batch, check_payload
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.runner import BlockPayload, Logits, StepBatch
from aspira.llm.saved_decoders.compiled_steps import CompiledSteps
from aspira.llm.saved_decoders.description import FORMAT, DecoderDescription
from aspira.llm.saved_decoders.session import (
    INIT_CACHE,
    READ_BLOCKS,
    STEP,
    STEP_COMPILED,
    WRITE_BLOCKS,
)
from aspira.llm.saved_decoders.shared_session import SharedSession
from aspira.llm.saved_decoders.step_inputs import BLOCK_SIZE
from aspira.llm.saved_decoders.step_layout import lay_out


class TensorflowRunner:
    """See `Runner`. Its last block is nobody's: what spans lack of blocks is read from there."""

    def __init__(
        self, shared: SharedSession, *, description: DecoderDescription, options: DecoderOptions
    ) -> None:
        """Memory of the cache is taken as it is first used.

        Raises:
            ServingError: the model cannot be loaded, or not with these options.
        """
        _check_options(options, description=description)
        self._description = description
        self._block_shape = (
            2 * description.num_layers,
            description.num_kv_heads,
            BLOCK_SIZE,
            description.head_size,
        )
        self._dtype = np.dtype(
            {"f32": np.float32, "bf16": ml_dtypes.bfloat16}[description.precision]
        )
        self._block_bytes = int(np.prod(self._block_shape)) * self._dtype.itemsize
        self._num_blocks = _choose_num_blocks(options, block_bytes=self._block_bytes)
        self._shared = shared
        session = shared.acquire()
        try:
            self._step = session.function(STEP)
            self._init_cache = session.function(INIT_CACHE)
            self._read_blocks = session.function(READ_BLOCKS)
            self._write_blocks = session.function(WRITE_BLOCKS)
            self._init_cache(num_blocks=self._num_blocks + 1)
            unused = np.zeros((1, self._block_bytes), np.uint8)
            self.import_blocks([self._num_blocks], payload=unused)
            self._compiled = CompiledSteps(
                session.function(STEP_COMPILED), graph=self._step, unused_block=self._num_blocks
            )
            if options.compiled_sequences:
                self._compiled.compile(
                    options.compiled_sequences, max_context=description.max_context
                )
            self._num_compilations = self._compiled.num_compilations
        except BaseException:
            shared.release()
            raise

    @property
    def block_size(self) -> int:
        return BLOCK_SIZE

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def vocab_size(self) -> int:
        return self._description.vocab_size

    @property
    def max_context(self) -> int:
        return self._description.max_context

    @property
    def kv_fingerprint(self) -> str:
        description = self._description
        return f"{description.digest}/saved-model-{FORMAT}/{description.precision}"

    @property
    def num_late_compilations(self) -> int:
        return self._compiled.num_compilations - self._num_compilations

    def run(self, batch: StepBatch) -> Logits:
        """See `Runner.run`."""
        check_batch(batch, runner=self)
        inputs = lay_out(batch, unused_block=self._num_blocks)
        logits = self._compiled.try_run(inputs)
        if logits is None:
            logits = self._step(**inputs._asdict())
        return logits

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        blocks = self._read_blocks(block_ids=np.asarray(block_ids, np.int32))
        flat: BlockPayload = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8)
        return flat.reshape(len(block_ids), self._block_bytes)

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        check_payload(payload, num_blocks=len(block_ids), block_bytes=self._block_bytes)
        blocks = np.ascontiguousarray(payload).view(self._dtype)
        self._write_blocks(
            block_ids=np.asarray(block_ids, np.int32),
            blocks=blocks.reshape(len(block_ids), *self._block_shape),
        )

    def close(self) -> None:
        """Free the cache, and the decoder if nobody else uses it."""
        try:
            self._init_cache(num_blocks=0)
        finally:
            self._shared.release()


def _check_options(options: DecoderOptions, *, description: DecoderDescription) -> None:
    asked = (options.precision, options.cache_precision, options.weight_format)
    if not {*asked} <= {"auto", description.precision}:
        raise InvalidArgument(
            f"This SavedModel was exported in {description.precision}: leave precision, "
            "cache_precision and weight_format on auto, or export the model again"
        )
    if options.num_threads:
        raise InvalidArgument(
            "num_threads is not for SavedModels, since TensorFlow has one pool of threads for all "
            "models; remove it"
        )


def _choose_num_blocks(options: DecoderOptions, *, block_bytes: int) -> int:
    num_blocks = (options.cache_mib << 20) // block_bytes - 1
    if num_blocks < 1:
        raise ResourceExhausted(
            f"cache_mib = {options.cache_mib} does not hold two blocks of {block_bytes} bytes; "
            "raise it"
        )
    return num_blocks
