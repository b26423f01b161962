"""Clients that never stop asking, gRPC and REST, and what they saw."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from system.server_process import ServerProcess

TIMEOUT_S = 30
NUM_VALUES = 16


@dataclass(slots=True)
class Seen:
    """`answers` by the version that the values give away; each failure in words."""

    answers: dict[float, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    num_refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, values: set[float]) -> None:
        with self.lock:
            if len(values) != 1:
                self.failures.append(f"one answer of several versions: {values}")
                return
            (value,) = values
            self.answers[value] = self.answers.get(value, 0) + 1

    def fail(self, reason: str) -> None:
        with self.lock:
            self.failures.append(reason)

    def refuse(self) -> None:
        with self.lock:
            self.num_refused += 1

    @property
    def num_answers(self) -> int:
        with self.lock:
            return sum(self.answers.values())


class Load:
    """Asks the model `default`, y = x / 2 + version, for zeros.

    Once `may_refuse` is set, a client that is refused leaves and is counted.
    """

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._stopping = threading.Event()
        self.may_refuse = threading.Event()
        self.seen = Seen()

    @contextmanager
    def running(self, num_clients: int) -> Iterator["Load"]:
        clients = (self._ask_grpc, self._ask_rest)
        threads = [
            threading.Thread(target=clients[index % len(clients)]) for index in range(num_clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def wait_for_answers(self, count: int) -> None:
        """Until so many more answers have come in."""
        target = self.seen.num_answers + count
        while self.seen.num_answers < target and not self.seen.failures:
            self._stopping.wait(0.01)

    def _ask_grpc(self) -> None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "default"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(NUM_VALUES, np.float32)))
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self._server.grpc_target, options=options) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            while not self._stopping.is_set():
                try:
                    response = stub.Predict(request, timeout=TIMEOUT_S)
                except grpc.RpcError as error:
                    if self._is_refusal(error):
                        return self.seen.refuse()
                    self.seen.fail(f"gRPC: {error.code()} {error.details()}")
                else:
                    self._take(response)
        return None

    def _is_refusal(self, error: Any) -> bool:
        return self.may_refuse.is_set() and error.code() is grpc.StatusCode.UNAVAILABLE

    def _take(self, response: Any) -> None:
        values = set(response.outputs["y"].float_val)
        if values == {float(response.model_spec.version.value)}:
            self.seen.count(values)
        else:
            self.seen.fail(f"version {response.model_spec.version.value} answered {values}")

    def _ask_rest(self) -> None:
        url = f"{self._server.rest_url}/v1/models/default:predict"
        body = {"instances": [0.0] * NUM_VALUES}
        with requests.Session() as session:
            while not self._stopping.is_set():
                try:
                    answer = session.post(url, json=body, timeout=TIMEOUT_S)
                except requests.ConnectionError as error:
                    if self.may_refuse.is_set() and "Connection refused" in str(error):
                        return self.seen.refuse()
                    self.seen.fail(f"REST: {error}")
                    continue
                if answer.status_code == 200:
                    self.seen.count(set(answer.json()["predictions"]))
                elif answer.status_code == 503 and self.may_refuse.is_set():
                    return self.seen.refuse()
                else:
                    self.seen.fail(f"REST: {answer.status_code} {answer.text}")
        return None
