"""Side files that cannot be looked at (ESTALE, EIO) or are not there (ENOENT): whoever looks goes
on as if there were none, and the cause is told once. One row for each look of a daemon at one."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base import events, modes, side_files
from omq.base.errors import HoldsUnknown
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.side_files import Calls
from omq.ipc.server.objects import LIST_NAME, ObjectList
from omq.services.daemon import pid_file
from omq.services.daemon.run_state import read_service, read_supervisor
from omq.services.delivery.holds import Holds
from omq.services.delivery.peer_states import PeerStates
from omq.services.mail.mail_log import MailLog
from omq.storage.segment import read_ids
from omq.storage.spool import create_spool
from tests.tidy.tree import product

ERRNOS = (errno.ESTALE, errno.EIO, errno.ENOENT)
CALLS = ("fstat", "stat", "read", "open")


class Blind(Calls):
    """One call is refused while `number` is set; `met`: how often."""

    def __init__(self, call: str, number: int) -> None:
        self.call, self.number, self.met = call, number, 0

    def _meet(self, call: str) -> None:
        if call == self.call and self.number:
            self.met += 1
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: str, flags: int, mode: int = modes.FILE) -> int:
        self._meet("open")
        return super().open(path, flags, mode)

    def fstat(self, fd: int) -> os.stat_result:
        self._meet("fstat")
        return super().fstat(fd)

    def stat(self, path: str) -> os.stat_result:
        self._meet("stat")
        return super().stat(path)

    def read(self, path: str, bytes_max: int) -> bytes:
        self._meet("read")
        return super().read(path, bytes_max)


Look = Callable[[SpoolPaths], Any]
LOOKS: dict[str, tuple[Look, str, Any]] = {
    "pid of a daemon": (lambda paths: pid_file.running(paths.pid_file("old")), "open", 0),
    "is a daemon expected": (lambda paths: pid_file.expected(paths.pid_file("old")), "stat", False),
    "state of a service": (lambda paths: read_service(paths.run / "local.json"), "read", None),
    "state of the supervisor": (lambda paths: read_supervisor(paths.run / "supervisor.json"),
                                "read", None),
    "ids of the manager": (read_ids, "read", None),
    "size of the list of objects": (lambda paths: ObjectList(paths)._bytes, "stat", 0),
    "list of objects": (lambda paths: ObjectList(paths).clear_left_overs(os.geteuid()), "read", 0),
    "states of peers": (lambda paths: PeerStates(
        paths.run / "unix.peers.json", 1.0, 2.0, 3.0).down, "stat", {}),
}
"""What is looked at, by which call, and what comes of it when it cannot be."""


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    made = create_spool(tmp_path / "spool").paths
    made.pid_file("old").write_text("1\n")
    for name in ("local.json", "supervisor.json", LIST_NAME):
        (made.run / name).write_text("{}\n")
    made.ids.write_text("{}\n")
    return made


@pytest.fixture(autouse=True)
def told() -> Iterator[list[dict[str, Any]]]:
    before = side_files.use(Calls())
    heard: list[dict[str, Any]] = []

    def tell(event: events.Event, fields: dict[str, str | float]) -> None:
        heard.append({"event": event.number, **fields})

    side_files.report_to(tell)
    yield heard
    side_files.use(before)


def blind(call: str, number: int, heard: list[dict[str, Any]]) -> Blind:
    made = Blind(call, number)
    side_files.use(made)
    side_files.report_to(lambda event, fields: heard.append({"event": event.number, **fields}))
    return made


@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("name", LOOKS)
def test_a_look_ends_nothing_and_its_cause_is_told(
        paths: SpoolPaths, name: str, number: int, told: list[dict[str, Any]]) -> None:
    look, call, otherwise = LOOKS[name]
    sick = blind(call, number, told)
    for _ in range(3):
        assert look(paths) == otherwise
    assert sick.met == 3
    causes = [each for each in told if each["event"] == events.SIDE_FILE_UNREADABLE.number]
    if number == errno.ENOENT:
        assert not causes, "it is not there: no news"
    else:
        (cause,) = causes
        assert cause["reason"] == os.strerror(number) and cause["file"]


@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("call", ["fstat", "stat"])
def test_a_log_that_cannot_be_looked_at_is_opened_again(
        paths: SpoolPaths, call: str, number: int, told: list[dict[str, Any]],
        capsys: pytest.CaptureFixture[str]) -> None:
    """The cause of what the daemon does is in the log, not a trace about the log."""
    log = EventLog("x", paths.event_log, stderr=False)
    log.event(events.CHECKPOINT)
    sick = blind(call, number, told)
    for _ in range(3):
        log.event(events.CHECKPOINT)
    assert sick.met >= 3
    sick.number = 0
    log.event(events.CHECKPOINT)
    log.close()
    assert paths.event_log.read_text().count('"event": 1411') == 5
    if call == "fstat":
        assert os.strerror(number) in capsys.readouterr().err


@pytest.mark.parametrize("number", ERRNOS)
def test_the_other_logs_go_on(paths: SpoolPaths, number: int, told: list[dict[str, Any]]) -> None:
    """mail.log (and the record of sends, the same LogFile): nothing is raised."""
    mail = MailLog(paths.logs, "host", 1 << 20)
    mail.write([("smtpd", "one")])
    sick = blind("fstat", number, told)
    mail.write([("smtpd", "two")])
    assert sick.met
    sick.number = 0
    mail.write([("smtpd", "three")])
    text = (paths.logs / "mail.log").read_text()
    assert all(word in text for word in ("one", "two", "three"))
    mail.close()


@pytest.mark.parametrize("number", (errno.ESTALE, errno.EIO))
@pytest.mark.parametrize("call", ["stat", "read"])
def test_what_is_held_stays_held(paths: SpoolPaths, call: str, number: int,
                                 told: list[dict[str, Any]]) -> None:
    """A list that cannot be looked at releases nobody."""
    path = paths.root / "unix.held.json"
    holds = Holds(path)
    holds.change(add=frozenset({"peer"}))
    assert holds.of("channel", "peer") is not None
    os.utime(path, ns=(1, 1))
    sick = blind(call, number, told)
    assert holds.of("channel", "peer") is not None and sick.met
    path.unlink()
    sick.number = 0
    assert holds.of("channel", "peer") is None


@pytest.mark.parametrize("number", (errno.EIO, errno.EACCES))
@pytest.mark.parametrize("call", ["stat", "read"])
def test_who_cannot_see_what_is_held_sends_nothing(paths: SpoolPaths, call: str, number: int,
                                                   told: list[dict[str, Any]]) -> None:
    """A process that has not read the list yet."""
    path = paths.root / "unix.held.json"
    Holds(path).change(add=frozenset({"peer"}))
    sick = blind(call, number, told)
    holds = Holds(path)
    wait = holds.of("channel", "another")
    assert sick.met and wait is not None and os.strerror(number) in wait.reason
    assert bool(holds.denied) == (number == errno.EACCES) != bool(holds.unknown)
    sick.number = 0
    assert holds.of("channel", "another") is None and holds.of("channel", "peer") is not None


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b"[1]", b'"peer"', b"\xff", b"[" * 100_000,
                                  b'["peer", null]'])
def test_a_damaged_list_releases_nobody(paths: SpoolPaths, data: bytes) -> None:
    """And is not written over: what it held would be lost."""
    path = paths.root / "unix.held.json"
    holds = Holds(path)
    holds.change(add=frozenset({"peer"}))
    path.with_suffix(".other").write_bytes(data)
    path.with_suffix(".other").rename(path)
    assert holds.of("channel", "another") is not None
    assert holds.state == (frozenset(), holds.unknown) and "not a list of names" in holds.unknown
    for each in (holds, Holds(path)):
        with pytest.raises(HoldsUnknown, match="move it away"):
            each.change(add=frozenset({"x"}))
    assert path.read_bytes() == data
    path.unlink()
    assert holds.of("channel", "peer") is None and not holds.unknown


def test_no_daemon_looks_past_the_seam() -> None:
    """A look at a side file that a test cannot make fail: os.stat, os.fstat, Path.stat, read_bytes
    and read_text in services, ipc and base. Each that is left has its reason."""
    wrong = []
    for source in product():
        if not source.path.startswith(("lib/omq/services/", "lib/omq/ipc/", "lib/omq/base/")):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
                    and node.func.attr in ("stat", "fstat", "read_bytes", "read_text") \
                    and source.path not in ELSEWHERE \
                    and not ast.unparse(node.func).startswith(("side_files.", "calls.", "durable.",
                                                               "disk.", "self._disk.")):
                wrong.append(f"{source.path}:{node.lineno}: {ast.unparse(node)[:60]}")
    assert not wrong, "\n".join(wrong)


ELSEWHERE: dict[str, str] = {
    "lib/omq/base/side_files.py": "the seam itself",
    "lib/omq/base/log_file.py": "`opened`: for readers, which say OSError",
    "lib/omq/base/clock.py": "/proc",
    "lib/omq/ipc/client/file_puts.py": "a file of the program's",
    "lib/omq/services/amqp/operator_desk.py": "the spool",
    "lib/omq/services/mail/tls_mailing.py": "a command: the spool, and a port, or else ServerAway",
    "lib/omq/base/access.py": "the spool and the configuration",
    "lib/omq/base/groups.py": "the spool",
    "lib/omq/base/fault.py": "tests alone",
    "lib/omq/base/paths.py": "the spool",
    "lib/omq/base/form.py": "programs",
    "lib/omq/base/journald.py": "standard error; guarded",
    "lib/omq/ipc/wire/sealed_body.py": "a memfd",
    "lib/omq/ipc/server/objects.py": "/proc",
    "lib/omq/services/amqp/server.py": "the spool",
    "lib/omq/services/delivery/holds.py": "the spool",
    "lib/omq/services/delivery/scheduler_status.py": "for tools; guarded",
    "lib/omq/services/daemon/last_words.py": "guarded: a stack that cannot be had is not told",
    "lib/omq/services/daemon/process.py": "/proc",
    "lib/omq/services/mail/drop_server.py": "the spool, at its start",
    "lib/omq/services/mail/mailbox_owner.py": "mailboxes: an error is a deferral",
    "lib/omq/services/mail/mailbox_quota.py": "the same, and guarded",
    "lib/omq/services/mail/map_ldap.py": "configuration",
    "lib/omq/services/mail/watched_file.py": "a map: an error has mail wait",
    "lib/omq/services/mail/routes_file.py": "configuration, and ~/.forward of a user",
    "lib/omq/services/manager/descriptors.py": "/proc",
    "lib/omq/services/manager/parts.py": "the spool",
    "lib/omq/services/network/secret_file.py": "configuration",
    "lib/omq/services/standby/listener.py": "the spool, at its start",
    "lib/omq/services/supervise/unit_files.py": "templates",
}
