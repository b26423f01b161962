"""Envoy's admin interface, over a UNIX socket that only this user can reach."""

import asyncio
import re
from pathlib import Path

_POLL_S = 0.02
# A client between two requests needs time to send the next, more of it on a busy machine.
_QUIET_S = 1.5
_MAX_WAIT_S = 4.0
_PAUSE_S = 0.1
_MAX_WAIT_FOR_PAUSE_S = 1.0
_STATS = "/stats?filter=^http.aspira.downstream_(rq_total|rq_active|cx_active)$"
_STAT = re.compile(rb"^http\.aspira\.downstream_(\w+): (\d+)$", re.MULTILINE)


class EnvoyAdmin:
    """The few questions and orders that a supervisor has."""

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path

    async def wait_live(self) -> None:
        """Return once Envoy has opened its ports."""
        while True:
            try:
                if (await self._request("GET", target="/ready")).startswith(b"HTTP/1.1 200"):
                    return
            except OSError:
                pass
            await asyncio.sleep(_POLL_S)

    async def begin_drain(self) -> None:
        """Ask clients to leave: `Connection: close` and GOAWAY with each answer from now on."""
        await self._try_request("POST", target="/healthcheck/fail")

    async def end_drain(self) -> None:
        """Close the ports, then wait until no connection is left, or those left are idle.

        A client that keeps sending gets a refusal that closes its connection. Which of the others
        are pooled for later and which are about to send can only be told by waiting.
        """
        # Closing a port cuts connections that Envoy has yet to accept, so wait for a pause.
        await self._wait_quiet(_PAUSE_S, at_most_s=_MAX_WAIT_FOR_PAUSE_S)
        await self._try_request("POST", target="/drain_listeners")
        await self._wait_quiet(_QUIET_S, at_most_s=_MAX_WAIT_S)

    async def _wait_quiet(self, quiet_s: float, *, at_most_s: float) -> None:
        """Until there is no connection, or nothing in flight and nothing new for `quiet_s`."""
        loop = asyncio.get_running_loop()
        last, changed_s = await self._read_stats(), loop.time()
        give_up_s = changed_s + at_most_s
        while last.get("cx_active") and loop.time() < give_up_s:
            if not last.get("rq_active") and loop.time() - changed_s >= quiet_s:
                return
            await asyncio.sleep(_POLL_S)
            now = await self._read_stats()
            if now != last:
                last, changed_s = now, loop.time()

    async def _read_stats(self) -> dict[str, int]:
        answer = await self._try_request("GET", target=_STATS)
        return {name.decode(): int(value) for name, value in _STAT.findall(answer)}

    async def _try_request(self, method: str, *, target: str) -> bytes:
        try:
            return await self._request(method, target=target)
        except OSError:
            return b""

    async def _request(self, method: str, *, target: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._socket_path))
        try:
            head = f"{method} {target} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
            return await reader.read()
        finally:
            writer.close()
