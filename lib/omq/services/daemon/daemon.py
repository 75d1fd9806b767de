"""What every daemon does before its own work: options, settings, spool, log, signals, notifier.

    def main(argv: list[str]) -> int:
        return run_daemon("pool.writer", argv, body)

    def body(context: DaemonContext) -> int: ...

Invariants: 1. umask 077 before the first file; 2. a daemon works only in a spool that its own user
owns and that nobody else may write: SpoolMissing, SpoolOwner otherwise; 3. the configuration is
read whole before anything starts; a mistake ends with exit code 78, which no supervisor restarts;
4. whatever ends a daemon early is one event; omq.cli.launch makes the exit code of it; 5. with
--with-manager a daemon waits for a manager that was killed, and for none that ended on purpose or
never ran: ManagerNotExpected, which no supervisor restarts.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import event_log, events, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, Exit, ManagerNotExpected, ManagerUnavailable, OmqError
from omq.base.event_log import EventLog, Level
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceKind, load_services
from omq.base.settings import Settings
from omq.services.daemon import last_words, pid_file
from omq.services.daemon.lock import holder
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location, add_location, locate
from omq.services.daemon.process import set_name
from omq.services.daemon.signals import Signals
from omq.storage.spool import create_spool, open_spool

MANAGER: Final = "queue.manager"
"""The stack of a dead one belongs to its tombstone, which the next one writes."""
_TRACE_CHARACTERS = 1000  # the end of a traceback says most; an event field holds 1024
_WHOLE_CHARACTERS: Final = 1 << 18
_MANAGER_WAIT_S: Final = 10.0
"""For a manager that was killed: it is started again after a second, and then takes its lock."""
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class DaemonContext:
    """What a daemon works with; `options` also has what the daemon itself added."""

    program: str
    service: str  # section of services.conf
    options: argparse.Namespace
    location: Location
    settings: Settings
    log: EventLog
    notifier: Notifier
    signals: Signals
    left_stack: Path | None = None  # of the process before, which a fatal signal ended

    @property
    def instance(self) -> str | None:
        return self.location.instance

    @property
    def paths(self) -> SpoolPaths:
        return self.location.paths

    @property
    def conf_dir(self) -> Path:
        return self.location.conf_dir


_FINAL: Final = (Exit.CONFIG, Exit.USAGE, ManagerNotExpected.exit_code)
"""Ends that a restart would only repeat; the units know them too (RestartPreventExitStatus=)."""

Body = Callable[[DaemonContext], int]
AddOptions = Callable[[argparse.ArgumentParser], None]


def run_daemon(
    program: str,
    argv: list[str] | None,
    body: Body,
    *,
    service: str | None = None,
    add_options: AddOptions | None = None,
) -> int:
    """Set up and run `body`; its exit code. An error is logged and goes on to the launcher."""
    context = daemon_options(program, argv, service=service, add_options=add_options)
    own = context.paths.pid_file(context.service)
    try:
        if context.options.with_manager:
            _await_manager(context)
        code = body(context)
    except OmqError as error:
        if error.exit_code in _FINAL:
            pid_file.release(own)
        event = events.CONFIG_WRONG if error.exit_code == Exit.CONFIG else events.FAILED
        context.log.event(event, event_log.FATAL, reason=str(error))
        context.notifier.status(str(error))  # what the supervisor and its tools then show
        raise
    except Exception:
        context.log.event(events.BUG, event_log.FATAL, traceback=last_trace())
        raise
    pid_file.release(own)
    last_words.forget(context.paths, context.service)
    return code


def daemon_options(
    program: str,
    argv: list[str] | None,
    *,
    service: str | None = None,
    add_options: AddOptions | None = None,
) -> DaemonContext:
    """Parse, check and open everything. ConfigError; SpoolMissing, SpoolOwner ..."""
    options = _parser(program, service or program, add_options).parse_args(argv)
    os.umask(modes.UMASK)
    location = locate(options)
    own = location.paths.pid_file(options.service)
    try:
        settings = load_settings(location.conf_dir)
    except ConfigError:
        pid_file.release(own)
        raise
    if getattr(options, "create", False):  # only queue.manager, the first to start, has it
        create_spool(location.paths.root)
    open_spool(location.paths.root, writer=True)
    set_name(program)
    # Under systemd stderr is the journal. Elsewhere it is somebody's terminal: only on request.
    to_stderr = options.foreground_log or "JOURNAL_STREAM" in os.environ
    log = EventLog(
        program, location.paths.event_log, level=Level[settings.event_level], stderr=to_stderr,
        bytes_max=settings.event_log_bytes_max,
    )
    side_files.report_to(log.side_files)
    pid_file.claim(own)
    stack = last_words.listen(location.paths, options.service, log, kept=program == MANAGER)
    if "OMQ_FAULT" in os.environ:
        log.event(events.FAULT_ARMED, event_log.WARNING, points=os.environ["OMQ_FAULT"])
    threading.excepthook = lambda failed: log.event(
        events.THREAD_FAILED, event_log.ERROR, thread=getattr(failed.thread, "name", None),
        traceback="".join(traceback.format_exception(failed.exc_value))[-_TRACE_CHARACTERS:])
    signals = Signals()
    signals.install()
    return DaemonContext(
        program, options.service, options, location, settings, log, Notifier(), signals, stack
    )


def _await_manager(context: DaemonContext) -> None:
    """Until a manager holds its lock. ManagerNotExpected: then no restart would help;
    ManagerUnavailable: a killed one is late, and the next attempt may find it."""
    services = load_services(context.conf_dir).values()
    managers = [context.paths.pid_file(each.name) for each in services
                if each.kind is ServiceKind.MANAGER]
    deadline = time.monotonic() + _MANAGER_WAIT_S
    while not holder(context.paths.manager_lock):
        expected = any(pid_file.expected(path) for path in managers)
        if context.signals.stopping or not expected:
            raise ManagerNotExpected(spool=context.paths.root)
        if time.monotonic() >= deadline:
            raise ManagerUnavailable(spool=context.paths.root,
                                     reason="it was killed, and the next one is late")
        context.signals.wait(_LOOK_S)


def last_trace() -> str:
    """The traceback of the exception being handled, cut from the front."""
    return traceback.format_exc()[-_TRACE_CHARACTERS:]


def whole_trace() -> str:
    """The traceback of the exception being handled, for a file: cut only where it repeats itself
    without end."""
    return traceback.format_exc()[-_WHOLE_CHARACTERS:]


def _parser(program: str, service: str, add_options: AddOptions | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program, description=f"omq daemon {program}; started by a supervisor"
    )
    add_location(parser)
    parser.add_argument(
        "--service", metavar="NAME", default=service, help="section of services.conf"
    )
    parser.add_argument(
        "--foreground-log", action="store_true", help="write events to stderr as well"
    )
    parser.add_argument(
        "--with-manager", action="store_true",
        help="end when no queue manager runs and none is being started again",
    )
    if add_options is not None:
        add_options(parser)
    return parser
