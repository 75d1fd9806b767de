"""omhold -q QUEUE, omrelease -q QUEUE: a whole queue, with what is to come.

Held: nobody gets a message from it (`get = inhibited`), with --put also no new ones are taken. The
words stand in queues.conf, as an author would write them, and the queue manager reads it again; so
they are in force until somebody releases the queue, whatever restarts. The command is journaled
with uid and reason as every other (ADR 0028).

In the middle of a crash: queues.conf is replaced by rename; what it says is in force at the next
start. Errors: UnknownQueue, BadRequest, ConfigError, NoPermission, TimedOut (the queue manager
reads another queues.conf, or hangs).
"""

from __future__ import annotations

import os
import signal
import time

from omq.base.config import QUEUES_FILE, ServiceKind, client_settings, load_queues, load_services
from omq.base.errors import BadRequest, ManagerUnavailable, NoPermission, TimedOut, UnknownQueue
from omq.base.names import IDEL_NAME, escape
from omq.cli.common import say
from omq.cli.operate.noting import note_command
from omq.cli.operate.services_edit import set_queue_key
from omq.core.index.rows import QueueRow
from omq.core.index.view import IndexView
from omq.format.index import QueueFlag
from omq.services.daemon import pid_file
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals

_POLL_S = 0.05
_WORD = {True: "allowed", False: "inhibited"}


def set_queue(name: str, location: Location, queue: str, reason: str, *, get: bool,
              put: bool | None) -> QueueRow | None:
    """Write it down and have it in force; how the queue is then, None without a manager. `put`
    None: as it is."""
    known = load_queues(location.conf_dir)
    if queue not in known:
        raise UnknownQueue(queue=escape(queue))
    if queue == IDEL_NAME:
        raise BadRequest(reason="IDEL_NAME is not held: messages on it are deleted already")
    wanted = {"get": get} | ({} if put is None else {"put": put})
    for key, allowed in wanted.items():
        set_queue_key(location.conf_dir, queue, key, _WORD[allowed])
    pid = _manager(location)
    row = _in_force(location, pid, queue, wanted) if pid else None
    words = " ".join((name, "-q", queue, *(["--put"] if put is False else [])))
    note_command(location, words, reason, row.messages if row else 0, "messages")
    if row is None:
        say(name, f"no queue manager runs: {QUEUES_FILE} says it for its next start")
    return row


def _manager(location: Location) -> int:
    """Its pid; 0: it does not run."""
    names = [each.name for each in load_services(location.conf_dir).values()
             if each.kind is ServiceKind.MANAGER]
    return next(filter(None, (pid_file.running(location.paths.pid_file(each))
                              for each in names)), 0)


def _in_force(location: Location, pid: int, queue: str, wanted: dict[str, bool]) -> QueueRow:
    """Have the queue manager read its queues again, until the index shows it."""
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError as error:
        raise NoPermission(action="reload the queue manager", what=f"process {pid}") from error
    timeout_s = client_settings(location.conf_dir).connect_timeout_s
    deadline, signals = time.monotonic() + timeout_s, Signals()
    signals.install()
    try:
        while True:
            row = _row(location, queue)
            if row is not None and all(_allowed(row, key) == value
                                       for key, value in wanted.items()):
                return row
            if time.monotonic() >= deadline or signals.stopping:
                raise TimedOut(seconds=timeout_s, what=f"the queue manager to read {QUEUES_FILE} "
                               f"of {location.conf_dir} again (omshowlog -e 1005 tells why not)")
            signals.wait(_POLL_S)
    finally:
        signals.restore()


def _row(location: Location, queue: str) -> QueueRow | None:
    try:
        with IndexView.attach(location.paths) as view:
            return next((row for row in view.queues() if row.name == queue), None)
    except ManagerUnavailable:
        return None


def _allowed(row: QueueRow, key: str) -> bool:
    flag = QueueFlag.SUSPENDED if key == "get" else QueueFlag.PUT_INHIBITED
    return not row.flags & flag
