"""smtp.server and the clients that administrators try it with: swaks, openssl, smtp-source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omq.services.mail.smtp_handler import Listener
from tests.unit.services.mail.real import found, run

BODY = "Subject: tried by hand\n\n.a dot\nlast line"


@pytest.fixture
def swaks() -> Callable[..., Any]:
    program = found("usr/bin/swaks", "swaks")

    def send(port: int, *more: str) -> Any:
        return run([program, "--server", f"127.0.0.1:{port}", "--ehlo", "client.test", "--from",
                    "s@far.test", "--data", BODY, *more])

    return send


def test_swaks_is_told_who_exists(server: Callable[..., Any], swaks: Callable[..., Any],
                                  conf_dir: Any) -> None:
    (conf_dir / "routes.conf").write_text("[local]\ndomains = here.test\nusers = a\n")
    running = server()
    said = swaks(running.port, "--to", "a@here.test,nobody@here.test")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "<-  250 2.1.5 OK" in said.stdout
    assert "<** 550 5.1.1 " in said.stdout
    (message,) = running.manager.messages
    assert message.body.endswith(b"\r\n.a dot\r\nlast line\r\n")
    assert f"250 2.0.0 OK {message.given_id.hex()}" in said.stdout


def test_swaks_over_tls_with_a_password(users: Callable[..., Any], swaks: Callable[..., Any]
                                        ) -> None:
    running = users()
    port = running.port_of(Listener.SUBMISSION)
    login = ("--from", "alice@here.test", "--auth", "PLAIN", "--auth-user", "alice",
             "--auth-password")
    said = swaks(port, "--to", "x@far.test", "--tls", *login, "secret")
    if said.returncode == 10:
        pytest.skip("swaks has no TLS: apt-get install libnet-ssleay-perl")
    assert said.returncode == 0, said.stdout + said.stderr
    (message,) = running.manager.messages
    assert b" with ESMTPSA id " in message.body
    assert swaks(port, "--to", "x@far.test", "--tls", *login, "wrong").returncode == 28
    assert swaks(port, "--to", "x@far.test", *login, "secret").returncode != 0  # in plain
    assert len(running.manager.messages) == 1


def test_openssl_speaks_starttls(tls: Callable[..., Any], certificates: Any) -> None:
    running, program = tls(), found("usr/bin/openssl", "openssl")
    said = run([program, "s_client", "-starttls", "smtp", "-crlf", "-quiet", "-verify_return_error",
                "-CAfile", certificates.ca_file, "-verify_hostname", "localhost",
                "-connect", f"127.0.0.1:{running.port}"],
               "EHLO c\nMAIL FROM:<s@x>\nRCPT TO:<a@here.test>\nDATA\n"
               "To: a@here.test\n\nx\n.\nQUIT\n")
    assert said.returncode == 0, said.stderr
    assert "250 2.0.0 OK" in said.stdout
    (message,) = running.manager.messages
    assert b"with ESMTPS id " in message.body


def test_smtp_source_has_each_of_its_messages_taken(server: Callable[..., Any]) -> None:
    running, program = server(), found("usr/sbin/smtp-source", "postfix")
    said = run([program, "-d", "-s", "5", "-m", "60", "-l", "3000", "-f", "s@far.test",
                "-t", "a@here.test", f"127.0.0.1:{running.port}"])
    assert said.returncode == 0, said.stderr
    assert len(running.manager.messages) == 60
    assert len({each.message_id for each in running.manager.messages}) == 60
