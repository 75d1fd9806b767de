"""smtp.server and TLS: STARTTLS, TLS from the first byte, certificates, clients that misbehave."""

from __future__ import annotations

import signal
import smtplib
import socket
import ssl
import threading
from asyncio import sslproto
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base import events
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.services.mail.smtp_handler import Listener
from omq.services.mail.smtp_policy import load_policy
from omq.services.network.tls import BUFFER_BYTES, bound_buffers, secure

TEXT = b"Subject: x\r\n\r\nhello\r\n"
TIMEOUT_S = 120


def test_a_mail_over_starttls_says_so(tls: Any, certificates: Any) -> None:
    running = tls()
    with running.client() as client:
        client.ehlo()
        assert client.has_extn("starttls")
        client.starttls(context=certificates.client(check_hostname=False))
        client.ehlo()
        assert not client.has_extn("starttls")
        client.sendmail("s@x", ["a@here.test"], TEXT)
        assert client.docmd("STARTTLS")[0] == 503
    (_, body, _, _), = running.manager.puts
    assert b"with ESMTPS id " in body
    assert b"\r\n\t(using TLSv1.3 with cipher TLS_" in body
    log = (running.context.paths.logs / "mail.log").read_text()
    assert "Anonymous TLS connection established from unknown[127.0.0.1]: TLSv1.3 with" in log


def test_without_a_certificate_there_is_no_starttls(server: Any) -> None:
    with server().client() as client:
        client.ehlo()
        assert not client.has_extn("starttls")
        assert client.docmd("STARTTLS")[0] == 502


def test_what_came_in_plain_behind_starttls_is_thrown_away(tls: Any, certificates: Any) -> None:
    running = tls()
    line = socket.create_connection(("127.0.0.1", running.port), TIMEOUT_S)
    with closing(line):
        assert line.recv(1000).startswith(b"220 ")
        line.sendall(b"EHLO first\r\n")
        assert line.recv(1000).endswith(b"STARTTLS\r\n")
        line.sendall(b"STARTTLS\r\nEHLO in.plain\r\nMAIL FROM:<evil@x>\r\n"
                     b"RCPT TO:<a@here.test>\r\n")
        assert line.recv(1000) == b"220 2.0.0 go on\r\n"
        wrapped = certificates.client(check_hostname=False).wrap_socket(line)
        with closing(wrapped):
            wrapped.sendall(b"RSET\r\nMAIL FROM:<s@x>\r\n")
            assert wrapped.recv(1000).startswith(b"250 2.0.0")  # of RSET: nothing was answered
            with wrapped.makefile("rb") as answers:
                assert answers.readline().startswith(b"503 5.5.1 send HELO")


def test_starttls_takes_no_argument(tls: Any) -> None:
    with tls().client() as client:
        client.ehlo()
        assert client.docmd("STARTTLS now")[0] == 501


def test_mail_only_over_tls_where_it_is_required(tls: Any, certificates: Any) -> None:
    running = tls(smtp_starttls="require")
    with running.client() as client:
        client.ehlo()
        assert client.mail("s@x")[0] == 530
        client.starttls(context=certificates.client(check_hostname=False))
        client.sendmail("s@x", ["a@here.test"], TEXT)
    assert len(running.manager.puts) == 1


def test_old_versions_are_not_spoken(tls: Any, certificates: Any, logged: Any) -> None:
    running = tls(tls_version_min="1.3")
    old = certificates.client(check_hostname=False, maximum_version=ssl.TLSVersion.TLSv1_2)
    client = running.client()
    client.ehlo()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        client.starttls(context=old)
    client.close()
    running.stop()
    assert events.SMTP_TLS_FAILED.number in logged()


def test_certificates_are_read_again_at_a_reload(tls: Any, certificates: Any, logged: Any) -> None:
    running = tls()
    context = certificates.client()

    def name() -> str:
        with closing(socket.create_connection(("127.0.0.1", running.port), TIMEOUT_S)) as line:
            line.recv(1000)
            line.sendall(b"EHLO x\r\nSTARTTLS\r\n")
            while not line.recv(1000).endswith(b"220 2.0.0 go on\r\n"):
                pass
            context.check_hostname = False
            with closing(context.wrap_socket(line)) as wrapped:
                found = wrapped.getpeercert()
                assert found is not None
                return str(found["subjectAltName"][0][1])

    assert name() == "localhost"
    certificates.make("new.test")
    (running.context.conf_dir / "omq.conf").write_text(
        "[mail]\nsmtp_listen_port = 0\n"
        f"[tls]\nsmtp_tls_certificate = {running.context.settings.smtp_tls_certificate}\n")
    with running.client() as client:
        client.ehlo()
        running.signals.send(signal.SIGHUP)
        _until(lambda: events.SERVICE_RELOADED.number in logged())
        client.noop()  # whoever is there stays
    assert name() == "new.test"
    Path(running.context.settings.smtp_tls_certificate).write_text("no certificate")
    running.signals.send(signal.SIGHUP)
    _until(lambda: events.RELOAD_REFUSED.number in logged())
    assert name() == "new.test"


def _until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if true():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def test_tls_from_the_first_byte(users: Any, certificates: Any) -> None:
    running = users()
    with smtplib.SMTP_SSL("localhost", running.port_of(Listener.SUBMISSIONS),
                          context=certificates.client(), timeout=TIMEOUT_S) as client:
        client.ehlo()
        assert not client.has_extn("starttls")
        client.login("alice", "secret")
        client.sendmail("alice@here.test", ["a@far.test"], TEXT)
    assert b"with ESMTPSA id " in running.manager.puts[0][1]


@pytest.mark.parametrize("data", [b"EHLO x\r\n", b"\x00" * 5000, b"\x16\x03\x01\xff\xff" * 2000,
                                  b"GET / HTTP/1.1\r\n\r\n"])
def test_garbage_in_place_of_a_handshake_ends_the_session(users: Any, data: bytes) -> None:
    running = users()
    address = "127.0.0.1", running.port_of(Listener.SUBMISSIONS)
    with closing(socket.create_connection(address, TIMEOUT_S)) as line:
        line.sendall(data)
        try:
            while line.recv(1000):  # an alert of TLS, perhaps
                pass
        except ConnectionError:
            pass
    with running.client() as client:
        client.ehlo()


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02"])
def test_a_handshake_has_its_time(users: Any, first: bytes) -> None:
    running = users(tls_handshake_timeout_s=1)
    address = "127.0.0.1", running.port_of(Listener.SUBMISSIONS)
    with closing(socket.create_connection(address, TIMEOUT_S)) as line:
        line.sendall(first)
        with suppress(ConnectionError):
            assert line.recv(1000) == b""


def test_who_is_in_a_handshake_counts_as_a_session(users: Any, certificates: Any) -> None:
    running = users(submission_sessions_max=4, smtp_client_sessions_max=4)
    address = "127.0.0.1", running.port_of(Listener.SUBMISSIONS)
    held = [socket.create_connection(address, TIMEOUT_S) for _ in range(4)]
    try:
        with pytest.raises((OSError, smtplib.SMTPException)):
            for _ in range(2):  # the fourth may not have been admitted yet
                smtplib.SMTP_SSL(*address, timeout=TIMEOUT_S, context=certificates.client(
                    check_hostname=False)).close()
        running.client().close()  # another port's places are its own
        assert running.thread.is_alive()
    finally:
        for each in held:
            each.close()


def test_a_stop_does_not_wait_for_a_handshake(users: Any) -> None:
    running = users()
    address = "127.0.0.1", running.port_of(Listener.SUBMISSIONS)
    with closing(socket.create_connection(address, TIMEOUT_S)) as line:
        with running.client() as client:
            client.ehlo()  # by then the other one is in its handshake
        running.stop()
        with suppress(ConnectionError):
            assert line.recv(1000) == b""


def test_a_connection_cut_after_the_final_dot_is_put_once(tls: Any, certificates: Any) -> None:
    running = tls()
    running.manager.gate = threading.Event()
    client = running.client()
    client.starttls(context=certificates.client(check_hostname=False))
    client.ehlo()
    client.mail("s@x")
    client.rcpt("a@here.test")
    client.putcmd("DATA")
    client.getreply()
    client.send(TEXT + b".\r\n")
    assert running.manager.entered.acquire(timeout=TIMEOUT_S)
    client.close()
    running.manager.gate.set()
    running.stop()
    assert len(running.manager.puts) == 1


# the configuration


@pytest.mark.parametrize("change", ["missing", "open", "no key", "locked key"])
def test_a_certificate_that_cannot_be_used_is_refused(
        change: str, certificates: Any, tmp_path: Path, conf_dir: Path) -> None:
    path = certificates.make("localhost")
    if change == "missing":
        path.unlink()
    elif change == "open":
        path.chmod(0o644)
    elif change == "no key":
        path.write_bytes(certificates.ca_file.read_bytes())
    else:
        path.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n"
                        "-----END ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match="smtp_tls_certificate"):
        load_policy(Settings(smtp_tls_certificate=str(path)), conf_dir, tmp_path)


@pytest.mark.parametrize("settings", [
    {"smtp_starttls": "require"}, {"smtp_tls_key": "/x"}, {"submission_port": 0},
    {"submissions_port": 465}])
def test_what_needs_a_certificate_is_refused_without(settings: dict[str, Any], tmp_path: Path,
                                                     conf_dir: Path) -> None:
    with pytest.raises(ConfigError):
        load_policy(replace(Settings(), **settings), conf_dir, tmp_path)


# a client's side


def test_a_slow_handshake_of_a_peer_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer:
        line = socket.create_connection(peer.getsockname())
        context = ssl.create_default_context()
        with pytest.raises(TimeoutError, match="handshake took too long"):
            secure(line, context, "localhost", 0.05)


def test_what_comes_with_the_last_of_a_handshake_is_answered(tls: Any, certificates: Any) -> None:
    running = tls()
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.client(check_hostname=False).wrap_bio(came, goes)
    with closing(socket.create_connection(("127.0.0.1", running.port), TIMEOUT_S)) as line:
        line.recv(1000)
        line.sendall(b"EHLO x\r\n")
        line.recv(1000)
        line.sendall(b"STARTTLS\r\n")
        line.recv(1000)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(goes.read())
                came.write(line.recv(65536))
        client.write(b"NOOP\r\n")
        line.sendall(goes.read())  # in one piece with the client's Finished
        while True:
            try:
                assert client.read(1000).startswith(b"250 2.0.0")
                return
            except ssl.SSLWantReadError:
                came.write(line.recv(65536))


def test_buffers_are_bounded_and_a_large_text_passes(tls: Any, certificates: Any,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    assert sslproto.SSLProtocol.max_size > BUFFER_BYTES, "asyncio's own"
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    bound_buffers()
    running = tls()
    text = b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 100_000
    with running.client() as client:
        client.starttls(context=certificates.client(check_hostname=False))
        client.sendmail("s@x", ["a@here.test"], text)
    assert running.manager.puts[0][1].endswith(text)
