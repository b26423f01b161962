"""NNCF, imported so that it leaves alone what belongs to the whole process."""

import logging
import os
import sys
from typing import Any


def import_nncf() -> Any:
    """The module `nncf`, silent but for errors.

    Raises:
        ImportError: it is not installed.
    """
    # NNCF reports its use to its makers unless this is set; a server reports to nobody.
    os.environ.setdefault("NNCF_CI", "1")
    logger_class = logging.getLoggerClass()
    try:
        import nncf
    finally:
        # It makes every logger that is created from then on one of its own.
        logging.setLoggerClass(logger_class)
    import rich

    # It tells each step, warns of the size of any sample, and draws progress bars with the console
    # that rich has for all. What is left goes where all else goes, not to the standard output.
    logger = logging.getLogger("nncf")
    logger.setLevel(logging.ERROR)
    logger.propagate = True
    for handler in [one for one in logger.handlers if _is_for_stdout(one)]:
        logger.removeHandler(handler)
    rich.get_console().quiet = True
    return nncf


def _is_for_stdout(handler: logging.Handler) -> bool:
    return type(handler) is logging.StreamHandler and handler.stream is not sys.stderr
