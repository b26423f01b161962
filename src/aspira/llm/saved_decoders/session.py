"""A decoder's SavedModel, opened in a session: its signatures as functions of NumPy arrays.

A session gives all memory back when it is closed, and runs functions of any shapes without tracing
them again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aspira.contracts.errors import DataLoss, Internal, ServingError, error_from_code

STEP, STEP_COMPILED, GENERATE_STEP = "step", "step_compiled", "generate_step"
SERVING_DEFAULT = "serving_default"
"""What a client gets that names no signature: `GENERATE_STEP` too."""

INIT_CACHE, READ_BLOCKS, WRITE_BLOCKS = "init_cache", "read_blocks", "write_blocks"

SAVED_MODEL_FILE = "saved_model.pb"

Call = Callable[..., Any]
"""Takes the arrays of a signature's inputs by name; returns its one output."""


class DecoderSession:
    """One SavedModel in memory. Functions may be called from several threads."""

    def __init__(self, directory: Path) -> None:
        """Reads all weights.

        Raises:
            ServingError: TensorFlow cannot load it.
        """
        import tensorflow as tf

        self._graph = tf.Graph()
        self._session: Any = tf.compat.v1.Session(graph=self._graph)
        try:
            self.signatures = self._load(directory)
        except BaseException as error:
            self._session.close()
            if isinstance(error, (tf.errors.OpError, ValueError, KeyError, OSError)):
                raise DataLoss(f"{directory} cannot be loaded: {error}") from error
            raise

    def function(self, name: str) -> Call:
        """A signature that is run on the calling thread, but for its large operations."""
        from tensorflow.core.protobuf import config_pb2

        signature = self.signatures[name]
        names = tuple(signature.inputs)
        [output] = signature.outputs.values()
        with self._graph.as_default():
            call = self._session.make_callable(
                output.name,
                feed_list=[signature.inputs[name].name for name in names],
                accept_options=True,
            )
        options = config_pb2.RunOptions(inter_op_thread_pool=-1)

        def run(**arrays: Any) -> Any:
            try:
                return call(*(arrays[name] for name in names), options=options)
            except Exception as error:
                raise _as_serving_error(error) from error

        return run

    def close(self) -> None:
        """Free weights and cache; nothing runs any more."""
        self._session.close()

    def _load(self, directory: Path) -> Any:
        import tensorflow as tf
        from google.protobuf import message
        from tensorflow.core.protobuf import saved_model_pb2

        saved_model = saved_model_pb2.SavedModel()
        try:
            saved_model.ParseFromString((directory / SAVED_MODEL_FILE).read_bytes())
        except message.DecodeError as error:
            raise DataLoss(f"{directory / SAVED_MODEL_FILE} is damaged: {error}") from error
        [meta_graph] = saved_model.meta_graphs
        with self._graph.as_default():
            tf.graph_util.import_graph_def(meta_graph.graph_def, name="")
        saver = meta_graph.saver_def
        variables = str(directory / "variables" / "variables")
        self._session.run(saver.restore_op_name, {saver.filename_tensor_name: variables})
        return meta_graph.signature_def


def _as_serving_error(error: Exception) -> ServingError:
    code = getattr(error, "error_code", None)
    if code is None:
        return Internal(f"TensorFlow failed: {error}")
    return error_from_code(int(code), message=str(getattr(error, "message", error)))
