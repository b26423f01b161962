"""KServe's Python server: REST of TensorFlow's kind (V1), gRPC of the Open Inference Protocol."""

import logging

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

from served_models import GRPC_PORT, MODELS, REST_PORT, Served, load


class Inference(Model):
    """A model, for both protocols."""

    def __init__(self, model: Served) -> None:
        super().__init__(model.name)
        self._served = model
        self.load()

    def load(self) -> bool:
        self._call = load(self._served)
        self.ready = True
        return True

    def predict(
        self,
        payload: dict[str, list[float]] | InferRequest,
        headers: dict[str, str] | None = None,  # noqa: ARG002
        response_headers: dict[str, str] | None = None,  # noqa: ARG002
    ) -> dict[str, list[float]] | InferResponse:
        if isinstance(payload, dict):
            answer = self._call(np.array(payload["instances"], np.float32))
            return {"predictions": answer.tolist()}
        answer = self._call(payload.inputs[0].as_numpy())
        output = InferOutput(self._served.output_name, shape=list(answer.shape), datatype="FP32")
        output.set_data_from_numpy(answer, binary_data=True)
        return InferResponse(payload.id, model_name=self.name, infer_outputs=[output])


def main() -> None:
    # One worker, its default: with more, workers that import TensorFlow do not answer its pings in
    # time, and are started over and over. gRPC is always served by one.
    server = ModelServer(
        http_port=REST_PORT, grpc_port=GRPC_PORT, workers=1, enable_latency_logging=False
    )
    # A line for each request otherwise.
    for name in ("kserve", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    server.start([Inference(model) for model in MODELS])


if __name__ == "__main__":
    main()
