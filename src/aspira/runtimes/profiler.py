"""TensorFlow's profiler: what its threads and devices do while a session is open."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aspira.contracts.errors import Internal


class Profile(NamedTuple):
    """A serialized XSpace, and whether there is anything in it."""

    xspace: bytes
    is_empty: bool


def take_profile(wait: Callable[[], bool]) -> Profile | None:
    """Profile this process while `wait` blocks; None if it returns False, which is: not wanted.

    Raises:
        Internal: somebody else profiles; as TensorFlow's own service says it.
    """
    import tensorflow as tf
    from tensorflow.python.profiler.internal import _pywrap_profiler

    with tempfile.TemporaryDirectory(prefix="aspira-") as directory:
        session = _pywrap_profiler.ProfilerSession()
        try:
            # The options of a request are for TensorFlow's C++ alone: what its Python takes for
            # them it does not understand itself.
            session.start(directory, {})
            if not wait():
                # The session ends with its last reference.
                return None
            # What `session.stop` gives is damaged in TensorFlow 2.21; the file is not.
            session.export_to_tb()
        except tf.errors.OpError as error:
            raise Internal(error.message) from error
        (file,) = Path(directory).rglob("*.xplane.pb")
        xspace = file.read_bytes()
    return Profile(xspace, _is_empty(xspace))


def _is_empty(xspace: bytes) -> bool:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    planes = xplane_pb2.XSpace.FromString(xspace).planes
    return not any(line.events for plane in planes for line in plane.lines)
