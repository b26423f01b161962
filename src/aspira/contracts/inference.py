"""A prediction: what is asked and what is answered, whatever the protocol."""

from typing import NamedTuple

from aspira.contracts.identity import ModelSpec, ServableId
from aspira.contracts.tensors import Tensors


class PredictRequest(NamedTuple):
    """Inputs by alias. An empty `output_filter` asks for all outputs.

    `deadline` is in seconds of the server's clock; None means none. A higher `priority` waits less;
    0 is the default. The arrays belong to the
    request and may be views of its bytes: nobody writes to them.
    """

    spec: ModelSpec
    inputs: Tensors
    output_filter: tuple[str, ...] = ()
    deadline: float | None = None
    priority: int = 0


class PredictResponse(NamedTuple):
    """Outputs by alias, in the signature's order, who answered, and how long the run took.

    `run_s` includes the wait in the queue.
    """

    outputs: Tensors
    servable_id: ServableId
    signature_name: str
    run_s: float = 0.0
