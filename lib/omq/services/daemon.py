"""What every daemon does before its own work: options, settings, spool, log, signals, notifier.

    def main(argv: list[str]) -> int:
        return run_daemon("pool.writer", argv, body)

    def body(context: DaemonContext) -> int: ...

Invariants: 1. umask 027 before the first file; 2. a daemon works only in a spool that its own user
owns and that nobody else may write: SpoolMissing, SpoolOwner otherwise; 3. the configuration is
read whole before anything starts; a mistake ends with exit code 78, which no supervisor restarts;
4. whatever ends a daemon early is one event; omq.cli.launch makes the exit code of it.
"""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omq.base import event_log, events
from omq.base.config import load_settings
from omq.base.errors import Exit, ManagerUnavailable, OmqError
from omq.base.event_log import EventLog, Level
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.lock import holder
from omq.services.notify import Notifier
from omq.services.options import Location, add_location, locate
from omq.services.process import ProcessId, identify, set_name
from omq.services.signals import Signals
from omq.storage.spool import create_spool, open_spool

UMASK = 0o027
_TRACE_CHARACTERS = 1000  # the end of a traceback says most; an event field holds 1024


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

    @property
    def instance(self) -> str | None:
        return self.location.instance

    @property
    def paths(self) -> SpoolPaths:
        return self.location.paths

    @property
    def conf_dir(self) -> Path:
        return self.location.conf_dir


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
    try:
        return body(context)
    except OmqError as error:
        event = events.CONFIG_WRONG if error.exit_code == Exit.CONFIG else events.FAILED
        context.log.event(event, event_log.FATAL, reason=str(error))
        raise
    except Exception:
        context.log.event(events.BUG, event_log.FATAL, traceback=last_trace())
        raise


def daemon_options(
    program: str,
    argv: list[str] | None,
    *,
    service: str | None = None,
    add_options: AddOptions | None = None,
) -> DaemonContext:
    """Parse, check and open everything. ConfigError; SpoolMissing, SpoolOwner ..."""
    os.umask(UMASK)
    options = _parser(program, service or program, add_options).parse_args(argv)
    location = locate(options)
    settings = load_settings(location.conf_dir)
    if getattr(options, "create", False):  # only queue.manager, the first to start, has it
        create_spool(location.paths.root)
    open_spool(location.paths.root, writer=True)
    if options.with_manager and not holder(location.paths.manager_lock):
        raise ManagerUnavailable(spool=location.paths.root, reason="it does not run")
    _write_pid(location.paths.pid_file(options.service))
    set_name(program)
    # Under systemd stderr is the journal. Elsewhere it is somebody's terminal: only on request.
    to_stderr = options.foreground_log or "JOURNAL_STREAM" in os.environ
    log = EventLog(
        program, location.paths.event_log, level=Level[settings.event_level], stderr=to_stderr
    )
    if "OMQ_FAULT" in os.environ:
        log.event(events.FAULT_ARMED, event_log.WARNING, points=os.environ["OMQ_FAULT"])
    signals = Signals()
    signals.install()
    return DaemonContext(
        program, options.service, options, location, settings, log, Notifier(), signals
    )


def read_pid(path: Path) -> ProcessId:
    """Who wrote a pid file; it may have ended (ask `alive`). Pid 0: nobody, or not to be read."""
    try:
        pid, ticks = path.read_text(encoding="ascii").split()
        return ProcessId(int(pid), int(ticks))
    except (FileNotFoundError, ValueError):
        return ProcessId(0, 0)


def _write_pid(path: Path) -> None:
    """`pid start-ticks`: whom a drain stops. Left behind at the end: the ticks tell a stale one."""
    me = identify(os.getpid())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        os.write(file, f"{me.pid} {me.start_ticks}\n".encode("ascii"))
    finally:
        os.close(file)


def last_trace() -> str:
    """The traceback of the exception being handled, cut from the front."""
    return traceback.format_exc()[-_TRACE_CHARACTERS:]


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
        "--with-manager", action="store_true", help="end at once when no queue manager runs"
    )
    if add_options is not None:
        add_options(parser)
    return parser
