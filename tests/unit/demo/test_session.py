"""Whole runs with a mail switch of the test's own in place of omq; one loses a message."""

from __future__ import annotations

import io
import smtplib
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omq.base.config import load_queues, load_settings
from omq.base.paths import SpoolPaths, shipped_conf
from omq.base.services_conf import load_services
from tests.demo import session
from tests.demo.conf import AUXILIARIES, write_conf
from tests.demo.instance import Instance, InstanceError, running_instance
from tests.demo.live import QueueRow, Screen
from tests.demo.mails import as_delivered, is_local
from tests.demo.result import as_lines
from tests.demo.session import Options, Session
from tests.demo.transaction import double_dots

OPTIONS = Options(mail=None, count=40, seed=11, connections=3, crash=False, kept=True)


class EmptyIndex:
    """An index in which nothing waits."""

    def queues(self) -> list[QueueRow]:
        return []

    def readers(self) -> list[object]:
        return []

    def close(self) -> None:
        """Nothing is attached."""


class Switch(socketserver.ThreadingTCPServer):
    """Delivers to Maildirs and the sink before it says 250; message number `lost` it forgets."""

    def __init__(self, mail_root: Path, sink_port: int, lost: int | None) -> None:
        super().__init__(("127.0.0.1", 0), SwitchSession)
        self.mail_root = mail_root
        self.sink_port = sink_port
        self.lost = lost
        self.count = 0
        self.lock = threading.Lock()

    def deliver(self, recipients: list[str], text: bytes) -> None:
        with self.lock:
            self.count += 1
            number = self.count
        if number == self.lost:
            return
        data = session_text(text)
        for at, name in enumerate(recipients):
            if is_local(name):
                self.to_mailbox(name, f"{number}.{at}", data)
            else:
                self.to_sink(name, data)

    def to_mailbox(self, name: str, file: str, data: bytes) -> None:
        maildir = self.mail_root / name.partition("@")[0]
        for part in ("new", "cur"):
            (maildir / part).mkdir(parents=True, exist_ok=True)
        (maildir / "new" / file).write_bytes(data)

    def to_sink(self, name: str, data: bytes) -> None:
        code = 451
        while code == 451:
            with smtplib.SMTP("127.0.0.1", self.sink_port, "switch", timeout=120) as smtp:
                smtp.ehlo()
                smtp.mail("x@omq.test", ["BODY=8BITMIME"])
                code, _ = smtp.rcpt(name)
                if code == 250:
                    smtp.docmd("DATA")
                    smtp.send(double_dots(data))
                    code, _ = smtp.getreply()


class SwitchSession(socketserver.StreamRequestHandler):
    """One connection of the feeder."""

    server: Switch

    def handle(self) -> None:
        recipients: list[str] = []
        self.wfile.write(b"220 switch\r\n")
        for line in self.rfile:
            word = line.split(b":")[0].split()[0].upper()
            reply = b"250 ok"
            if word == b"EHLO":
                reply = b"250-switch\r\n250-SMTPUTF8\r\n250 8BITMIME"
            elif word == b"MAIL":
                recipients = []
            elif word == b"RCPT":
                recipients.append(line.partition(b"<")[2].partition(b">")[0].decode())
            elif word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.deliver(recipients, text)
            self.wfile.write(reply + b"\r\n")
            if word == b"QUIT":
                return


def session_text(text: bytes) -> bytes:
    """The text with its dots undoubled, a trace field on top, and without what a switch removes."""
    plain = (b"\r\n" + text).replace(b"\r\n..", b"\r\n.")[2:]
    return b"Received: by switch\r\n" + as_delivered(plain)


@pytest.fixture
def lost() -> int | None:
    """The message that the switch loses."""
    return None


@pytest.fixture(autouse=True)
def switch(monkeypatch: pytest.MonkeyPatch, lost: int | None) -> None:
    @contextmanager
    def running(spool: Path, output: Path, sink_port: int, _: Any) -> Iterator[Instance]:
        paths = SpoolPaths(spool)
        process = subprocess.Popen(["sleep", "600"])
        with Switch(spool / "mail", sink_port, lost) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            yield Instance(paths, output, process, int(server.server_address[1]))
            server.shutdown()
            thread.join()
        process.kill()
        process.wait()

    @contextmanager
    def console(*_: Path) -> Iterator[str]:
        yield "no console: there is no instance"

    monkeypatch.setattr(session, "running_instance", running)
    monkeypatch.setattr(session, "console", console)
    # Unknown users are not for this switch to report: no such messages.
    monkeypatch.setattr("tests.demo.envelopes._UNKNOWN_RECIPIENT_SHARE", 0.0)
    monkeypatch.setattr("tests.demo.watch.REDRAW_S", 0.01)


def test_a_good_run(tmp_path: Path) -> None:
    stream = io.StringIO()
    result = Session(OPTIONS, tmp_path, Screen(stream), lambda paths: EmptyIndex()).run()
    text = "\n".join(as_lines(result))
    assert result.good, text
    assert result.feed.accepted == 40
    assert result.findings.copies == result.expected == result.recipients
    assert "OK: every recipient has every message exactly once" in text
    assert str(tmp_path / "spool") in text
    assert "arrived" in stream.getvalue()


@pytest.mark.parametrize("lost", [17])
def test_a_lost_message_fails_the_run(tmp_path: Path) -> None:
    screen = Screen(io.StringIO())
    result = Session(OPTIONS, tmp_path, screen, lambda paths: EmptyIndex()).run()
    assert not result.good
    missing = result.findings.missing
    assert len({line.partition(":")[0] for line in missing}) == 1
    text = "\n".join(as_lines(result))
    assert missing[0] in text
    assert f"FAILED: {len(missing)} missing" in text


def test_mail_of_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.eml").write_bytes(b"Subject: %d\n\nhello\n" % number)
    (folder / "9.eml").write_bytes(b"Subject: x\n\n\0\n")
    options = Options(mail=folder, count=None, seed=1, connections=1, crash=False, kept=True)
    stream = io.StringIO()
    result = Session(options, tmp_path, Screen(stream), lambda paths: EmptyIndex()).run()
    assert result.good and result.feed.accepted == 3
    assert "skipped 9.eml: it holds a NUL byte" in stream.getvalue()


def test_an_instance_that_does_not_start_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"]
    monkeypatch.setattr("tests.demo.instance.command", lambda name: failing)
    with (
        pytest.raises(InstanceError, match=r"ended at start with code 3[^$]*no luck"),
        running_instance(tmp_path / "spool", tmp_path / "omrc.log", 2525),
    ):
        pass


def test_conf_is_understood_by_omq(tmp_path: Path) -> None:
    write_conf(tmp_path, shipped_conf(), 2626)
    services = load_services(tmp_path)
    assert {name: services[name].auxiliaries for name in AUXILIARIES} == AUXILIARIES
    assert services.keys() == load_services(shipped_conf()).keys()
    assert load_queues(tmp_path)["LOCAL"].death_delay_s == 2
    settings = load_settings(tmp_path)
    assert settings.unix_smarthost == "127.0.0.1:2626"
    assert 1024 <= settings.smtp_listen_port <= 65535, "one of its own, kept over restarts"
