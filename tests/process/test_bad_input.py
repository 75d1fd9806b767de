"""Strangers, garbage, wrong configurations and spools: a clear error each; the manager lives."""

from __future__ import annotations

import json
import os
import signal
import smtplib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import sysv_ipc

import omq
from omq.base.errors import Exit, OmqError
from omq.format import poolctrl
from omq.format.wire import REQUEST, REQUEST_MAGIC, REQUEST_TYPE, VERSION, WAKE_TYPE
from omq.storage.segment import read_ids
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, start, start_program
from tests.waiting import until

NOBODY = 65534
OTHER_USERS = "other users need root"


def reachable(root: Path) -> None:
    """Other users may come to the spool, which is in an `open_folder`."""
    for folder in [root, *root.parents]:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)


@pytest.mark.skipif(os.geteuid() != 0, reason=OTHER_USERS)
@pytest.mark.parametrize(("action", "error"), [
    ("connect", "PermissionError"), ("put", "NoAuthority"), ("get", "NoAuthority")])
def test_a_foreign_user_is_refused(open_instance: Instance, tmp_path: Path, action: str,
                                   error: str) -> None:
    """Without the spool's group: not even connected. With it: authority.conf says who may."""
    (open_instance.conf / "authority.conf").write_text("[A]\nuser:nobody = browse\n")
    open_instance.start()
    open_instance.ready()
    reachable(open_instance.paths.run)
    group = NOBODY if action == "connect" else open_instance.root.stat().st_gid

    def stranger() -> int:
        os.setgroups([])
        os.setgid(group)
        os.setuid(NOBODY)
        try:
            with omq.connect(open_instance.root) as c:
                if action == "get":
                    c.reader("A")
                else:
                    c.put("A", b"never")
        except OmqError as refusal:
            cause = type(refusal.__cause__ or refusal).__name__
            os.write(1, f"{cause} {int(refusal.exit_code)}".encode())
        return 0

    said = tmp_path / "stranger"
    assert start("stranger", stranger, output=said).wait() == 0, said.read_text()
    assert said.read_text().split()[0] == error
    with open_instance.connect() as c:
        c.put("A", b"still served")
    assert len(open_instance.drain("A")) == 1


def test_a_flood_of_garbage_is_thrown_away(omq_instance: Instance) -> None:
    """Random bytes of all sizes, right headers with wrong tokens, foreign message types."""
    omq_instance.start()
    omq_instance.ready()
    ids = read_ids(omq_instance.paths)
    assert ids is not None
    key = ids.requests[0]
    rounds = 2000

    def flood() -> int:
        queue = sysv_ipc.MessageQueue(key)
        for i in range(rounds):
            forged = REQUEST.pack(i % 9, 0, 0, i % 7, i, i % 4, i * 977, os.urandom(16), i, i, 0,
                                  REQUEST_MAGIC, VERSION, 0, 0, -1, 0, 0, 0, 0)
            queue.send(os.urandom(i % 200 + 1), type=REQUEST_TYPE)
            queue.send(forged, type=REQUEST_TYPE)
            queue.send(os.urandom(i % 50 + 1), type=WAKE_TYPE + i % 2)
        return 0

    flooder = start("flood", flood)
    with omq_instance.connect() as c:
        for i in range(50):
            c.put("A", b"%d" % i)
        assert flooder.wait() == 0
        c.put("A", b"last")
        counters = c.control({"op": "status"})["counters"]
    assert counters["garbage"] >= 2 * rounds
    assert [m.body for m in omq_instance.drain("A")] == [*(b"%d" % i for i in range(50)), b"last"]


JSON, VERSION_SAID = "malformed question", f"this manager speaks {VERSION}"
LINES = [  # what is said, the status of the answer, a part of its reason
    (b"", 2, JSON), (b"[]", 2, "a question is a JSON object"), (b"nonsense", 2, JSON),
    (b"\xff\xfe" * 50, 2, JSON), (b"[" * 5000, 2, "recursion depth"),
    (b"{}", 3, ""), (b'{"op": 7}', 3, ""), (b'{"op": "status"}', 3, ""),
    (b'{"op": "open", "queue": "A"}', 3, ""),
    (b'{"op": "register"}', 2, VERSION_SAID),
    (b'{"op": "register", "version": 99, "name": "x"}', 2, VERSION_SAID),
    (b'{"op": "register", "version": %d, "name": "x", "token": "zz"}' % VERSION, 2, "fromhex"),
    (b'{"op": "register", "version": %d, "name": "x", "held": "1"}' % VERSION, 2, "unpack"),
]


def test_malformed_questions_are_refused(omq_instance: Instance) -> None:
    """Each for its own reason."""
    omq_instance.start()
    omq_instance.ready()
    for line, status, reason in LINES:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(120)
            stranger.connect(str(omq_instance.paths.socket))
            stranger.sendall(line + b"\n")
            with stranger.makefile() as answers:
                answer = json.loads(answers.readline())
        assert answer["status"] == status, line
        assert reason in answer["fields"].get("reason", ""), line
    omq_instance.ready()


CONFIGURATIONS = [
    ("omq.conf", "[journal]\njournal_file_bytes = 12\n", "journal_file_bytes", "262144"),
    ("omq.conf", "[journal]\nno_such_key = 1\n", "no_such_key", "unknown key"),
    ("omq.conf", "[journal\n", "omq.conf:1", "[journal"),
    ("omq.conf", "[ipc]\nclients_max = \xff\n", "clients_max", "clients_max"),
    ("omq.conf", "[ipc]\ndedupe_clients_max = 8000\n", "dedupe_clients_max", "7000"),
    ("queues.conf", "[A]\npriority = 11\n", "queues.conf:2", "0 to 9"),
    ("queues.conf", "[lower case]\n", "queues.conf:1", "queue"),
    ("queues.conf", "[A]\nput = perhaps\n", "put", "allowed"),
    ("authority.conf", "[A]\nuser:nobody = all of it\n", "authority.conf:2", "put"),
]


def test_a_wrong_configuration_names_file_line_and_key(omq_instance: Instance) -> None:
    """Exit code 78; nothing else happens."""
    for file, text, where, allowed in CONFIGURATIONS:
        path = omq_instance.conf / file
        right = path.read_text() if path.exists() else ""
        path.write_text(text)
        omq_instance.output.unlink(missing_ok=True)
        assert omq_instance.start().wait() == Exit.CONFIG, text
        said = omq_instance.said()
        assert file in said and where in said and allowed in said, said
        path.write_text(right)


def _missing(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def _writable(root: Path) -> None:
    root.chmod(0o777)


def _foreign(root: Path) -> None:
    os.chown(root, NOBODY, -1)


def _newer(root: Path) -> None:
    file = root / "instance.json"
    file.write_text(file.read_text().replace('"format": 1', '"format": 3'))


def _garbled(root: Path) -> None:
    (root / "instance.json").write_bytes(os.urandom(60))


def _newer_pool(root: Path) -> None:
    """Both slots of poolctrl are of the next version."""
    file = root / "msgpool" / "poolctrl"
    raw = bytearray(file.read_bytes())
    for at in (0, len(raw) // 2):
        raw[at + 8 : at + 10] = (poolctrl.VERSION + 1).to_bytes(2, "little")
    file.write_bytes(raw)


SPOOLS: list[tuple[Callable[[Path], None], Exit, str]] = [
    (_missing, Exit.NO_INPUT, "no spool"), (_writable, Exit.NO_PERMISSION, "0777"),
    (_foreign, Exit.NO_PERMISSION, str(NOBODY)), (_newer, Exit.CONFIG, "version 3"),
    (_garbled, Exit.DATA, "instance.json"),
    (_newer_pool, Exit.CONFIG,
     f"version {poolctrl.VERSION + 1}, but this omq reads versions up to {poolctrl.VERSION}"),
]


@pytest.mark.parametrize(("spoil", "code", "words"), SPOOLS, ids=[s[0].__name__ for s in SPOOLS])
def test_a_wrong_spool_is_refused(omq_instance: Instance, tmp_path: Path,
                                  spoil: Callable[[Path], None], code: Exit, words: str) -> None:
    """And nothing in it is touched: put right again, the message is there."""
    if spoil is _foreign and os.geteuid():
        pytest.skip(OTHER_USERS)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"kept")
    omq_instance.stop()
    root = omq_instance.root
    before = (root.stat(), (root / "instance.json").read_bytes(),
              (root / "msgpool" / "poolctrl").read_bytes())
    spoil(root)
    refused = start_program(MANAGER, ["--spool", str(root), "--conf", str(omq_instance.conf)],
                            output=tmp_path / "refused")
    assert refused.wait() == code
    said = (tmp_path / "refused").read_text()
    assert words in said and str(root) in said, said
    if not root.exists():
        root.with_name("elsewhere").rename(root)
    root.chmod(before[0].st_mode & 0o7777)
    os.chown(root, before[0].st_uid, before[0].st_gid)
    (root / "instance.json").write_bytes(before[1])
    (root / "msgpool" / "poolctrl").write_bytes(before[2])
    omq_instance.start()
    assert [m.body for m in omq_instance.drain("A")] == [b"kept"]


def test_a_second_manager_is_refused_and_the_first_lives(omq_instance: Instance, tmp_path: Path
                                                         ) -> None:
    first = omq_instance.start()
    omq_instance.ready()
    second = start_program(
        MANAGER, ["--spool", str(omq_instance.root), "--conf", str(omq_instance.conf)],
        output=tmp_path / "second")
    assert second.wait() == Exit.TEMPORARY
    said = (tmp_path / "second").read_text()
    assert f"locked by process {first.pid} (queue.manager)" in said, said
    omq_instance.ready()


def test_a_port_in_use_is_said(omq_instance: Instance, tmp_path: Path) -> None:
    """smtp.server ends with code 69 and names address and port."""
    omq_instance.start()
    omq_instance.ready()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        conf = omq_instance.conf / "omq.conf"
        conf.write_text(conf.read_text() + f"[mail]\nsmtp_listen_port = {port}\n")
        server = start_program(
            "smtp.server", ["--spool", str(omq_instance.root), "--conf", str(omq_instance.conf)],
            output=tmp_path / "smtp")
        assert server.wait() == Exit.UNAVAILABLE, (tmp_path / "smtp").read_text()
        assert f"127.0.0.1 port {port}" in (tmp_path / "smtp").read_text()
    omq_instance.ready()


def test_a_stop_of_smtp_does_not_wait_for_a_manager_that_is_stopped(omq_instance: Instance
                                                                    ) -> None:
    """At a shutdown of the host nobody lets the manager go on. A mail that is being put then is not
    acknowledged, so its client sends it again; one that was acknowledged is there."""
    omq_instance.queues("[ROUTER]\n\n[POISON]\n")
    conf = omq_instance.conf / "omq.conf"
    conf.write_text(conf.read_text().replace(
        "drain_timeout_s = 2", "drain_timeout_s = 3000\nstop_timeout_s = 3600")
        + "[mail]\nsmtp_listen_port = 0\n")
    (omq_instance.conf / "routes.conf").write_text("[local]\ndomains = here.test\nusers = *\n")
    manager = omq_instance.start()
    omq_instance.ready()
    server = omq_instance.start("smtp.server")
    place = omq_instance.paths.run / "smtp.port"
    until(lambda: place.exists() or not server.running, omq_instance.said)
    port = int(place.read_text().split()[1])
    client = smtplib.SMTP("127.0.0.1", port, local_hostname="client.test", timeout=WAIT_S)
    client.sendmail("s@x", ["a@here.test"], b"Subject: first\r\n\r\n")
    os.kill(manager.pid, signal.SIGSTOP)
    try:
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.putcmd("DATA")
        assert client.getreply()[0] == 354
        client.send(b"Subject: second\r\n\r\n.\r\n")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, omq_instance.said()
    finally:
        os.kill(manager.pid, signal.SIGCONT)
    with pytest.raises(smtplib.SMTPServerDisconnected):
        client.getreply()
    client.close()
    assert any("has not answered for mails" in each["reason"]
               for each in omq_instance.events(1008) if each.get("at") == "stop")
    omq_instance.ready()
    found = [message.body for message in omq_instance.drain("ROUTER")]
    assert b"Subject: first" in found[0] and len(found) in (1, 2)


def test_a_pid_file_that_cannot_be_written_ends_nothing(omq_instance: Instance) -> None:
    """As on a file system that has become read-only: told once, and written when it can be."""
    path = omq_instance.paths.run / "qmgr.pid"
    path.mkdir()
    manager = omq_instance.start()
    omq_instance.ready()
    (told,) = omq_instance.events(1123)
    assert told["file"] == str(path) and "Traceback" not in omq_instance.said()
    path.rmdir()
    until(lambda: omq_instance.events(1124))
    assert path.read_text() == f"{manager.pid}\n"
