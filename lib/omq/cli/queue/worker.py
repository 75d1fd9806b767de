"""omq worker: calls a function for each message of a queue, in several processes.

    omq worker MODULE:FUNCTION --queue QUEUE [OPTION...]

omq.cli.queue.task_function says what the function gets and what its end means. Each process imports
the module by itself, after the fork, so nothing that the module opens is shared.

After SIGTERM, SIGHUP or ^C each process finishes its current message, which has --stop-timeout
seconds; then, or after a second ^C, the function is interrupted and its message given back, no
attempt counted; what still does not end is killed, and its message is redelivered like that of a
reader that died. If this process is killed its children stop by themselves, in the same order. A
child that dies is replaced; a manager that is away and a queue that was removed are waited for.
What hangs is bounded by --time-limit and --kill-after (omq.cli.queue.task_limit).

Exit code: 0 after a stop; 130 after ^C; 78 for a module or function that is not there; 66, 64 or 77
for a queue that is not there when it starts, or may not be read.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import omq
from omq.base import limits
from omq.base.config import client_settings
from omq.base.errors import Exit, OmqError
from omq.base.event_log import EventLog
from omq.base.names import check_queue_name, escape
from omq.base.paths import existing_spool
from omq.base.settings import Settings
from omq.base.side_files import say as say_lines
from omq.cli.common import Location, locate, say, seconds, tool_parser
from omq.cli.queue import task_function
from omq.cli.queue.read_loop import ReadPlan, Tally, read
from omq.cli.queue.task_function import TaskFunction, TaskStopped
from omq.cli.queue.task_limit import TimeLimit
from omq.cli.queue.worker_processes import WorkerProcesses
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.signals import Signals
from omq.services.readers.process import Ready

NAME: Final = "omq worker"
CLIENT: Final = "omq-worker"  # to the manager, and in the log
PROCESSES_MAX: Final = limits.AUXILIARIES_MAX + 1
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Work:
    """What every process of one worker does."""

    location: Location
    queue: str
    function: str
    path: Path
    give: str
    log: EventLog
    reconnect_s: float
    wait_s: float
    stop_s: float
    limit: TimeLimit

    def as_child(self, is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        """The life of a process, where errors end; signals are blocked until now."""
        signals = Signals()
        # Until the function may be at work nothing is held: a stop ends this wherever it is.
        signals.add_waker(_leave)
        try:
            signals.install()
            signals.obey_parent()
            return self._read(signals, ready, is_main=is_main)
        except TaskStopped:
            return Exit.OK
        except OmqError as error:
            say(NAME, escape(str(error), limits.KIB))
            return error.exit_code
        except Exception:
            say_lines(traceback.format_exc().rstrip("\n"))
            return Exit.SOFTWARE

    def _read(self, signals: Signals, ready: Callable[[], None], *, is_main: bool) -> int:
        function = task_function.load(self.function, self.path)
        handler = TaskFunction(function, self.give, self.log, signals, self.limit)
        with (
            omq.connect(
                spool=self.location.paths.root, name=CLIENT, timeout_s=self.reconnect_s,
                waiting=partial(say, NAME),
            ) as connection,
            connection.reader(self.queue, auxiliary=not is_main) as reader,
        ):
            signals.remove_waker(_leave)
            ready()
            with closing(Tally(None)) as tally:
                read(reader, handler, tally, ReadPlan(1, self.wait_s, ends=False), signals)
        return Exit.OK


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    existing_spool(location.paths.root)
    settings = client_settings(location.conf_dir)
    stop_s = settings.drain_timeout_s if options.stop_timeout is None else options.stop_timeout
    signals = Signals()
    signals.install()
    try:
        with closing(EventLog(CLIENT)) as log:
            work = Work(
                location=location, queue=check_queue_name(options.queue),
                function=options.function, path=options.path.resolve(), give=options.give, log=log,
                reconnect_s=float(settings.reconnect_grace_s),
                wait_s=float(settings.reader_wait_s), stop_s=float(stop_s),
                limit=_limit(options, settings))
            code = WorkerProcesses(
                CLIENT, work.as_child, options.concurrency, signals, log, stop_s=work.stop_s,
                backoff=lambda: Backoff(settings.restart_backoff_min_s,
                                        settings.restart_backoff_max_s)).run()
        return INTERRUPTED if signals.interrupts else code
    finally:
        signals.restore()


def _limit(options: argparse.Namespace, settings: Settings) -> TimeLimit:
    said = (options.time_limit, options.kill_after)
    keys = (settings.worker_time_limit_s, settings.worker_kill_after_s)
    limit_s, kill_after_s = (
        key if each is None else each for each, key in zip(said, keys, strict=True))
    return TimeLimit(float(limit_s), float(kill_after_s))


def _leave() -> None:
    raise TaskStopped


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME,
        "Call a function for each message of a queue, in several processes. A message is done "
        "when the function returns; if it raises, the attempt has failed, and the queue's "
        "attempts_max, retry_delay_ms and back-off decide"
        " what follows.", """
        omq worker shop.tasks:ship --queue ORDERS
        omq worker shop.tasks:ship --queue ORDERS --concurrency 4 --path /opt/shop
        omq worker thumbs:make --queue PICTURES --give bytes
        """)
    add = parser.add_argument
    add("function", metavar="MODULE:FUNCTION", help="the function to call, with one argument")
    add("--queue", metavar="QUEUE", required=True, help="the queue to read")
    add("--concurrency", metavar="N", type=_count, default=1,
        help=f"processes, 1 to {PROCESSES_MAX} (default 1)")
    add("--give", choices=(task_function.JSON, task_function.BYTES, task_function.MESSAGE),
        default=task_function.JSON,
        help="what the function gets: the body as JSON (default), as bytes, or the omq.Message")
    add("--path", metavar="DIR", type=Path, default=Path(),
        help="searched for modules first (default: the directory it is started in)")
    add("--time-limit", metavar="S", type=seconds,
        help="time for one message; then the function is interrupted and the attempt has failed; "
             "0: no"
        " limit (default: worker_time_limit_s of omq.conf)")
    add("--kill-after", metavar="S", type=seconds,
        help="time to end after that; then its process is killed (default: worker_kill_after_s)")
    add("--stop-timeout", metavar="S", type=seconds,
        help="time for messages still being processed at a stop (default: drain_timeout_s of "
             "omq.conf)")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 1 to {PROCESSES_MAX}")
    return value
