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
