"""Answers plain predictions by a decoder's SavedModel: `input_ids` in, `predicted_id` out.

As TensorFlow Serving would, without a cache: whoever has only its clients can generate token by
token, and requests of equal length share a run.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from aspira.contracts.signatures import Signature, SignatureTable
from aspira.contracts.tensors import Tensors
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
        """See `Servable.run`."""
        result = np.asarray(self._calls[signature_name](**inputs))
        return dict.fromkeys(outputs, result)

    def unload(self) -> None:
        """Free the decoder if nobody else uses it."""
        self._shared.release()
