"""gRPC server reflection, so that grpcurl and the like need no proto files."""

from collections.abc import Iterable

from aspira.frontends.grpc.methods import Method, StreamMethod

_NAMES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


def reflection_methods(paths: Iterable[str]) -> dict[str, Method]:
    """Reflection over the services of `paths`; its two versions differ in name only."""
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    # Known to protobuf once imported: the messages alone do not tell of the services.
    from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2  # noqa: F401

    services = sorted({path.split("/")[1] for path in paths} | set(_NAMES[:1]))
    servicer = reflection.aio.ReflectionServicer(services)
    method = StreamMethod(
        reflection_pb2.ServerReflectionRequest,
        lambda requests: servicer.ServerReflectionInfo(requests, None),
    )
    return {f"/{name}/ServerReflectionInfo": method for name in _NAMES}
