"""A loaded version of an encoder: texts to tokens on a pool, tokens to vectors by the batcher."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.servable import BatchedServable
from aspira.contracts.embedding import EmbeddingLimits, TextInput
from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ServableId
from aspira.llm.encoders.options import EncoderOptions
from aspira.llm.encoders.sentence_files import SentenceRules
from aspira.llm.encoders.servable import EMBEDDING, TOKENS_SIGNATURE, EncoderServable, pad_rows
from aspira.llm.encoders.text import EncoderText, TokenIds

_ADVICE = " (it is an embedding model: ask /v1/embeddings)"
_MAX_ROWS = 2048
# Texts of one request beyond so many wait as if they had come a little later, so that a request of
# thousands does not hold up one of a single text.
_TEXTS_PER_STEP = 32


class Embeddings(NamedTuple):
    """One vector for each text, [texts, dimensions], and the tokens of all texts together."""

    vectors: npt.NDArray[np.float32]
    num_tokens: int


class EmbeddingModel(BatchedServable):
    """See `Served`. Each text is a request of the batcher, so clients share runs text by text."""

    def __init__(
        self,
        servable: EncoderServable,
        *,
        text: EncoderText,
        rules: SentenceRules,
        servable_id: ServableId,
        queue: "EncoderQueue",
        context: BatchingContext,
    ) -> None:
        super().__init__(
            servable,
            servable_id=servable_id,
            options=queue.options,
            parameters=queue.parameters,
            context=context,
        )
        self._text = text
        self._rules = rules
        self._dimensions = servable.dimensions

    @property
    def signature_advice(self) -> str:
        return _ADVICE

    async def embed(self, texts: Sequence[TextInput], *, limits: EmbeddingLimits) -> Embeddings:
        """The vectors of all texts.

        Raises:
            ServingError: a text or a limit is refused, the queue is full, or a run failed.
        """
        self._check_dimensions(limits.dimensions)
        cut = limits.max_tokens
        cut = None if cut is None else min(cut, self._text.max_tokens)
        loop = asyncio.get_running_loop()
        ids = await loop.run_in_executor(None, partial(self._text.encode, texts, cut=cut))
        vectors = await self._run_all(ids)
        if limits.dimensions is not None:
            vectors = _shorten(vectors, dimensions=limits.dimensions, rules=self._rules)
        return Embeddings(vectors, sum(map(len, ids)))

    async def _run_all(self, texts: Sequence[TokenIds]) -> npt.NDArray[np.float32]:
        # Neighbours in the queue share a run, the better the more alike their lengths are.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._run_one(texts[index], priority=-(place // _TEXTS_PER_STEP)))
            for place, index in enumerate(order)
        ]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        vectors[order] = np.concatenate(found)
        return vectors

    async def _run_one(self, text: TokenIds, *, priority: int) -> npt.NDArray[np.float32]:
        ids, lengths = pad_rows([text])
        outputs = await self.run(
            TOKENS_SIGNATURE,
            inputs={"input_ids": ids, "num_tokens": lengths},
            outputs=(EMBEDDING,),
            deadline=None,
            priority=priority,
        )
        vector: npt.NDArray[np.float32] = np.asarray(outputs[EMBEDDING], np.float32)
        return vector

    def _check_dimensions(self, dimensions: int | None) -> None:
        allowed = {self._dimensions, *self._rules.dimensions}
        if dimensions is None or dimensions in allowed:
            return
        if self._rules.has_any_dimension and 1 <= dimensions <= self._dimensions:
            return
        raise InvalidArgument(
            f"dimensions = {dimensions} is not what this model was trained for: "
            f"{', '.join(map(str, sorted(allowed)))}"
            f"{f', or any up to {self._dimensions}' if self._rules.has_any_dimension else ''}"
        )


class EncoderQueue(NamedTuple):
    """How an encoder's requests wait, and share runs whatever flags say of other models."""

    options: BatchingOptions
    parameters: BatchingParameters


def make_queue(options: BatchingOptions, *, encoder: EncoderOptions) -> EncoderQueue:
    """Texts share a run while another one goes on; of any length, and of any request."""
    size = encoder.max_batch_texts
    parameters = BatchingParameters(
        max_batch_size=max(_MAX_ROWS, size),
        max_execution_batch_size=size,
        max_enqueued_batches=max(options.max_queued_requests // size, 1),
        # A run uses all CPUs.
        num_threads=1,
        pad_variable_length_inputs=True,
        can_split=True,
    )
    return EncoderQueue(options, parameters)


def _shorten(
    vectors: npt.NDArray[np.float32], *, dimensions: int, rules: SentenceRules
) -> npt.NDArray[np.float32]:
    cut = vectors[:, :dimensions]
    if not rules.is_normalized:
        return cut
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    shortened: npt.NDArray[np.float32] = cut / np.maximum(lengths, np.float32(1e-12))
    return shortened
