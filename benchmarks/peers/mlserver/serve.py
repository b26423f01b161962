"""MLServer: adaptive batching, REST and gRPC of the Open Inference Protocol."""

import asyncio
from typing import Any

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from served_models import (
    GRPC_PORT,
    HALF_PLUS_TWO,
    MLP,
    MOBILENET,
    MODELS,
    REST_PORT,
    Served,
    load,
)

_MAX_BATCH_SIZE = 32
_MAX_BATCH_TIME_S = 0.001
_BY_NAME = {model.name: model for model in MODELS}


class Inference(MLModel):
    """The model that the settings name."""

    async def load(self) -> bool:
        self._served = _BY_NAME[self.name]
        self._call = load(self._served)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        array = NumpyCodec.decode_input(payload.inputs[0])
        answer = self._call(array.astype(np.float32, copy=False))
        output = NumpyCodec.encode_output(self._served.output_name, answer)
        return InferenceResponse(model_name=self.name, outputs=[output])


def make_settings(model: Served, **options: Any) -> ModelSettings:
    return ModelSettings(name=model.name, implementation=Inference, **options)


def main() -> None:
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        http_port=REST_PORT,
        grpc_port=GRPC_PORT,
        metrics_endpoint=None,
        # As its manual has it for models that need no process of their own.
        parallel_workers=0,
    )
    batches = {"max_batch_size": _MAX_BATCH_SIZE, "max_batch_time": _MAX_BATCH_TIME_S}
    models = [
        make_settings(HALF_PLUS_TWO, **batches),
        make_settings(MLP, **batches),
        make_settings(MOBILENET),
    ]
    asyncio.run(MLServer(settings).start(models))


if __name__ == "__main__":
    main()
