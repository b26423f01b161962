"""How gRPC answers look; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Defaults are TensorFlow Serving's, but that health is told."""

    use_tensor_content: bool = False
    """Outputs as `tensor_content` instead of the typed fields."""

    is_health_enabled: bool = True
    """Serve `grpc.health.v1.Health`."""

    is_health_reflected: bool = True
    """Tell the health of models; else the server is SERVING from its first answer on."""

    is_profiler_enabled: bool = True
    """Serve `tensorflow.ProfilerService`."""

    is_extended: bool = True
    """Serve what TensorFlow Serving does not have: PredictStreamed, the Open Inference Protocol."""
