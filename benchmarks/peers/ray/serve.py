"""Ray Serve: HAProxy in front, throughput mode, a replica for each core and model, batches."""

import asyncio
import os
import signal
import tempfile
import threading

# Read when Ray is imported. Its manual has the first two for throughput; the last keeps it from
# writing a key into the user's home.
os.environ |= {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_AUTH_MODE": "disabled",
}

import numpy as np
import orjson
import ray
from ray import serve
from ray.serve.config import HTTPOptions, gRPCOptions
from starlette.requests import Request
from starlette.responses import Response
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from served_models import (
    GRPC_PORT,
    MOBILENET,
    MODELS,
    NUM_CORES,
    REST_PORT,
    Array,
    Served,
    load,
    read_rows,
    run_together,
)

_MAX_BATCH_SIZE = 32
_BATCH_WAIT_S = 0.001
_SERVICER = (
    "tensorflow_serving.apis.prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server"
)


@serve.deployment(
    num_replicas=NUM_CORES,
    max_ongoing_requests=1000,
    # Replicas of idle models take no cores from the others.
    ray_actor_options={"num_cpus": 0.1},
)
class Inference:
    """One model."""

    def __init__(self, model: Served) -> None:
        self._model = model
        self._call = load(model)

    @serve.batch(max_batch_size=_MAX_BATCH_SIZE, batch_wait_timeout_s=_BATCH_WAIT_S)
    async def run(self, arrays: list[Array]) -> list[Array]:
        return run_together(self._call, arrays=arrays)

    async def __call__(self, request: Request) -> Response:
        """HTTP."""
        body = await request.body()
        if self._model == MOBILENET:
            answer = await asyncio.to_thread(self._call, read_rows(body, model=self._model))
            return Response(answer.tobytes(), media_type="application/octet-stream")
        answer = await self.run(np.array(orjson.loads(body)["instances"], np.float32))
        content = orjson.dumps({"predictions": answer.tolist()})
        return Response(content, media_type="application/json")

    async def Predict(self, request: PredictRequest) -> PredictResponse:  # noqa: N802
        """gRPC: the service of TensorFlow Serving, which Ray puts in front of the replicas."""
        tensor = request.inputs[self._model.input_name]
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        array = np.frombuffer(tensor.tensor_content, np.float32).reshape(shape)
        if self._model == MOBILENET:
            answer = await asyncio.to_thread(self._call, array)
        else:
            answer = await self.run(array)
        response = PredictResponse()
        output = response.outputs[self._model.output_name]
        output.dtype = types_pb2.DT_FLOAT
        output.tensor_content = answer.tobytes()
        for size in answer.shape:
            output.tensor_shape.dim.add(size=size)
        return response


def main() -> None:
    ray.init(num_cpus=NUM_CORES, include_dashboard=False, _temp_dir=f"{tempfile.gettempdir()}/ray")
    serve.start(
        http_options=HTTPOptions(host="127.0.0.1", port=REST_PORT),
        grpc_options=gRPCOptions(port=GRPC_PORT, grpc_servicer_functions=[_SERVICER]),
        logging_config={"enable_access_log": False},
    )
    serve.run_many(
        [
            serve.RunTarget(Inference.bind(model), name=model.name, route_prefix=f"/{model.name}")
            for model in MODELS
        ]
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
