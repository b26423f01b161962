"""What all versions share."""

from typing import NamedTuple

from aspira.batching.completions import Completions
from aspira.contracts.clock import Clock, ThreadCpuClock
from aspira.contracts.events import EventBus
from aspira.contracts.tensors import Tensors


class BatchingContext(NamedTuple):
    """The server's clock, its way back to the loop, its events, and the clock of its CPU time."""

    clock: Clock
    completions: Completions[Tensors]
    events: EventBus
    cpu_clock: Clock = ThreadCpuClock()
