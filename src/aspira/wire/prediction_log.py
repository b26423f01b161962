"""PredictionLog messages, of which warm-up files are made, from requests."""

from enum import Enum
from typing import Any

from aspira.contracts.examples import ExamplesRequest, MultiInferenceRequest
from aspira.contracts.identity import ModelSpec
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensor
from aspira.wire.tensor_proto import encode_tensor

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

LoggedRequest = PredictRequest | ExamplesRequest | MultiInferenceRequest


class LogKind(Enum):
    """The field of PredictionLog that tells of a request; an ExamplesRequest may be of two."""

    PREDICT = "predict_log"
    CLASSIFY = "classify_log"
    REGRESS = "regress_log"
    MULTI_INFERENCE = "multi_inference_log"


def encode_prediction_log(request: LoggedRequest, *, kind: LogKind) -> bytes:
    """The serialized message; it tells of the request alone, and of no version or label."""
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    message = getattr(log, kind.value).request
    match request:
        case PredictRequest():
            _encode_predict(request, into=message)
        case ExamplesRequest():
            _encode_spec(request.spec, into=message.model_spec)
            _encode_examples(request.examples, into=message.input)
        case MultiInferenceRequest():
            _encode_multi_inference(request, into=message)
    return bytes(log.SerializeToString())


def _encode_predict(request: PredictRequest, *, into: Message) -> None:
    _encode_spec(request.spec, into=into.model_spec)
    for alias, tensor in request.inputs.items():
        encode_tensor(tensor, into=into.inputs[alias], use_tensor_content=True)
    into.output_filter.extend(request.output_filter)


def _encode_multi_inference(request: MultiInferenceRequest, *, into: Message) -> None:
    for spec, method_name in request.tasks:
        task = into.tasks.add(method_name=method_name)
        _encode_spec(spec, into=task.model_spec)
    _encode_examples(request.examples, into=into.input)


def _encode_spec(spec: ModelSpec, *, into: Message) -> None:
    into.name = spec.name
    into.signature_name = spec.signature_name


def _encode_examples(examples: Tensor, *, into: Message) -> None:
    for serialized in examples.tolist():
        into.example_list.examples.add().MergeFromString(serialized)
