"""Tells of each request, once it has ended, how it ended and how long it took."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, ServingError
from aspira.contracts.events import EventBus, RequestEnded


@dataclass(slots=True)
class Outcome:
    """What there is to say of a request besides; filled in as it becomes known."""

    model_name: str = ""
    version: int | None = None


class RequestCounter:
    """Of one entrypoint."""

    def __init__(self, entrypoint: str, *, events: EventBus, clock: Clock) -> None:
        self._entrypoint = entrypoint
        self._events = events
        self._clock = clock

    @contextmanager
    def count(self, api: str, *, model_name: str = "") -> Iterator[Outcome]:
        """Around the work of one request; errors pass through."""
        started_s, outcome, code = self._clock.now(), Outcome(model_name), Code.INTERNAL
        try:
            yield outcome
            code = Code.OK
        except ServingError as error:
            code = error.code
            raise
        except (asyncio.CancelledError, GeneratorExit, OSError):
            code = Code.CANCELLED
            raise
        finally:
            self._events.publish_request(
                RequestEnded(
                    outcome.model_name,
                    outcome.version,
                    api,
                    self._entrypoint,
                    code,
                    self._clock.now() - started_s,
                )
            )
