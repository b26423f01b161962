"""Answers plain predictions by a decoder's SavedModel: `input_ids` in, `predicted_id` out.

As TensorFlow Serving would, without a cache: whoever has only its clients can generate token by
token, and requests of equal length share a run.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.signatures import Signature, SignatureTable
from aspira.contracts.tensors import Tensor, Tensors
from aspira.llm.saved_decoders.description import read_description
from aspira.llm.saved_decoders.session import GENERATE_STEP, SERVING_DEFAULT
from aspira.llm.saved_decoders.shared_session import SharedSession
from aspira.wire.signature_def import decode_signature


class NextTokenLoader:
    """See `Loader`."""

    def __init__(self, shared: SharedSession) -> None:
        self._shared = shared

    def load(self) -> "NextTokenServable":
        return NextTokenServable(self._shared)


class NextTokenServable:
    """See `Servable`. The signatures that handle the cache are not to be had from outside."""

    def __init__(self, shared: SharedSession) -> None:
        self._shared = shared
        self._vocab_size = read_description(shared.directory).vocab_size
        session = shared.acquire()
        try:
            self._signatures = SignatureTable(
                {
                    name: decode_signature(session.signatures[name])
                    for name in (GENERATE_STEP, SERVING_DEFAULT)
                }
            )
            self._calls = MappingProxyType(
                {name: session.function(name) for name in self._signatures}
            )
        except BaseException:
            shared.release()
            raise

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._signatures

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`.

        Raises:
            InvalidArgument: what was sent are no rows of token ids.
        """
        for name, tensor in inputs.items():
            _check_token_ids(tensor, name=name, vocab_size=self._vocab_size)
        result = np.asarray(self._calls[signature_name](**inputs))
        return dict.fromkeys(outputs, result)

    def unload(self) -> None:
        """Free the decoder if nobody else uses it."""
        self._shared.release()


def _check_token_ids(ids: Tensor, *, name: str, vocab_size: int) -> None:
    """Before the graph, whose own errors name its nodes, and which takes some mistakes for tokens.

    Raises:
        InvalidArgument: there are other ids than the model's, or -1 elsewhere than at the end of
            rows, or rows without tokens.
    """
    if ids.ndim != 2:
        raise InvalidArgument(
            f"{name} must be of two dimensions, rows of token ids; not {ids.ndim}."
        )
    # Two passes that allocate nothing: requests may have millions of ids.
    if ids.size and not -1 <= ids.min() <= ids.max() < vocab_size:
        found = ids.min() if ids.min() < -1 else ids.max()
        raise InvalidArgument(
            f"{name} has the token {found}; the model's tokens are 0 to {vocab_size - 1}, and -1 "
            "fills up rows that are shorter than others."
        )
    is_token = np.greater_equal(ids, 0)
    if len(ids) and not (ids.shape[1] and is_token[:, 0].all()):
        raise InvalidArgument(f"{name} has a row without tokens; there is nothing to go on from.")
    if (is_token[:, 1:] > is_token[:, :-1]).any():
        raise InvalidArgument(f"{name} has -1 before a token; it fills up the end of rows alone.")
