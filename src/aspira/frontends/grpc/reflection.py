"""gRPC server reflection, so that grpcurl and the like need no proto files."""

from collections.abc import Iterable
from typing import Any

from aspira.frontends.grpc.methods import Method, StreamMethod

# Of protobuf, which is imported only where it is used.
DescriptorPool = Any

_NAMES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


def reflection_methods(paths: Iterable[str]) -> dict[str, Method]:
    """Reflection over the services of `paths`; its two versions differ in name only.

    A service that protobuf does not know, such as TensorFlow's profiler, is not told of: tools ask
    for the description of all that is, and give up on the first that has none.
    """
    from google.protobuf import descriptor_pool
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    # Known to protobuf once imported: the messages alone do not tell of the services.
    from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2  # noqa: F401

    names = {path.split("/")[1] for path in paths} | set(_NAMES[:1])
    services = sorted(name for name in names if _is_known(descriptor_pool.Default(), name=name))
    servicer = reflection.aio.ReflectionServicer(services)
    method = StreamMethod(
        reflection_pb2.ServerReflectionRequest,
        lambda requests: servicer.ServerReflectionInfo(requests, None),
    )
    return {f"/{name}/ServerReflectionInfo": method for name in _NAMES}


def _is_known(pool: DescriptorPool, *, name: str) -> bool:
    try:
        pool.FindServiceByName(name)
    except KeyError:
        return False
    return True
