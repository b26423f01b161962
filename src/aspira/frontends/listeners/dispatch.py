"""One ASGI application for all protocols, so that any of them may come in on any port."""

import logging
from collections.abc import Mapping
from types import MappingProxyType

from aspira.frontends.asgi import Application, Receive, Scope, Send

_GRPC = b"application/grpc"

_logger = logging.getLogger(__name__)


_REST_IS_OFF = b"REST is off here; --rest_api_port turns it on\n"


async def answer_rest_is_off(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    """An ASGI application for servers that are to speak gRPC alone."""
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else _REST_IS_OFF
    await send({"type": "http.response.body", "body": body})


_NO_PATHS: Mapping[str, Application] = MappingProxyType({})


class Dispatcher:
    """Hands a request to gRPC by its content type, to others by its path, and the rest to REST.

    `by_prefix` goes by the first four characters of a path, such as `/v2/`.
    """

    def __init__(
        self,
        *,
        grpc: Application,
        rest: Application,
        by_path: Mapping[str, Application] = _NO_PATHS,
        by_prefix: Mapping[str, Application] = _NO_PATHS,
    ) -> None:
        self._grpc = grpc
        self._rest = rest
        # Predictions pass here: look-ups in plain dictionaries are all that this costs them.
        self._by_path = dict(by_path)
        self._by_prefix = dict(by_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_grpc(scope):
            application = self._grpc
        else:
            path = scope["path"]
            application = self._by_path.get(path) or self._by_prefix.get(path[:4], self._rest)
        try:
            await application(scope, receive, send)
        except OSError:
            # What a server raises from `send` when the client has left before its answer.
            return
        except Exception:
            # The frontends answer every error of their own, so this is a bug of theirs.
            _logger.exception("A request was not answered: %s", scope.get("path"))


def _is_grpc(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bytes(value).startswith(_GRPC)
    return False
