"""What Spark raises, as omq's errors: one line with the cause, not pages of traces."""

from __future__ import annotations

import re
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
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except OmqError:
        raise
    except (AnalysisException, ParseException) as error:
        raise BadRequest(reason=str(error).strip().partition("\n")[0]) from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(reason=cause(str(error))) from error
    except OSError as error:
        raise SparkFailed(reason=str(error)) from error
