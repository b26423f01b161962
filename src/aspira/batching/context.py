"""What the schedulers of all versions share."""

from typing import NamedTuple

from aspira.batching.completions import Completions
from aspira.contracts.clock import Clock
from aspira.contracts.events import EventBus
from aspira.contracts.tensors import Tensors


class BatchingContext(NamedTuple):
    """The server's clock, its way back to the loop, and its events."""

    clock: Clock
    completions: Completions[Tensors]
    events: EventBus
