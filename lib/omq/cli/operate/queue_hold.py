"""omhold -q QUEUE, omrelease -q QUEUE: a whole queue, with what is to come.

Held: nobody gets a message from it (`get = inhibited`), with --put also no new ones are taken. The
words are in queues.conf, as an author would write them, and the queue manager reads it again; so
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
from collections.abc import Callable

from omq.base.config import QUEUE_KEYS, QUEUES_FILE, client_settings, load_queues
from omq.base.defined_queue import check_keys, conf_of, keys_of, load_common
from omq.base.errors import BadRequest, ManagerUnavailable, NoPermission, TimedOut
from omq.base.names import IDEL_NAME, check_queue_name
from omq.base.services_conf import ServiceKind, load_services
from omq.cli.common import say
from omq.cli.operate.change import connect
from omq.cli.operate.command_notes import note_command
from omq.cli.operate.services_edit import set_queue_key
from omq.core.index.rows import QueueRow
from omq.core.index.view import IndexView
from omq.format.index import QueueFlag
from omq.ipc.client.operator import Operator
from omq.services.daemon import pid_file
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals

_POLL_S = 0.05
_WORD = {True: "allowed", False: "inhibited"}


Pause = Callable[[float], bool]
"""Waits so many seconds; whether to give up."""


def set_queue(name: str, location: Location, queue: str, reason: str, *, get: bool | None,
              put: bool | None, words: str = "", pause: Pause | None = None) -> QueueRow | None:
    """Write it down and have it in force; how the queue is then, None without a manager. `get`,
    `put` None: as it is. `words`: the command, where it is not this one's; `pause`: how to wait in
    a thread that no signal reaches."""
    if queue == IDEL_NAME:
        raise BadRequest(reason=f"{IDEL_NAME} is not held: messages on it are deleted already")
    wanted = {key: value for key, value in (("get", get), ("put", put)) if value is not None}
    if queue not in load_queues(location.conf_dir):
        return _set_defined(name, location, queue, reason, wanted, words)
    words = words or " ".join((name, "-q", queue, *(["--put"] if put is False else [])))
    for key, allowed in wanted.items():
        set_queue_key(location.conf_dir, queue, key, _WORD[allowed])
    pid = _manager(location)
    row = _in_force(location, pid, queue, lambda row: all(
        _allowed(row, key) == value for key, value in wanted.items()), pause) if pid else None
    note_command(location, words, reason, row.messages if row else 0, "messages")
    if row is None:
        say(name, f"no queue manager runs: {QUEUES_FILE} has it for its next start")
    return row


def _set_defined(name: str, location: Location, queue: str, reason: str, wanted: dict[str, bool],
                 words: str) -> QueueRow | None:
    """A queue that was made at run time: the queue manager is asked, and journals it."""
    with connect(location, name) as connection:
        if words:  # else the queue manager's own words say it all
            Operator(connection, words).note((queue,), 1, reason=reason, things="queues")
        connection.queues.alter(check_queue_name(queue), reason=reason, **{
            key: _WORD[allowed] for key, allowed in wanted.items()})
    return _row(location, queue)


def alter_file(location: Location, queue: str, keys: dict[str, str], reason: str,
               pause: Pause | None = None) -> None:
    """Other keys for a queue of queues.conf: written down, and in force when this returns.
    BadDefinition: the file is as it was. `pause`: as above."""
    check_keys(queue, keys, QUEUE_KEYS)
    conf_of(queue, keys, load_common(location.conf_dir), load_queues(location.conf_dir))
    for key, value in keys.items():
        set_queue_key(location.conf_dir, queue, key, value)
    wanted = keys_of(load_queues(location.conf_dir)[queue])
    pid = _manager(location)
    if pid:
        with connect(location, "omq") as connection:
            _in_force(location, pid, queue,
                      lambda _row: connection.queues.show(queue).keys == wanted, pause)
    note_command(location, f"omq queue alter {queue}", reason, 1, "queues")


def _manager(location: Location) -> int:
    """Its pid; 0: it does not run."""
    names = [each.name for each in load_services(location.conf_dir).values()
             if each.kind is ServiceKind.MANAGER]
    return next(filter(None, (pid_file.running(location.paths.pid_file(each))
                              for each in names)), 0)


def _in_force(location: Location, pid: int, queue: str, holds: Callable[[QueueRow], bool],
              pause: Pause | None) -> QueueRow:
    """Have the queue manager read its queues again, until it `holds`."""
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError as error:
        raise NoPermission(action="reload the queue manager", what=f"process {pid}") from error
    timeout_s = client_settings(location.conf_dir).connect_timeout_s
    if pause is not None:
        return _awaited(location, queue, holds, timeout_s, pause)
    signals = Signals()
    signals.install()

    def interruptible(wait_s: float) -> bool:
        signals.wait(wait_s)
        return signals.stopping

    try:
        return _awaited(location, queue, holds, timeout_s, interruptible)
    finally:
        signals.restore()


def _awaited(location: Location, queue: str, holds: Callable[[QueueRow], bool], timeout_s: float,
             pause: Pause) -> QueueRow:
    deadline, gave_up = time.monotonic() + timeout_s, False
    while True:
        row = _row(location, queue)
        if row is not None and holds(row):
            return row
        if time.monotonic() >= deadline or gave_up:
            raise TimedOut(seconds=timeout_s, what=f"the queue manager to read {QUEUES_FILE} "
                           f"of {location.conf_dir} again (omshowlog -e 1005 tells why not)")
        gave_up = pause(_POLL_S)


def _row(location: Location, queue: str) -> QueueRow | None:
    try:
        with IndexView.attach(location.paths) as view:
            return next((row for row in view.queues() if row.name == queue), None)
    except ManagerUnavailable:
        return None


def _allowed(row: QueueRow, key: str) -> bool:
    flag = QueueFlag.SUSPENDED if key == "get" else QueueFlag.PUT_INHIBITED
    return not row.flags & flag
