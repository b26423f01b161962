"""Ops that TensorFlow itself does not have: in libraries that a flag names, or in known packages.

TensorFlow Serving's binary has the ops of TF Text and of decision forests linked in. Here their
Python packages bring them, once a model needs an op that is not there.
"""

import logging
from collections.abc import Iterable
from importlib import import_module, util
from pathlib import Path
from typing import Any

from aspira.contracts.errors import FailedPrecondition, NotFound

_PACKAGES = ("tensorflow_text", "ydf_tf")

# TensorFlow has no types.
GraphDef = Any

_logger = logging.getLogger(__name__)


def load_op_libraries(paths: Iterable[str]) -> None:
    """Register the ops of shared libraries, for all models.

    Raises:
        NotFound: there is no such file.
        FailedPrecondition: it is no library of ops that this TensorFlow can load.
    """
    for path in paths:
        if not Path(path).is_file():
            raise NotFound(f"--custom_op_libraries: {path}; No such file")
        import tensorflow as tf

        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            raise FailedPrecondition(
                f"--custom_op_libraries: {path} is no op library built for TensorFlow"
                f" {tf.__version__}: {getattr(error, 'message', error)}"
            ) from error


def provide_ops(graph_def: GraphDef) -> None:
    """Register the ops that a graph needs and that an installed package is known to have."""
    missing = _missing_ops(graph_def)
    for package in _PACKAGES:
        if missing and util.find_spec(package) is not None:
            _import_ops(package)
            still_missing = _missing_ops(graph_def)
            if still_missing != missing:
                found = ", ".join(sorted(missing - still_missing))
                _logger.info("Ops of the package %s are used: %s", package, found)
            missing = still_missing
    if missing:
        _logger.warning(
            "A model needs ops that are not there: %s. Install the package that has them"
            " (aspira[text] for TF Text, aspira[forests] for decision forests), or name their"
            " library with --custom_op_libraries",
            ", ".join(sorted(missing)),
        )


def _import_ops(package: str) -> None:
    try:
        import_module(package)
    except Exception as error:  # noqa: BLE001 - a package that is broken is like one that is absent
        _logger.warning("The package %s cannot be imported: %s", package, error)


def _missing_ops(graph_def: GraphDef) -> frozenset[str]:
    from tensorflow.python.framework import op_def_registry

    functions = graph_def.library.function
    ops = {node.op for node in graph_def.node}
    ops.update(node.op for function in functions for node in function.node_def)
    ops.difference_update(function.signature.name for function in functions)
    return frozenset(op for op in ops if op_def_registry.get(op) is None)
