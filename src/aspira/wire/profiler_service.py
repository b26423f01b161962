"""The messages of `tensorflow.ProfilerService`: those of its fields that are read or written here.

Numbers are those of `tsl/profiler/protobuf/profiler_service.proto`, where `xspace` is a message; on
the wire, and here, it is the bytes of one.
"""

from typing import Any, NamedTuple

from aspira.wire.message_fields import MessageField, make_message_classes

XPLANE_TOOL = "xplane.pb"
"""The name under which clients expect, and save, an XSpace."""


class ProfilerMessages(NamedTuple):
    """The classes of its requests and responses."""

    profile_request: Any
    profile_response: Any
    terminate_request: Any
    terminate_response: Any
    monitor_request: Any


def make_profiler_messages() -> ProfilerMessages:
    """New classes."""
    classes = make_message_classes(
        "profiler_service",
        package="tensorflow",
        messages={
            "ProfileOptions": (
                MessageField("start_timestamp_ns", 8, "uint64"),
                MessageField("duration_ms", 9, "uint64"),
            ),
            "ProfileRequest": (
                MessageField("duration_ms", 1, "uint64"),
                MessageField("opts", 4, "ProfileOptions"),
                MessageField("session_id", 6, "string"),
                MessageField("emit_xspace", 9, "bool"),
            ),
            "ProfileToolData": (
                MessageField("name", 1, "string"),
                MessageField("data", 2, "bytes"),
            ),
            "ProfileResponse": (
                MessageField("tool_data", 6, "ProfileToolData", is_repeated=True),
                MessageField("empty_trace", 7, "bool"),
                MessageField("xspace", 8, "bytes"),
            ),
            "TerminateRequest": (MessageField("session_id", 1, "string"),),
            "TerminateResponse": (),
            "MonitorRequest": (MessageField("duration_ms", 1, "uint64"),),
        },
    )
    return ProfilerMessages(
        classes["ProfileRequest"],
        classes["ProfileResponse"],
        classes["TerminateRequest"],
        classes["TerminateResponse"],
        classes["MonitorRequest"],
    )
