import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import Code
from aspira.frontends.grpc.asgi import GrpcApplication
from aspira.frontends.grpc.profiler import ProfilerServicer
from aspira.runtimes.profiler import Profile
from aspira.service.drain import RequestGate
from aspira.service.profiling import ProfilingService
from aspira.wire.profiler_service import make_profiler_messages
from grpc_exchange import CallResult, call

SERVICE = "/tensorflow.ProfilerService"
MESSAGES = make_profiler_messages()


def ask(
    method: str, message: Any, *, answer_class: Any, is_empty: bool = False
) -> tuple[CallResult, list[bool]]:
    """The answer, and whether profiles were taken and wanted."""
    taken: list[bool] = []

    def take(wait: Callable[[], bool]) -> Profile:
        taken.append(wait())
        return Profile(b"spans", is_empty)

    async def run() -> CallResult:
        profiling = ProfilingService(take)
        methods = ProfilerServicer(profiling).methods()
        application = GrpcApplication(methods, gate=RequestGate(), clock=SystemClock())
        try:
            return await call(
                application, path=f"{SERVICE}/{method}", message=message, answer_class=answer_class
            )
        finally:
            profiling.stop()

    return asyncio.run(run()), taken


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_profile_is_handed_to_the_client_to_save(is_empty: bool) -> None:
    request = MESSAGES.profile_request(duration_ms=1, session_id="s")
    result, taken = ask(
        "Profile", request, answer_class=MESSAGES.profile_response, is_empty=is_empty
    )
    (response,) = result.messages
    assert [(tool.name, tool.data) for tool in response.tool_data] == [("xplane.pb", b"spans")]
    assert response.empty_trace is is_empty
    assert response.xspace == b""
    assert taken == [True]


def test_a_profile_is_told_in_the_answer_itself_if_so_wanted() -> None:
    request = MESSAGES.profile_request(emit_xspace=True)
    result, _ = ask("Profile", request, answer_class=MESSAGES.profile_response)
    (response,) = result.messages
    assert response.xspace == b"spans"
    assert not response.tool_data


def test_the_duration_of_the_options_counts_before_the_old_field() -> None:
    request = MESSAGES.profile_request(duration_ms=1)
    request.opts.duration_ms = 601_000
    result, taken = ask("Profile", request, answer_class=MESSAGES.profile_response)
    assert result.code is Code.INVALID_ARGUMENT
    assert taken == []


def test_the_termination_of_what_nobody_knows_is_no_error() -> None:
    request = MESSAGES.terminate_request(session_id="s")
    result, _ = ask("Terminate", request, answer_class=MESSAGES.terminate_response)
    assert result.code is Code.OK


def test_monitoring_is_refused_as_in_the_original() -> None:
    result, _ = ask("Monitor", MESSAGES.monitor_request(), answer_class=MESSAGES.monitor_request)
    assert result == CallResult([], Code.UNIMPLEMENTED, "unimplemented.")
