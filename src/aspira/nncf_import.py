"""NNCF, imported so that it leaves alone what belongs to the whole process."""

import logging
import os
from typing import Any


def import_nncf() -> Any:
    """The module `nncf`, silent.

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

    # It tells each step, and draws progress bars with the console that rich has for all. Its own
    # way to be quiet, `set_log_level`, quiets handlers that others may have lent it.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    rich.get_console().quiet = True
    return nncf
