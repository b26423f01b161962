"""Reads a SavedModel into a session, step by step as TensorFlow's C++ loader does.

The Python loader of TensorFlow rebuilds collections and objects that serving has no use for; the
C++ one restores variables, runs the init op and stops. Both see the same files and give the same
errors, and so does this.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aspira.contracts.errors import (
    DataLoss,
    InvalidArgument,
    NotFound,
    ServingError,
    Unimplemented,
    Unknown,
    error_from_code,
)
from aspira.runtimes.custom_ops import provide_ops
from aspira.runtimes.graph_import import import_graph, leave_out_idle_rewrites

# TensorFlow has no types for these.
MetaGraph = Any
Session = Any
SessionConfig = Any

# Put before the runtime's text by TensorFlow's Python layer, not by its C++.
_PYTHON_PREFIX = "Graph execution error:\n\n"
_INIT_OP_SIGNATURE = "__saved_model_init_op"
_INIT_OP_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")


def read_meta_graph(directory: Path, *, tags: Iterable[str]) -> MetaGraph:
    """The MetaGraphDef of a SavedModel whose tag set is exactly `tags`.

    Raises:
        NotFound: no SavedModel here, or no such tag set.
        DataLoss: the file is damaged.
        Unimplemented: a format of before SavedModels.
    """
    saved_model = _read_saved_model(directory)
    wanted = set(tags)
    for meta_graph in saved_model.meta_graphs:
        if set(meta_graph.meta_info_def.tags) == wanted:
            return meta_graph
    raise NotFound(
        f"Could not find meta graph def matching supplied tags: {{ {' '.join(sorted(wanted))} }}. "
        "To inspect available tag-sets in the SavedModel, please use the SavedModel CLI: "
        "`saved_model_cli`"
    )


def open_session(directory: Path, *, meta_graph: MetaGraph, config: SessionConfig) -> Session:
    """A session with the graph imported, variables restored, tables and init ops run.

    Raises:
        ServingError: TensorFlow's own code and text.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    provide_ops(meta_graph.graph_def)
    own_config = config_pb2.ConfigProto()
    own_config.CopyFrom(config or own_config)
    leave_out_idle_rewrites(own_config, graph_def=meta_graph.graph_def)
    try:
        session = tf.compat.v1.Session(graph=import_graph(meta_graph.graph_def), config=own_config)
    except (tf.errors.OpError, ValueError) as error:
        raise as_serving_error(error) from error
    try:
        assets = _asset_feeds(directory, meta_graph=meta_graph)
        _restore(session, directory=directory, meta_graph=meta_graph, assets=assets)
        _run_init_op(session, meta_graph=meta_graph, assets=assets)
    except BaseException as error:
        session.close()
        if isinstance(error, (tf.errors.OpError, ValueError)):
            raise as_serving_error(error) from error
        raise
    return session


def run_once(
    session: Session,
    *,
    feeds: Mapping[str, Any],
    fetches: Iterable[str] = (),
    targets: Iterable[str] = (),
) -> list[Any]:
    """Feed tensors, compute others and run operations, all by name; nothing is kept for a next run.

    Raises:
        tf.errors.OpError: TensorFlow's own code and text.
    """
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
    results: list[Any] = session._make_callable_from_options(options)(  # noqa: SLF001
        *feeds.values()
    )
    return results


def as_serving_error(error: Exception) -> ServingError:
    """TensorFlow's exception with the same code and text; Python's own become Unknown."""
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow failed to raise its own: the text quotes bytes of an input that is no UTF-8.
        return InvalidArgument(error.object.decode("utf-8", "replace"))
    code = getattr(error, "error_code", None)
    if code is None:
        return error if isinstance(error, ServingError) else Unknown(str(error))
    message = str(getattr(error, "message", error))
    return error_from_code(int(code), message=message.removeprefix(_PYTHON_PREFIX))


def _read_saved_model(directory: Path) -> Any:
    from google.protobuf import message, text_format
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    binary, text = directory / "saved_model.pb", directory / "saved_model.pbtxt"
    try:
        if binary.is_file():
            saved_model.ParseFromString(binary.read_bytes())
        elif text.is_file():
            text_format.Parse(text.read_text(encoding="utf-8"), saved_model)
        elif (directory / "export.meta").is_file():
            raise Unimplemented("Session Bundle is deprecated and removed.")
        else:
            raise NotFound(
                "Specified file path does not appear to contain a SavedModel bundle (should have "
                f"a file called `saved_model.pb`)\nSpecified file path: {directory}"
            )
    except message.DecodeError as error:
        raise DataLoss(f"Can't parse {binary} as binary proto") from error
    except text_format.ParseError as error:
        raise DataLoss(f"Can't parse {text} as text proto: {error}") from error
    except OSError as error:
        raise NotFound(f"{error.filename}; {error.strerror}") from error
    return saved_model


def _asset_feeds(directory: Path, *, meta_graph: MetaGraph) -> dict[str, str]:
    """Each asset tensor with the path its file has here, which is not where it was exported."""
    return {
        asset.tensor_info.name: str(directory / "assets" / asset.filename)
        for asset in meta_graph.asset_file_def
    }


def _restore(
    session: Session, *, directory: Path, meta_graph: MetaGraph, assets: dict[str, str]
) -> None:
    saver = meta_graph.saver_def
    if not saver.restore_op_name:
        return
    prefix = directory / "variables" / "variables"
    if not prefix.with_suffix(".index").exists():
        if not (directory / "variables").exists() and not _has_variables(meta_graph):
            return
        # TensorFlow Serving loads such a model and then fails every request to it.
        raise NotFound(f"{prefix}.index; the checkpoint of this SavedModel is missing")
    feeds = {saver.filename_tensor_name: str(prefix), **assets}
    run_once(session, feeds=feeds, targets=[saver.restore_op_name])


def _has_variables(meta_graph: MetaGraph) -> bool:
    return any(
        node.op in {"VarHandleOp", "VariableV2", "Variable"} for node in meta_graph.graph_def.node
    )


def _run_init_op(session: Session, *, meta_graph: MetaGraph, assets: dict[str, str]) -> None:
    name = _init_op_name(meta_graph).partition(":")[0]
    if name and not _is_idle(name, meta_graph=meta_graph):
        run_once(session, feeds=assets, targets=[name])


def _is_idle(name: str, *, meta_graph: MetaGraph) -> bool:
    """Whether running the node does nothing, which most init ops do; just asking would cost."""
    return any(
        node.name == name and node.op == "NoOp" and not node.input
        for node in meta_graph.graph_def.node
    )


def _init_op_name(meta_graph: MetaGraph) -> str:
    if _INIT_OP_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[_INIT_OP_SIGNATURE].outputs
        return str(outputs[_INIT_OP_SIGNATURE].name)
    for key in _INIT_OP_COLLECTIONS:
        if key in meta_graph.collection_def:
            nodes = meta_graph.collection_def[key].node_list.value
            if len(nodes) != 1:
                raise ValueError(f"Expected exactly one main op in : {meta_graph.meta_info_def}")
            return str(nodes[0])
    return ""
