"""One session for all that use one version: its runner, and who answers plain predictions."""

import threading
from pathlib import Path

from aspira.llm.saved_decoders.session import DecoderSession


class SharedSession:
    """Opened for the first that acquires it, closed after the last releases it. Any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._session: DecoderSession | None = None
        self._num_users = 0
        self._lock = threading.Lock()

    def acquire(self) -> DecoderSession:
        """See `DecoderSession` for what it raises."""
        with self._lock:
            if self._session is None:
                self._session = DecoderSession(self.directory)
            self._num_users += 1
            return self._session

    def release(self) -> None:
        """After the last call of a function of the session."""
        with self._lock:
            self._num_users -= 1
            if self._num_users == 0 and self._session is not None:
                self._session.close()
                self._session = None
