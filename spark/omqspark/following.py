"""The command `omq-spark follow`: the session that starts with the first batch, and its steps."""

from __future__ import annotations

import argparse
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omq.base.errors import Exit
from omqtools.omqspark.failures import quiet, told
from omqtools.omqspark.follow import UNIT, Following, Pace, ended_by_signal, follow

if TYPE_CHECKING:
    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.session import Later


class _Session:
    """The tables, once somebody needs them; the JVM, if a batch has many rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._later: Later | None = None

    @cached_property
    def lake(self) -> Lake:
        from omqtools.omqspark.lake import Lake
        from omqtools.omqspark.session import Later, session

        memory = self._options.memory or "1g"
        self._later = Later(lambda: session({"spark.driver.memory": memory}, source=False),
                            self._options.spark_from, memory)
        return Lake(self._later, self._options.out)

    def end(self) -> None:
        if self._later is not None and self._later.made:
            from omqtools.omqspark.session import end

            end(self._later.spark)


def command(options: argparse.Namespace, run: Any, audit: Any) -> int:
    """`run`, `audit`: what the commands `run` and then `audit` and `report` do with a lake."""
    if options.unit:
        archive, out = (str(Path(each).absolute()) for each in (options.archive, options.out))
        sys.stdout.write(UNIT.format(archive=archive, out=out, spool=Path(archive).parent,
                                     program=Path(sys.argv[0]).absolute()))
        return Exit.OK
    made = _Session(options)
    pace = Pace(options.interval_s, options.audit_s, options.idle_s, options.batches_max)

    def batch() -> None:
        with told():
            run(made.lake, options)

    def judged() -> None:
        with told():
            audit(made.lake, options)

    with quiet(), ended_by_signal() as ended:
        try:
            follow(Following(options.archive, options.out, pace, batch, judged), ended)
        finally:
            made.end()
    return Exit.OK
