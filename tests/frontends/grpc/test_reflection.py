from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from asgi_exchange import Answer
from aspira.contracts.errors import Code
from grpc_exchange import call_request, read_result
from serving_toys import ask, single_model, write_version

PATHS = [
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
]
SERVICES = {
    "grpc.health.v1.Health",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    return write_version(tmp_path / "m", version=1).parent


def responses(answer: Answer) -> list[ServerReflectionResponse]:
    result = read_result(answer, answer_class=ServerReflectionResponse)
    assert result.code is Code.OK
    return result.messages


@pytest.mark.parametrize("path", PATHS)
def test_services_are_listed(base_path: Path, path: str) -> None:
    request = call_request(path, ServerReflectionRequest(list_services="*"))
    (response,) = responses(*ask(single_model(base_path), request))
    listed = {service.name for service in response.list_services_response.service}
    # Protobuf knows it where Triton's client was imported, as other tests do.
    listed.discard("inference.GRPCInferenceService")
    assert listed == SERVICES | {"grpc.reflection.v1alpha.ServerReflection"}


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_service_is_described(base_path: Path, service: str) -> None:
    request = call_request(PATHS[0], ServerReflectionRequest(file_containing_symbol=service))
    (response,) = responses(*ask(single_model(base_path), request))
    files = [
        FileDescriptorProto.FromString(described)
        for described in response.file_descriptor_response.file_descriptor_proto
    ]
    described = {f"{file.package}.{entry.name}" for file in files for entry in file.service}
    assert service in described


def test_several_questions_are_answered_on_one_stream(base_path: Path) -> None:
    request = call_request(
        PATHS[0],
        ServerReflectionRequest(file_containing_symbol="no.Such"),
        ServerReflectionRequest(file_containing_symbol="tensorflow.serving.PredictRequest"),
    )
    unknown, known = responses(*ask(single_model(base_path), request))
    assert unknown.error_response.error_code == Code.NOT_FOUND
    assert known.HasField("file_descriptor_response")
