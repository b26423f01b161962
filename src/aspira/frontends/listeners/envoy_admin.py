"""Envoy's admin interface, over a UNIX socket that only this user can reach."""

import asyncio
import re
from pathlib import Path

_POLL_S = 0.02
_FLUSH_S = 2.0
_GAUGE = re.compile(
    rb"^http\.aspira\.downstream_(?:rq_active|cx_tx_bytes_buffered): (\d+)$", re.MULTILINE
)


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

    async def wait_flushed(self) -> None:
        """Return once the last bytes of the last answers have left, or it takes too long."""
        try:
            async with asyncio.timeout(_FLUSH_S):
                while not await self._is_flushed():
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return

    async def _is_flushed(self) -> bool:
        answer = await self._try_request("GET", target="/stats?filter=^http.aspira.downstream_")
        return all(int(value) == 0 for value in _GAUGE.findall(answer))

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
