"""NNCF brings its own kind of logger, and its own idea of what is worth logging."""

import logging
from importlib.util import find_spec

import pytest

from aspira.nncf_import import import_nncf

pytestmark = pytest.mark.skipif(find_spec("nncf") is None, reason="needs nncf")


def test_what_others_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    logger_class = logging.getLoggerClass()
    import_nncf()
    logging.getLogger("aspira").warning("heard")
    assert "heard" in caplog.text
    assert logging.getLoggerClass() is logger_class


def test_its_errors_go_where_all_others_go_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    import_nncf()
    logging.getLogger("nncf").warning("a small sample")
    logging.getLogger("nncf").error("no such node")
    assert [record.getMessage() for record in caplog.records] == ["no such node"]
    assert capfd.readouterr().out == ""
