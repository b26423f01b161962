"""`tensorflow.ProfilerService`, from which TensorBoard and TensorFlow's client capture profiles.

The original writes the profile where its client says, on the server's disk. This one hands it to
the client, which saves what an answer brings in the same place; so nobody can have files written
here, and the two need not share a file system.
"""

from typing import Any

from aspira.contracts.errors import Unimplemented
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.service.profiling import ProfileOrder, ProfilingService
from aspira.wire.profiler_service import XPLANE_TOOL, make_profiler_messages

_SERVICE = "/tensorflow.ProfilerService"

# Message classes are generated, hence Any.
Message = Any


class ProfilerServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(self, profiling: ProfilingService) -> None:
        self._profiling = profiling
        self._classes = make_profiler_messages()

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        classes = self._classes
        return {
            f"{_SERVICE}/Profile": UnaryMethod(classes.profile_request, self.profile),
            f"{_SERVICE}/Terminate": UnaryMethod(
                classes.terminate_request, self.terminate, is_question=True
            ),
            f"{_SERVICE}/Monitor": UnaryMethod(classes.monitor_request, self.monitor),
        }

    async def profile(self, call: UnaryCall) -> Message:
        """The Profile method: returns once the time asked for has passed."""
        request = call.message
        profile = await self._profiling.profile(
            ProfileOrder(
                request.session_id,
                # Older clients set only the first one.
                (request.opts.duration_ms or request.duration_ms) / 1e3,
                request.opts.start_timestamp_ns / 1e9,
            )
        )
        answer = self._classes.profile_response(empty_trace=profile.is_empty)
        if request.emit_xspace:
            answer.xspace = profile.xspace
        else:
            answer.tool_data.add(name=XPLANE_TOOL, data=profile.xspace)
        return answer

    async def terminate(self, call: UnaryCall) -> Message:
        """The Terminate method. As in the original, a session nobody knows is no error."""
        self._profiling.terminate(call.message.session_id)
        return self._classes.terminate_response()

    async def monitor(self, call: UnaryCall) -> Message:  # noqa: ARG002
        """The Monitor method, which the original has for TPUs alone."""
        raise Unimplemented("unimplemented.")
