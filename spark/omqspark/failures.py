"""What Spark raises, as omq's errors: one line with the cause, not pages of traces."""

from __future__ import annotations

import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omq.base.errors import BadRequest, OmqError, SparkFailed

_CAUSE: Final = re.compile(r"^(?:Caused by: )?([A-Za-z_][\w.]*(?:Error|Exception|Full)\b.*)$",
                           re.MULTILINE)


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


def _known(error: Exception) -> OmqError | None:
    """None: it is not Spark's, nor the file system's."""
    if isinstance(error, ImportError) or (isinstance(error, BrokenPipeError) and _nobody_reads()):
        return None
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, (AnalysisException, ParseException)):
        return BadRequest(reason=str(error).strip().partition("\n")[0])
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return SparkFailed(reason=f"the JVM has ended in the middle of it ({error}); killed, for "
                                  "want of memory perhaps")
    if isinstance(error, (PySparkException, Py4JError)):
        return SparkFailed(reason=cause(str(error)))
    return SparkFailed(reason=str(error)) if isinstance(error, OSError) else None


def _nobody_reads() -> bool:
    """Whether it is our own output that has no reader any more (`omq-spark state ... | head`): that
    is nobody's failure, and launch.py knows what to do. Else it was the connection to the JVM."""
    asked = select.poll()
    asked.register(1, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))
