"""Threads for work on file systems, any of which may hang for ever.

A call into a dead mount cannot be cut short. So a thread may be lost at any time: the owner starts
another for what is still queued. Threads end when nothing is queued; lost ones hold up no exit.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Job = Callable[[], None]


class FileThreads:
    """A queue of jobs, which must not raise, and the threads that its owner starts for them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job] = SimpleQueue()

    def submit(self, job: Job) -> None:
        """Queue it for the threads started after this."""
        self._jobs.put(job)

    def start(self, num_threads: int) -> None:
        """Work on what is queued with so many threads more."""
        for _ in range(num_threads):
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            job()
