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
    """Hands a request to gRPC by its content type, to others by its path, and the rest to REST."""

    def __init__(
        self,
        *,
        grpc: Application,
        rest: Application,
        by_path: Mapping[str, Application] = _NO_PATHS,
    ) -> None:
        self._grpc = grpc
        self._rest = rest
        # Predictions pass here: a look-up in a plain dictionary is all that this costs them.
        self._by_path = dict(by_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_grpc(scope):
            application = self._grpc
        else:
            application = self._by_path.get(scope["path"], self._rest)
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
