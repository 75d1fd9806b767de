"""Instances in which something does not move, one for each cause that tools name.

A world is made in a `with`; it gives what each tool must say of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from omq.base import clock, events
from omq.base.errors import NoAuthority
from omq.base.event_log import WARNING, EventLog
from omq.cli.look import instance_causes, reader_causes
from omq.core.index.view import IndexView
from omq.core.look import look
from omq.storage import instance_file
from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process.operator_world import QUEUES, WAIT_S, Instance
from tests.waiting import until

SERVICES: Final = """
[qmgr]
title = Queue Manager
number = 100
kind = manager
program = queue.manager
nonstop = yes

[local]
title = Local Delivery
number = 2
kind = reader
program = local.delivery
queue = LOCAL
enabled = {local}

[unix]
title = Internet Mail Gateway
number = 4
kind = reader
program = unix.out
queue = UNIX
enabled = no

[router]
title = Service Router
number = 1
kind = reader
program = service.router
queue = ROUTER
enabled = {router}
"""


@dataclass(frozen=True)
class Said:
    """What must be said: the words of the cause, those of the command; `queue`: to ask omqwhy."""

    code: str
    evidence: str
    command: str
    queue: str = "A"


World = Callable[[Instance, ExitStack, pytest.MonkeyPatch], Said]


def _start(made: Instance, *, local: str = "no", router: str = "no", queues: str = "",
           settings: tuple[str, str] = ("", "")) -> None:
    (made.conf / "services.conf").write_text(SERVICES.format(local=local, router=router))
    (made.conf / "queues.conf").write_text(f"{QUEUES}\n[UNIX]\n{queues}")
    conf = made.conf / "omq.conf"
    conf.write_text(conf.read_text().replace(*settings) if settings[0] else conf.read_text())
    made.start()


def _reader(made: Instance, stack: ExitStack, queue: str = "A", **chosen: str) -> object:
    connection = stack.enter_context(made.connect("worker"))
    return stack.enter_context(connection.reader(queue, **chosen))  # type: ignore[arg-type]


def _child(made: Instance, stack: ExitStack) -> int:
    """A process that waits for messages on A: its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            with made.connect("worker") as connection, connection.reader("A") as reader:
                reader.next(timeout_s=WAIT_S)
                reader.next(timeout_s=WAIT_S)
        finally:
            os._exit(0)

    def end() -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    stack.callback(end)

    def waits() -> bool:
        with IndexView.attach(made.paths) as view:
            return any(each.pid == pid and each.waits for each in view.readers())

    until(waits, lambda: "it never waited")
    return pid


def reader_off(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made, local="yes")
    made.put("LOCAL", b"1")
    return Said("no_reader", "nobody reads it: Local Delivery is Stopped", "omon local", "LOCAL")


def stopped(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    pid = _child(made, stack)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: clock.process_state(pid) == "T", lambda: "it was never stopped")
    made.put("A", *[b"%d" % n for n in range(4)])
    return Said("reader_stopped", f"(pid {pid}) is stopped by a signal", f"kill -CONT {pid}")


def hung(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1", b"2")
    reader = _reader(made, stack)
    reader.next(1, timeout_s=WAIT_S)  # type: ignore[attr-defined]
    patch.setattr(reader_causes, "SILENT_S", -1)
    return Said("reader_silent", f"reader worker (pid {os.getpid()}) has been silent for",
                f"omfreeq A -p {os.getpid()}")


def selector(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    with made.connect("put") as connection:
        for colour in ("red", "blue", "red", "green"):
            connection.put("A", b"x", properties={"colour": colour})
    reader = _reader(made, stack, where="colour = 'black'")
    assert reader.next(timeout_s=0) == []  # type: ignore[attr-defined]
    return Said("selector", "matches none of the 4 ready messages: colour = 'black'",
                "omqdump -e 'l A'")


def group(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    with made.connect("put") as connection:
        ids = [connection.put("A", b"x", group_id="g") for _ in range(3)]
    first = int(ids[0][32:], 16)
    reader = _reader(made, stack)
    assert len(reader.next(1, timeout_s=WAIT_S)) == 1  # type: ignore[attr-defined]
    _reader(made, stack)
    return Said("group", f"a group is locked: 2 ready messages wait for message {first}, which "
                f"reader worker (pid {os.getpid()}) has had", f"omqwhy {first}")


def limit(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    with made.connect("put") as connection:
        connection.queues.define("WORK", in_work_max=1)
        for _ in range(3):
            connection.put("WORK", b"x")
    reader = _reader(made, stack, "WORK")
    assert len(reader.next(1, timeout_s=WAIT_S)) == 1  # type: ignore[attr-defined]
    assert _reader(made, stack, "WORK").next(timeout_s=0) == []  # type: ignore[attr-defined]
    return Said("limit", "its limits of work let none of 2 ready messages go: 1 is being processed",
                "omq queue show WORK", "WORK")


def unit_in_doubt(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    with made.connect("unit") as connection:
        unit = connection.unit()
        unit.put("A", b"1")
        unit.prepare()
    return Said("in_doubt", "in doubt", "omq units")


def lease(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    reader = _reader(made, stack)
    assert len(reader.next(1, timeout_s=WAIT_S)) == 1  # type: ignore[attr-defined]
    made.kill()
    made.start()
    return Said("lease", "1 message is leased to a reader that is gone", "omqwhy ")


def authority(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    log = EventLog("queue.manager", made.paths.event_log)
    log.event(events.REQUEST_REFUSED, WARNING, uid=64999,
              reason=str(NoAuthority(uid=64999, action="get", queue="A")))
    log.close()
    return Said("authority", "user 64999 may not get there: refused",
                "[A] user:64999 = get in authority.conf")


def inhibited(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made, queues="[STILL]\nget = inhibited\n")
    made.put("STILL", b"1")
    return Said("get_inhibited", "the queue is held (get = inhibited", "omrelease -q STILL",
                "STILL")


def held(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    (qpool,) = made.put("A", b"1")
    made.run("omhold", str(qpool))
    return Said("held", "1 message is held by an operator",
                "omrelease --where 'queue=A state=held'")


def deferred(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    with made.connect("put") as connection:
        connection.put("A", b"1", delay_s=3600)
    return Said("deferred", "none is ready: 1 message is deferred; the first is due at",
                "omq flush A")


def _gateway(made: Instance) -> None:
    now = clock.wall_ns()
    (made.paths.run / "unix.peers.json").write_text(json.dumps({"mx.example.org:25": {
        "failures": 2, "since_ns": now, "retry_ns": now + 10**12, "reason": "refused"}}))


def peer_down(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    _gateway(made)
    made.put("UNIX", b"1")
    return Said("peer_down", "peer mx.example.org:25 of Internet Mail Gateway cannot be reached",
                "omq peers --retry mx.example.org:25", "UNIX")


def put_off(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    _gateway(made)
    with made.connect("put") as connection:
        connection.put("UNIX", b"1", delay_s=3600)
    return Said("put_off", "1 message is put off; the first is due at", "omq peers", "UNIX")


def disk(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    if shutil.disk_usage(made.root).free >= 1 << 40:
        pytest.skip("more is free here than disk_reserve_bytes can ask for")
    _start(made)
    made.put("A", b"1")
    conf = made.conf / "omq.conf"
    conf.write_text(conf.read_text().replace("disk_reserve_bytes = 0", "disk_reserve_bytes = 1T"))
    made.stop()
    made.start()

    def low() -> bool:
        with IndexView.attach(made.paths) as view:
            return bool(view.counters()["space_low"])

    until(low, lambda: "the disk is never low")
    return Said("disk", "disk space LOW", f"df -h {made.root}")


def inodes(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    patch.setattr(instance_causes, "os", SimpleNamespace(
        statvfs=lambda path: SimpleNamespace(f_files=10_000, f_favail=3), stat=os.stat))
    return Said("inodes", "3 inodes of 10,000 are free", f"df -i {made.root}")


def manager_stopped(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    stack.enter_context(made.stopped())
    assert made.manager is not None
    return Said("manager_stopped", f"the queue manager (pid {made.manager.pid}) is stopped by a "
                "signal", f"kill -CONT {made.manager.pid}")


def manager_hung(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    patch.setattr(look, "HUNG_AFTER_S", -1)
    assert made.manager is not None
    return Said("hung", f"the queue manager (pid {made.manager.pid}) has not moved for",
                f"kill -ABRT {made.manager.pid}")


def manager_dead(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    made.kill()
    return Said("no_manager", "the queue manager does not run", "omrc starts it")


def standby(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    """Where the start of a queue manager would be refused, nobody is sent to start one."""
    _start(made)
    made.put("A", b"1")
    made.stop()
    instance_file.write(made.paths, replace(
        open_spool(made.root).instance, role=Role.STANDBY, member="b", primary="tls://east"))
    return Said("not_primary", "standby of", "tls://east")


def queue_missing(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made, router="yes")
    return Said("queue_missing", "is not defined", "queues.conf", "ROUTER")


def wrong_configuration(made: Instance, stack: ExitStack, patch: pytest.MonkeyPatch) -> Said:
    _start(made)
    made.put("A", b"1")
    (made.conf / "queues.conf").write_text("[A]\nmax_depth = many\n")
    return Said("configuration", "queues.conf", "omq conf")


WORLDS: Final[dict[str, World]] = {each.__name__: each for each in (
    reader_off, stopped, hung, selector, group, limit, unit_in_doubt, lease, authority, inhibited,
    held, deferred, peer_down, put_off, disk, inodes, manager_stopped, manager_hung, manager_dead,
    standby, queue_missing, wrong_configuration)}


@contextmanager
def world(name: str, root: Path) -> Iterator[tuple[Instance, Said]]:
    """An instance with this cause, and what is to be said of it."""
    made = Instance(root / "spool")
    try:
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            said = WORLDS[name](made, stack, patch)
            yield made, said
    finally:
        _mend(made)
        made.end()


def _mend(made: Instance) -> None:
    """So that it ends in order."""
    (made.conf / "queues.conf").write_text(f"{QUEUES}\n[UNIX]\n[STILL]\n")
