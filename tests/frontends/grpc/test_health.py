import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from asgi_exchange import Answer, exchange
from aspira.contracts.errors import Code, Internal, InvalidArgument, Unavailable
from aspira.frontends.grpc import health
from aspira.frontends.grpc.health import HealthServicer
from aspira.frontends.grpc.options import GrpcOptions
from aspira.service.drain import RequestGate
from aspira.settings import Settings
from grpc_exchange import CallResult, call_request, read_result
from serving_toys import ask, running, single_model, write_version

CHECK = "/grpc.health.v1.Health/Check"
SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


def check(settings: Settings, *, service: str) -> CallResult:
    (answer,) = ask(settings, call_request(CHECK, HealthCheckRequest(service=service)))
    return read_result(answer, answer_class=HealthCheckResponse)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_version(tmp_path / "m", version=1)
    return single_model(tmp_path / "m")


@pytest.mark.parametrize(
    "service",
    ["", "m", "tensorflow.serving.PredictionService", "PredictionService", "ModelService"],
)
def test_a_server_that_can_answer_is_serving(settings: Settings, service: str) -> None:
    assert check(settings, service=service).messages == [HealthCheckResponse(status=SERVING)]


@pytest.mark.parametrize("service", ["", "m", "PredictionService"])
def test_a_server_without_its_model_is_not(tmp_path: Path, service: str) -> None:
    answered = check(single_model(tmp_path / "missing"), service=service)
    assert answered.messages == [HealthCheckResponse(status=NOT_SERVING)]


def test_an_unknown_name_is_not_found(settings: Settings) -> None:
    answered = check(settings, service="other")
    assert answered == CallResult([], Code.NOT_FOUND, "Unknown service or model: other")


def test_a_server_that_drains_is_not_serving(settings: Settings) -> None:
    async def run() -> Answer:
        async with running(settings) as server:
            server.gate.close()
            request = call_request(CHECK, HealthCheckRequest())
            return await exchange(server.application, request=request)

    result = read_result(asyncio.run(run()), answer_class=HealthCheckResponse)
    assert result.messages == [HealthCheckResponse(status=NOT_SERVING)]


def test_health_can_be_turned_off(settings: Settings) -> None:
    without = replace(settings, grpc=GrpcOptions(is_health_enabled=False))
    (answer,) = ask(without, call_request(CHECK, HealthCheckRequest()))
    assert answer.headers["grpc-status"] == str(int(Code.UNIMPLEMENTED))


class _AnswersEnded(Exception):
    pass


def watch(answers: Iterator[bool | None], *requests: HealthCheckRequest) -> list[int]:
    """The statuses told until `answers` end."""
    told: list[int] = []

    def check_health(service: str) -> bool | None:
        try:
            return next(answers)
        except StopIteration:
            raise _AnswersEnded from None

    servicer = HealthServicer(check_health, gate=RequestGate())

    async def messages() -> AsyncIterator[HealthCheckRequest]:
        for request in requests:
            yield request

    async def run() -> None:
        async for response in servicer.watch(messages()):
            told.append(response.status)  # noqa: PERF401 - it ends in an error

    with pytest.raises(_AnswersEnded):
        asyncio.run(run())
    return told


def test_a_watch_tells_the_status_and_then_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_WATCH_INTERVAL_S", 0.0)
    answers: list[bool | None] = [True, True, False, False, True, None]
    told = watch(iter(answers), HealthCheckRequest())
    assert told == [SERVING, NOT_SERVING, SERVING, SERVICE_UNKNOWN]


def test_a_watch_of_an_unknown_name_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_WATCH_INTERVAL_S", 0.0)
    assert watch(iter([None, None, True]), HealthCheckRequest(service="m")) == [
        SERVICE_UNKNOWN,
        SERVING,
    ]


def test_a_watch_without_a_message_is_refused() -> None:
    with pytest.raises(Internal, match="The request stream ended without a message"):
        watch(iter([True]))


def test_a_watch_of_two_names_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Watch takes a single message"):
        watch(iter([True]), HealthCheckRequest(), HealthCheckRequest())


async def told(requests: Iterable[HealthCheckRequest]) -> AsyncIterator[HealthCheckRequest]:
    for request in requests:
        yield request


def watch_until_closed(servicer: HealthServicer, *, gate: RequestGate) -> list[int]:
    """The statuses told by a watch that the shutdown ends, which comes after the first."""
    statuses = []

    async def run() -> None:
        async for response in servicer.watch(told([HealthCheckRequest()])):
            statuses.append(response.status)
            gate.close()

    with pytest.raises(Unavailable, match="The server is shutting down"):
        asyncio.run(run())
    return statuses


def test_a_watch_ends_once_it_has_told_that_the_server_shuts_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_WATCH_INTERVAL_S", 0.0)
    gate = RequestGate()
    servicer = HealthServicer(lambda service: gate.is_open, gate=gate)
    assert watch_until_closed(servicer, gate=gate) == [SERVING, NOT_SERVING]


def test_a_watch_that_comes_late_is_told_and_ends() -> None:
    gate = RequestGate()
    gate.close()
    servicer = HealthServicer(lambda service: False, gate=gate)
    assert watch_until_closed(servicer, gate=gate) == [NOT_SERVING]


def test_watches_share_what_they_look_up() -> None:
    asked: list[str] = []

    def check_health(service: str) -> bool:
        asked.append(service)
        return True

    servicer = HealthServicer(check_health, gate=RequestGate())

    async def run() -> list[int]:
        names = ["m", "m", "", "m"]
        watches = [servicer.watch(told([HealthCheckRequest(service=name)])) for name in names]
        return [(await anext(watch)).status for watch in watches]

    assert asyncio.run(run()) == [SERVING] * 4
    assert asked == ["m", ""]
