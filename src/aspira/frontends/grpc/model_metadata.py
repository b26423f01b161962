"""GetModelMetadata of `tensorflow.serving.PredictionService`."""

from typing import Any

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.service.models import ModelsService
from aspira.wire.prediction import decode_model_spec, encode_model_spec
from aspira.wire.signature_def import encode_signature

_PATH = "/tensorflow.serving.PredictionService/GetModelMetadata"
_SIGNATURE_FIELD = "signature_def"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


class ModelMetadataServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(self, models: ModelsService) -> None:
        from tensorflow_serving.apis import get_model_metadata_pb2

        self._models = models
        self._classes = get_model_metadata_pb2

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        request_class = self._classes.GetModelMetadataRequest
        return {_PATH: UnaryMethod(request_class, self.get_model_metadata, is_question=True)}

    async def get_model_metadata(self, call: UnaryCall) -> Message:
        """The GetModelMetadata method. Questions about models are not counted as requests."""
        message = call.message
        if not message.metadata_field:
            raise InvalidArgument(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in message.metadata_field:
            if field != _SIGNATURE_FIELD:
                raise InvalidArgument(f"Metadata field {shorten(field)} is not supported")
        metadata = self._models.metadata(decode_model_spec(message))
        answer = self._classes.GetModelMetadataResponse()
        encode_model_spec(metadata.servable_id, into=answer.model_spec)
        signatures = self._classes.SignatureDefMap()
        for name, signature in metadata.signatures.items():
            encode_signature(signature, into=signatures.signature_def[name])
        answer.metadata[_SIGNATURE_FIELD].Pack(signatures)
        return answer
