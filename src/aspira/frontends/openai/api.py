"""OpenAI's API over HTTP: all its paths are asked by POST, with a JSON object."""

from functools import partial

from aspira.frontends.asgi import Scope
from aspira.frontends.generation.asgi import Endpoint, HttpApi, HttpCall
from aspira.frontends.generation.fields import read_fields
from aspira.frontends.openai.endpoints import ROUTES, Call, Endpoints, Route
from aspira.frontends.openai.errors import encode_error

_MAX_BODY_BYTES = 32 << 20
_LAST_EVENT = b"[DONE]"


def openai_api(endpoints: Endpoints) -> HttpApi:
    """`PATHS`, and no others."""

    def find_endpoint(scope: Scope) -> Endpoint:
        route = ROUTES[scope["path"].rstrip("/")]
        return Endpoint("POST", partial(_answer, route=route, endpoints=endpoints), api=route.api)

    return HttpApi(
        "openai",
        find_endpoint,
        encode_error,
        max_body_bytes=_MAX_BODY_BYTES,
        last_event=_LAST_EVENT,
    )


async def _answer(call: HttpCall, *, route: Route, endpoints: Endpoints) -> None:
    fields = await read_fields(call.body)
    await route.answer(endpoints, Call(fields, call.arrival, call.responder, call.outcome))
