from aspira.wire.profiler_service import make_profiler_messages


def test_requests_are_read_by_the_numbers_of_tensorflows_fields() -> None:
    # duration_ms 1: 5; opts 4: {duration_ms 9: 7, start_timestamp_ns 8: 3, version 5: 1};
    # repository_root 5: "/r", which is not read; session_id 6: "s"; emit_xspace 9: true.
    sent = b"\x08\x05\x22\x06\x48\x07\x40\x03\x28\x01\x2a\x02/r\x32\x01s\x48\x01"
    request = make_profiler_messages().profile_request.FromString(sent)
    assert (request.duration_ms, request.session_id, request.emit_xspace) == (5, "s", True)
    assert (request.opts.duration_ms, request.opts.start_timestamp_ns) == (7, 3)


def test_responses_are_written_by_the_numbers_of_tensorflows_fields() -> None:
    response = make_profiler_messages().profile_response(empty_trace=True, xspace=b"x")
    response.tool_data.add(name="n", data=b"d")
    assert response.SerializeToString() == b"\x32\x06\x0a\x01n\x12\x01d\x38\x01\x42\x01x"
