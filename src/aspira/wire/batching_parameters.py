"""`tensorflow.serving.BatchingParameters`: how the requests of a model share its runs."""

from typing import Any

from aspira.wire.message_fields import MessageField, make_message

_INT64 = "google.protobuf.Int64Value"
_STRING = "google.protobuf.StringValue"
_BOOL = "google.protobuf.BoolValue"

BATCHING_PARAMETERS_FIELDS = (
    MessageField("max_batch_size", 1, _INT64),
    MessageField("batch_timeout_micros", 2, _INT64),
    MessageField("max_enqueued_batches", 3, _INT64),
    MessageField("num_batch_threads", 4, _INT64),
    MessageField("thread_pool_name", 5, _STRING),
    MessageField("allowed_batch_sizes", 6, "int64", is_repeated=True),
    MessageField("pad_variable_length_inputs", 7, "bool"),
    MessageField("enable_large_batch_splitting", 8, _BOOL),
    MessageField("max_execution_batch_size", 9, _INT64),
)


def make_batching_parameters() -> Any:
    """An empty message."""
    return make_message(
        "BatchingParameters", messages={"BatchingParameters": BATCHING_PARAMETERS_FIELDS}
    )
