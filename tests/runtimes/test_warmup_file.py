from pathlib import Path

import pytest
import tensorflow as tf

from aspira.runtimes.warmup_file import encode_records


@pytest.mark.parametrize("records", [[], [b"a", b"", b"\0" * 1000]])
def test_tensorflow_reads_what_is_written(records: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(encode_records(records))
    assert list(tf.compat.v1.io.tf_record_iterator(str(file))) == records
