"""What a SavedModel asks of its session, in a file beside it. A file that cannot be read is told of
and otherwise ignored, as in TensorFlow Serving.
"""

import logging
from pathlib import Path
from typing import Any

from aspira.wire.saved_model_config import make_saved_model_config

_FILE_NAME = "saved_model_config.pb"
_REWRITERS = ("remote_op_remap_config", "batch_op_rewriter_config")

# TensorFlow has no types.
SessionConfig = Any

_logger = logging.getLogger(__name__)


def apply_session_overrides(config: SessionConfig, *, directory: Path) -> None:
    """Change a ConfigProto by the session_overrides of a version directory, if it has any."""
    from google.protobuf.message import DecodeError

    file = directory / "assets.extra" / _FILE_NAME
    if not file.is_file():
        return
    message = make_saved_model_config()
    try:
        message.ParseFromString(file.read_bytes())
    except (DecodeError, OSError) as error:
        _logger.warning("Failed to load saved model config: %s: %s", file, error)
        return
    overrides = message.session_overrides
    if overrides.disable_meta_optimizer:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    for name in _REWRITERS:
        if overrides.HasField(name):
            _logger.warning(
                "%s: %s has no effect: TensorFlow's Python package has no such rewriter", file, name
            )
