"""Envoy's admin interface, over a UNIX socket that only this user can reach."""

import asyncio
import re
from pathlib import Path

_POLL_S = 0.02
_QUIET_S = 0.2
_MAX_WAIT_S = 3.0
_STATS = "/stats?filter=^http.aspira.downstream_(rq_total|rq_active|cx_tx_bytes_buffered)$"
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
        """Close the ports, then wait until every connection in use has had its last answer.

        A client that keeps sending gets a refusal that closes its connection, so the number of
        requests soon stands still; only idle connections are left to be cut.
        """
        await self._try_request("POST", target="/drain_listeners")
        try:
            async with asyncio.timeout(_MAX_WAIT_S):
                before = await self._read_stats()
                while True:
                    await asyncio.sleep(_QUIET_S)
                    now = await self._read_stats()
                    is_idle = not now.get("rq_active") and not now.get("cx_tx_bytes_buffered")
                    if is_idle and now == before:
                        return
                    before = now
        except TimeoutError:
            return

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
