"""What Spark raises, as omq's errors: one line with the cause, not pages of traces."""

from __future__ import annotations

import logging
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from omq.base.errors import BadRequest, OmqError, SparkFailed

_CAUSE: Final = re.compile(r"^(?:Caused by: )?([A-Za-z_][\w.]*(?:Error|Exception|Full)\b.*)$",
                           re.MULTILINE)


ENDS_S: Final = 1.0  # from its last connection to the end of a process that is killed


def cause(text: str) -> str:
    """The innermost error that a trace names, else its first line."""
    found = _CAUSE.findall(text)
    return str(found[-1] if found else text.strip().partition("\n")[0]).strip()


@contextmanager
def told() -> Iterator[None]:
    """Turn errors of Spark into BadRequest (a wrong condition) or SparkFailed (all others)."""
    try:
        yield
    except OmqError:
        raise
    except Exception as error:
        known = _known(error)
        if known is None:
            raise
        raise known from error


@contextmanager
def quiet() -> Iterator[None]:
    """What is logged goes to stderr as ever, but not the traces that py4j logs of errors that it
    raises, too."""
    to_stderr = logging.StreamHandler()
    to_stderr.setLevel(logging.WARNING)
    to_stderr.addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    logging.getLogger().addHandler(to_stderr)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(to_stderr)


def _known(error: Exception) -> OmqError | None:
    """None: it is not Spark's, nor the file system's."""
    if isinstance(error, ImportError) or (isinstance(error, BrokenPipeError) and _nobody_reads()):
        return None
    if _of_duckdb(error):
        more = "; more --memory may help" if type(error).__name__ == "OutOfMemoryException" else ""
        return SparkFailed(reason=str(error).strip().partition("\n")[0] + more)
    from py4j.protocol import (  # type: ignore[import-untyped]
        Py4JError,
        Py4JJavaError,
        Py4JNetworkError,
    )
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, (AnalysisException, ParseException)):
        return BadRequest(reason=str(error).strip().partition("\n")[0])
    if isinstance(error, (Py4JNetworkError, ConnectionError)) or (
            not isinstance(error, (Py4JJavaError, PySparkException)) and _jvm_has_ended()):
        return SparkFailed(reason=f"the JVM has ended in the middle of it ({error}); killed, for "
                                  "want of memory perhaps")
    if isinstance(error, (PySparkException, Py4JError)):
        return SparkFailed(reason=cause(str(error)))
    return SparkFailed(reason=str(error)) if isinstance(error, OSError) else None


def _of_duckdb(error: Exception) -> bool:
    base = sys.modules.get("duckdb")
    return base is not None and isinstance(error, base.Error)


def _jvm_has_ended() -> bool:
    """The one that this process has started. To whoever asks it for a class meanwhile py4j says
    that there is no such class, or gives what cannot be called."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # spark-submit's
        return False
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _nobody_reads() -> bool:
    """Whether it is our own output that has no reader any more (`omq-spark state ... | head`): that
    is nobody's failure, and launch.py knows what to do. Else it was the connection to the JVM."""
    asked = select.poll()
    asked.register(1, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))
