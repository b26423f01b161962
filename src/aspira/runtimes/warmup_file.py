"""Warm-up files as TensorFlow writes them: TFRecord, with checksums, not compressed."""

import tempfile
from collections.abc import Iterable
from pathlib import Path


def encode_records(records: Iterable[bytes]) -> bytes:
    """The content of a file of these records. Blocks; TensorFlow writes to files only."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory(prefix="aspira-") as directory:
        file = Path(directory) / "records"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for record in records:
                writer.write(record)
        return file.read_bytes()
