"""What fails in a session without its client's fault has a reply, and nobody waits for one."""

from __future__ import annotations

import base64
import smtplib
from collections.abc import Iterator
from typing import Any

import argon2
import pytest

from omq.base import events
from omq.services.mail.smtp_handler import Listener

TEXT = b"Subject: x\r\n\r\nhello\r\n"
TIMEOUT_S = 120


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def client(users: Any, certificates: Any) -> Iterator[Any]:
    """A client at the port of mail programs, over TLS."""
    opened: list[smtplib.SMTP] = []

    def make(**settings: Any) -> Any:
        running = opened[0].running if opened else users(**settings)  # type: ignore[attr-defined]
        made = smtplib.SMTP("127.0.0.1", running.port_of(Listener.SUBMISSION), timeout=TIMEOUT_S)
        made.running = running  # type: ignore[attr-defined]
        made.ehlo()
        made.starttls(context=certificates.client(check_hostname=False))
        made.ehlo()
        opened.append(made)
        return made

    yield make
    for each in opened:
        each.close()


def test_a_password_that_cannot_be_looked_at_has_its_reply(
        client: Any, logged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, right = client(smtp_client_logins_max=1), "PLAIN " + b64("\0alice\0secret")

    def no_memory(*_: object) -> bool:
        raise argon2.exceptions.VerificationError("Memory allocation error")

    with monkeypatch.context() as without:
        without.setattr(argon2.PasswordHasher, "verify", no_memory)
        for _ in range(2):
            assert made.docmd("AUTH", right)[0] == 454
        assert made.docmd("AUTH", "LOGIN")[0] == 334
        assert made.docmd(b64("alice"))[0] == 334
        assert made.docmd(b64("secret"))[0] == 454
    assert made.docmd("AUTH", right)[0] == 235, "none of them was a wrong password"
    assert logged().count(events.SMTP_SESSION_FAILED.number) == 3
    assert logged().count(events.SMTP_LOGIN_FAILED.number) == 0


@pytest.mark.parametrize("command", ["MAIL", "AUTH", "text"])
def test_what_nobody_foresaw_has_a_reply_and_ends_the_session(
        client: Any, logged: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    made = client()
    if command != "AUTH":
        made.login("alice", "secret")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    where = {"MAIL": "smtp_envelope.parameter_problem", "AUTH": "smtp_commands.exchange",
             "text": "smtp_storing.submitted"}[command]
    with monkeypatch.context() as without:
        without.setattr(f"omq.services.mail.{where}", broken)
        if command == "text":
            made.mail("alice@here.test")
            made.rcpt("a@far.test")
            assert made.data(TEXT)[0] == 421
        else:
            words = "PLAIN" if command == "AUTH" else "FROM:<alice@here.test>"
            assert made.docmd(command, words)[0] == 421
    with pytest.raises(smtplib.SMTPServerDisconnected):
        made.noop()
    assert logged().count(events.SMTP_SESSION_FAILED.number) == 1
    again = client()
    again.login("alice", "secret")
    again.sendmail("alice@here.test", ["a@far.test"], TEXT)
    assert len(made.running.manager.puts) == 1
