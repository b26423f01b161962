"""Profiles on demand: one at a time, on a thread of its own, and never longer than is wanted."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from aspira.contracts.errors import Cancelled, Internal, InvalidArgument
from aspira.runtimes.profiler import Profile, take_profile

_MAX_DURATION_S = 600.0
# A client whose clock runs ahead must not make the server wait for it.
_MAX_DELAY_S = 60.0

TakeProfile = Callable[[Callable[[], bool]], Profile | None]


class ProfileOrder(NamedTuple):
    """`session_id` is what the client calls it. `start_s`, since the epoch, may have passed."""

    session_id: str
    duration_s: float
    start_s: float = 0.0


class ProfilingService:
    """Owns the profiler. Event loop only."""

    def __init__(self, take: TakeProfile = take_profile) -> None:
        self._take = take
        self._thread = ThreadPoolExecutor(1, "aspira-profile")
        self._session: _Session | None = None

    async def profile(self, order: ProfileOrder) -> Profile:
        """What the process does for a time, or until `terminate` or `stop`.

        If the caller is cancelled, the profile ends and is thrown away.

        Raises:
            InvalidArgument: longer than profiles may be.
            Internal: another profile is being taken.
        """
        if order.duration_s > _MAX_DURATION_S:
            raise InvalidArgument(
                f"A profile of {order.duration_s:g} s is too long; at most {_MAX_DURATION_S:g} s"
            )
        if self._session is not None:
            raise Internal("Another profiling session active.")
        session = self._session = _Session(order)
        loop = asyncio.get_running_loop()
        try:
            work = partial(session.run, self._take)
            profile = await loop.run_in_executor(self._thread, work)
        finally:
            session.discard()
            self._session = None
        if profile is None:
            raise Cancelled("The profile was given up")
        return profile

    def terminate(self, session_id: str) -> None:
        """End a profile before its time; its client gets what there is."""
        if self._session is not None and self._session.order.session_id == session_id:
            self._session.finish()

    def stop(self) -> None:
        """End the profile that is being taken, if any, as `terminate`, and the thread."""
        if self._session is not None:
            self._session.finish()
        self._thread.shutdown(wait=False)


class _Session:
    """One profile, on the profiler's thread; ended from the event loop."""

    def __init__(self, order: ProfileOrder) -> None:
        self.order = order
        self._ended = threading.Event()
        self._is_wanted = True

    def run(self, take: TakeProfile) -> Profile | None:
        delay_s = min(self.order.start_s - time.time(), _MAX_DELAY_S)
        if delay_s > 0:
            self._ended.wait(delay_s)
        return take(self._wait) if self._is_wanted else None

    def finish(self) -> None:
        self._ended.set()

    def discard(self) -> None:
        self._is_wanted = False
        self._ended.set()

    def _wait(self) -> bool:
        self._ended.wait(self.order.duration_s)
        return self._is_wanted
