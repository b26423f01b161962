"""Looks at the model config file from time to time and applies it when it has changed.

A look that fails leaves everything as it is and is repeated, since the reason may go away: a
version that a label waits for becomes available, a file system comes back. It is logged once, and
again only when the reason changes. A file that says what it said before is not applied again, so a
reload by RPC stays in force until the file changes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from aspira.contracts.errors import FailedPrecondition, InvalidArgument, ServingError
from aspira.service.model_config import (
    Message,
    ModelConfigs,
    cannot_transition,
    decode_model_configs,
    parse_model_config_text,
)
from aspira.wire.text_format import read_text_file

Reload = Callable[[ModelConfigs], Awaitable[None]]

_REFUSALS = (InvalidArgument, FailedPrecondition)
"""Nothing was changed. Other errors come after the change, from models that did not load."""

_logger = logging.getLogger(__name__)


class ConfigWatch:
    """One file, one task. Methods: event loop only.

    `reload` raises as `ModelsService.reload` does. `is_unchanged_applied`: apply at each look
    what the file says, as the original does.
    """

    def __init__(
        self,
        path: Path,
        *,
        reload: Reload,
        poll_interval_s: float,
        is_unchanged_applied: bool = False,
    ) -> None:
        self._path = path
        self._is_unchanged_applied = is_unchanged_applied
        self._reload = reload
        self._poll_interval_s = poll_interval_s
        self._configs: ModelConfigs = {}
        self._text: str | None = None
        self._problem = ""
        self._poll_task: asyncio.Task[None] | None = None

    def start(self, configs: ModelConfigs) -> None:
        """Keep looking, if the interval is positive. `configs` is what the file said at first."""
        self._configs = configs
        if self._poll_interval_s > 0:
            self._poll_task = asyncio.get_running_loop().create_task(self._poll())

    async def stop(self) -> None:
        """End the looking. The configuration stays in force."""
        task, self._poll_task = self._poll_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def look(self) -> None:
        """Read the file, and apply it if it has changed. What goes wrong is logged."""
        try:
            text = await asyncio.to_thread(read_text_file, self._path)
            if text == self._text and not self._is_unchanged_applied:
                self._forget_problem()
                return
            message = await asyncio.to_thread(parse_model_config_text, text, origin=str(self._path))
        except ServingError as error:
            self._report(f"Failed to read ModelServerConfig file: {error.message}")
            return
        if await self._try_apply(message):
            self._text = text

    async def reread(self) -> None:
        """Read the file and apply it, whether or not it has changed.

        Raises:
            ServingError: as `reload`, or the file is no config file.
        """
        text = await asyncio.to_thread(read_text_file, self._path)
        message = await asyncio.to_thread(parse_model_config_text, text, origin=str(self._path))
        configs = decode_model_configs(message)
        if configs is None:
            raise cannot_transition()
        try:
            await self._reload(configs)
        except ServingError as error:
            if not isinstance(error, _REFUSALS):
                self._text, self._configs = text, configs
            raise
        self._text, self._configs = text, configs

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval_s)
            try:
                await self.look()
            except Exception:  # a bug met once must not end the looking
                _logger.exception("Looking at %s met a bug", self._path)

    async def _try_apply(self, message: Message) -> bool:
        """Whether nothing is left to be done about what the file says."""
        try:
            await self._apply(message)
        except ServingError as error:
            self._report(f"PollFilesystemAndReloadConfig failed to ReloadConfig: {error.message}")
            if isinstance(error, _REFUSALS):
                return False
        else:
            self._forget_problem()
        self._configs = decode_model_configs(message) or {}
        return True

    async def _apply(self, message: Message) -> None:
        configs = decode_model_configs(message)
        if (configs or {}) == self._configs and not self._is_unchanged_applied:
            return
        if configs is None:
            raise cannot_transition()
        await self._reload(configs)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            _logger.error("%s", problem)
        self._problem = problem

    def _forget_problem(self) -> None:
        if self._problem:
            _logger.info("The model config file %s is in force", self._path)
        self._problem = ""
