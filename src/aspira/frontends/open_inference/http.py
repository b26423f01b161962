"""The protocol over HTTP: an endpoint for each kind of path."""

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson

from aspira.contracts.errors import ServingError
from aspira.contracts.identity import ModelSpec
from aspira.frontends.asgi import Scope
from aspira.frontends.generation.asgi import Endpoint, HttpApi, HttpCall
from aspira.frontends.generation.errors import ErrorAnswer, headers_of, status_of
from aspira.frontends.offload import LARGE_BYTES, count_bytes, on_thread
from aspira.frontends.open_inference.data_plane import DataPlane
from aspira.frontends.open_inference.descriptions import (
    EXTENSIONS,
    SERVER_NAME,
    SERVER_VERSION,
    Descriptions,
    TensorDescription,
)
from aspira.frontends.open_inference.infer_json import HEADER_LENGTH, decode_infer, encode_infer
from aspira.frontends.open_inference.routes import find_route
from aspira.frontends.open_inference.text_json import decode_text, encode_text
from aspira.frontends.priority import PRIORITY_HEADER, parse_priority

_MAX_BODY_BYTES = 2**31 - 1
_NOT_READY = 400
_RAW = "application/octet-stream"


class OpenInferenceHttp:
    """Event loop only. `timeout_s` is the deadline of a prediction; 0 or less means none."""

    def __init__(self, plane: DataPlane, *, descriptions: Descriptions, timeout_s: float) -> None:
        self._plane = plane
        self._descriptions = descriptions
        self._timeout_s = timeout_s

    @property
    def api(self) -> HttpApi:
        """All its paths begin with one of `PREFIXES`."""
        return HttpApi("open_inference", self._find, encode_error, max_body_bytes=_MAX_BODY_BYTES)

    def _find(self, scope: Scope) -> Endpoint:
        verb, spec = find_route(scope["raw_path"].decode("utf-8", "replace"))
        if spec is None:
            return Endpoint("GET", partial(self._tell_of_server, question=verb))
        match verb:
            case "infer":
                return Endpoint("POST", partial(self._infer, spec=spec), api=verb)
            case "generate":
                return Endpoint("POST", partial(self._generate, spec=spec), api=verb)
            case "generate_stream":
                return Endpoint("POST", partial(self._generate_stream, spec=spec), api=verb)
            case "ready":
                return Endpoint("GET", partial(self._tell_ready, spec=spec))
            case _:
                return Endpoint("GET", partial(self._describe, spec=spec, verb=verb))

    async def _tell_of_server(self, call: HttpCall, *, question: str) -> None:
        match question:
            case "live":
                await call.responder.answer(orjson.dumps({"live": True}))
            case "ready":
                is_ready = self._descriptions.is_ready
                status = 200 if is_ready else _NOT_READY
                await call.responder.answer(orjson.dumps({"ready": is_ready}), status=status)
            case _:
                body = {"name": SERVER_NAME, "version": SERVER_VERSION, "extensions": EXTENSIONS}
                await call.responder.answer(orjson.dumps(body))

    async def _tell_ready(self, call: HttpCall, *, spec: ModelSpec) -> None:
        try:
            self._descriptions.check_ready(spec)
        except ServingError as error:
            body = orjson.dumps({"error": error.message, "ready": False})
            await call.responder.answer(body, status=_NOT_READY)
        else:
            await call.responder.answer(orjson.dumps({"name": spec.name, "ready": True}))

    async def _describe(self, call: HttpCall, *, spec: ModelSpec, verb: str) -> None:
        model = self._descriptions.describe(spec)
        if verb == "config":
            body: dict[str, Any] = {
                "name": model.name,
                "platform": model.platform,
                "backend": SERVER_NAME,
                "max_batch_size": 0,
                "input": [_configure(one) | {"optional": one.is_optional} for one in model.inputs],
                "output": [_configure(one) for one in model.outputs],
                "model_transaction_policy": {"decoupled": model.is_decoupled},
            }
        else:
            body = {
                "name": model.name,
                "versions": [str(version) for version in model.versions],
                "platform": model.platform,
                "inputs": [_describe_tensor(one) for one in model.inputs],
                "outputs": [_describe_tensor(one) for one in model.outputs],
            }
        await call.responder.answer(orjson.dumps(body))

    async def _infer(self, call: HttpCall, *, spec: ModelSpec) -> None:
        call.outcome.model_name = spec.name
        decode = partial(
            decode_infer, call.body, headers=call.headers, spec=spec, arrival=call.arrival
        )
        is_large = len(call.body) >= LARGE_BYTES
        order = await on_thread(decode) if is_large else decode()
        answer = await self._plane.infer(
            order.request._replace(
                deadline=call.arrival + self._timeout_s if self._timeout_s > 0 else None,
                priority=parse_priority(call.headers.get(PRIORITY_HEADER, b"")),
            )
        )
        call.outcome.version = answer.servable_id.version
        encode = partial(encode_infer, answer, order=order)
        is_large = count_bytes(answer.outputs.values()) >= LARGE_BYTES
        body, header_length = await on_thread(encode) if is_large else encode()
        if header_length is None:
            await call.responder.answer(body)
            return
        headers = {HEADER_LENGTH.decode(): str(header_length)}
        await call.responder.answer(body, content_type=_RAW, headers=headers)

    async def _generate(self, call: HttpCall, *, spec: ModelSpec) -> None:
        call.outcome.model_name = spec.name
        request, request_id = await decode_text(call.body, spec=spec, arrival=call.arrival)
        answer = await self._plane.generate(request)
        call.outcome.version = answer.servable_id.version
        await call.responder.answer(encode_text(answer, request_id=request_id))

    async def _generate_stream(self, call: HttpCall, *, spec: ModelSpec) -> None:
        call.outcome.model_name = spec.name
        request, request_id = await decode_text(call.body, spec=spec, arrival=call.arrival)
        is_started = False
        async with aclosing(self._plane.generate_stream(request)) as answers:
            async for answer in answers:
                if not is_started:
                    # Only now: what cannot be queued is refused by a status of its own.
                    await call.responder.start_events()
                    is_started = True
                elif answer is None:
                    await call.responder.keep_alive()
                if answer is None:
                    continue
                call.outcome.version = answer.servable_id.version
                await call.responder.send_event(encode_text(answer, request_id=request_id))
        await call.responder.end_events()


def encode_error(error: ServingError) -> ErrorAnswer:
    """As the protocol has it: an object with the text."""
    body = orjson.dumps({"error": error.message})
    return ErrorAnswer(status_of(error), body, headers_of(error))


def _describe_tensor(tensor: TensorDescription) -> Mapping[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _configure(tensor: TensorDescription) -> dict[str, Any]:
    data_type = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{data_type}", "dims": tensor.shape}
