from pathlib import Path

import pytest
from tensorflow.core.protobuf import config_pb2

from aspira.runtimes.session_overrides import apply_session_overrides
from aspira.wire.saved_model_config import make_saved_model_config


def write(directory: Path, content: bytes) -> None:
    (directory / "assets.extra").mkdir()
    (directory / "assets.extra" / "saved_model_config.pb").write_bytes(content)


def apply(directory: Path) -> config_pb2.ConfigProto:
    config = config_pb2.ConfigProto(placement_period=3)
    apply_session_overrides(config, directory=directory)
    return config


UNCHANGED = config_pb2.ConfigProto(placement_period=3)


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    assert apply(tmp_path) == UNCHANGED


def test_an_empty_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, b"")
    assert apply(tmp_path) == UNCHANGED
    assert caplog.messages == []


def test_the_meta_optimizer_can_be_turned_off(tmp_path: Path) -> None:
    message = make_saved_model_config()
    message.session_overrides.disable_meta_optimizer = True
    message.critical = True
    write(tmp_path, message.SerializeToString())
    assert apply(tmp_path).graph_options.rewrite_options.disable_meta_optimizer


def test_rewriters_that_are_not_there_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = make_saved_model_config()
    message.session_overrides.batch_op_rewriter_config.SetInParent()
    write(tmp_path, message.SerializeToString())
    assert apply(tmp_path) == UNCHANGED
    (line,) = caplog.messages
    assert "batch_op_rewriter_config has no effect" in line


def test_a_file_that_cannot_be_read_is_only_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, b"\xff\xff")
    assert apply(tmp_path) == UNCHANGED
    (line,) = caplog.messages
    assert line.startswith("Failed to load saved model config: ")


def test_the_originals_own_files(
    tfserving_testdata: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "saved_model_half_plus_two_cpu_with_{}saved_model_config/00000123"
    assert apply(tfserving_testdata / name.format("empty_")) == UNCHANGED
    assert caplog.messages == []
    assert apply(tfserving_testdata / name.format("")) == UNCHANGED
    assert [line.split(": ")[1].split(" ")[0] for line in caplog.messages] == [
        "remote_op_remap_config",
        "batch_op_rewriter_config",
    ]
