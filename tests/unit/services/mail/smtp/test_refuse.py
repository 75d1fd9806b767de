"""What smtp.server refuses, with which reply, and that the session goes on."""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from typing import Any

import pytest

from omq.base import errors
from omq.services.mail.smtp_address import path_of
from omq.services.mail.smtp_refusals import reply_to

TEXT = b"Subject: x\r\n\r\n.hello\r\n..\r\n"
TIMEOUT_S = 120
LONG_DOMAIN = ".".join(["x" * 60] * 4)


@pytest.mark.parametrize(("error", "code", "status"), [
    (errors.QueueFull(queue="ROUTER", limit=1), 452, b"4.3.1"),
    (errors.IndexFull(limit=1), 452, b"4.3.1"),
    (errors.SpoolFull(path="x", detail="y"), 452, b"4.3.1"),
    (errors.PutInhibited(queue="ROUTER"), 451, b"4.3.2"),
    (errors.ShuttingDown(), 451, b"4.3.2"),
    (errors.ManagerUnavailable(spool="x", reason="y"), 451, b"4.3.0"),
    (errors.TimedOut(seconds=1, what="x"), 451, b"4.3.0"),
    (errors.NotRegistered(), 451, b"4.3.0"),
    (errors.NoAuthority(uid=1, action="put", queue="ROUTER"), 451, b"4.3.5"),
    (errors.MessageTooLong(size=2, queue="ROUTER", limit=1), 552, b"5.3.4"),
    (errors.BadProperty(name="x", rule="y"), 554, b"5.6.0"),
    (RuntimeError("a bug"), 451, b"4.3.0"),
])
def test_every_failed_put_has_its_reply(server: Callable[..., Any], error: Exception, code: int,
                                        status: bytes) -> None:
    running = server(smtp_workers=1)
    running.manager.error = error
    with running.client() as client:
        for _ in range(2):
            with pytest.raises(smtplib.SMTPDataError) as raised:
                client.sendmail("s@x", ["a@here.test"], TEXT)
            assert raised.value.smtp_code == code
            assert isinstance(raised.value.smtp_error, bytes)
            assert raised.value.smtp_error.startswith(status)
        running.manager.error = None
        client.sendmail("s@x", ["a@here.test"], TEXT)  # the session goes on
    assert len(running.manager.puts) == 1


def test_every_error_of_ours_has_a_reply() -> None:
    for kind in errors.BY_STATUS.values():
        assert reply_to(kind())[:2] in ("45", "55")


def test_strangers_reach_local_addresses_only(server: Callable[..., Any]) -> None:
    running = server(smtp_relay_networks="192.0.2.0/24")
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        for address in ("b@far.test", "a@here.test@far.test", "@here.test:b@far.test",
                        "b%far.test@far.test"):
            code, text = client.docmd("RCPT", f"TO:<{address}>")
            assert code in (550, 553)
            assert text.startswith((b"5.7.1", b"5.1.3"))
        for address in ("a@here.test", "postmaster", "LIST@other.test", "@far.test:a@here.test"):
            assert client.docmd("RCPT", f"TO:<{address}>")[0] == 250


def test_too_many_recipients(server: Callable[..., Any]) -> None:
    running = server(smtp_recipients_max=100)
    with running.client() as client:
        refused = client.sendmail("s@x", [f"u{n}@here.test" for n in range(103)], TEXT)
    assert sorted(refused) == ["u100@here.test", "u101@here.test", "u102@here.test"]
    assert all(code == 452 and text.startswith(b"4.5.3") for code, text in refused.values())
    assert len(running.manager.puts[0][3]["mail.to.LOCAL"].split("\n")) == 100


def test_recipients_fit_into_the_properties(server: Callable[..., Any]) -> None:
    running = server()
    with running.client() as client:
        refused = client.sendmail("s@x", [f"{n:03}@{LONG_DOMAIN}" for n in range(200)], TEXT)
    assert refused
    assert len(running.manager.puts[0][3]["mail.to"]) <= 32 * 1024


def test_size_and_line_limits(server: Callable[..., Any]) -> None:
    running = server(smtp_message_bytes_max=5000, smtp_line_bytes_max=1001)
    with running.client() as client:
        client.ehlo()
        assert client.docmd("MAIL", "FROM:<s@x> SIZE=5001")[0] == 552
        for text, code in ((b"x\r\n" * 2000, 552), (b"y" * 1200 + b"\r\n", 500)):
            client.docmd("MAIL", "FROM:<s@x>")
            client.rcpt("a@here.test")
            assert client.data(text)[0] == code
        client.sendmail("s@x", ["a@here.test"], b"z" * 1000 + b"\r\n")
    assert len(running.manager.puts) == 1


def test_bare_newlines_may_be_refused(server: Callable[..., Any]) -> None:
    running = server(smtp_bare_newline="refuse")
    begin = b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nDATA\r\n"
    for text in (b"a\nb\r\n", b"a\rb\r\n", b"a\r\r\n", b"\n.\r\nx\r\n"):
        assert running.dialogue(begin + text + b".\r\n")[-2].startswith(b"550 5.6.0")
    assert running.dialogue(begin + b"a\r\n.\r\n")[-2].startswith(b"250")
    assert len(running.manager.puts) == 1


def test_broken_commands_leave_the_session_alive(server: Callable[..., Any]) -> None:
    running = server()
    lines = [b"MAIL FROM:<", b"MAIL FROM:<a\rb@c>", b"MAIL FROM:<\xff@c>",
             b"MAIL FROM:<\xc3\xa9@c>", b"MAIL FROM:" + b"(" * 1500,
             b"RCPT TO:<a@here.test>", b"MAIL FROM:<" + b"a" * 3000,
             b"MAIL FROM:<s@x> BODY=9BIT", b"MAIL FROM:<s@x>", b"RCPT TO:<>", b"RCPT TO:<@>",
             b"RCPT TO:<a@here.test", b"DATA"]
    replies = running.dialogue(b"EHLO c\r\n" + b"\r\n".join(lines) + b"\r\n")
    codes = [line[:3] for line in replies if line[3:4] != b"-"][2:-1]
    assert len(codes) == len(lines)
    assert [code for code in codes if code == b"250"] == [b"250"]
    assert all(code[:1] == b"5" or code == b"250" for code in codes)


@pytest.mark.parametrize(("path", "address"), [
    ("<a@b>", "a@b"), ("<>", ""), ('<"a > b"@c>', '"a > b"@c'), ("<@x,@y:a@b>", "a@b"),
    ('<"a\\"b"@c> SIZE=1', '"a\\"b"@c'), (" <a@b> BODY=7BIT", "a@b"), ("<a@b> <c@d>", "a@b"),
    ("a@b", None), ("<a@b", None), ("a@b>", None), ("<a@b>x", None), ("<a b@c>", None),
    ("<<a@b>>", None), ('<"a@b>', None), ("", None),
])
def test_paths(path: str, address: str | None) -> None:
    found = path_of(path)
    assert (found[0] if found else None) == address


def test_with_soft_bounce_nothing_is_refused_for_good(server: Callable[..., Any]) -> None:
    running = server(smtp_relay_networks="192.0.2.0/24", soft_bounce=True,
                     smtp_session_errors_max=3)
    with running.client() as client:
        client.ehlo()
        assert client.docmd("NONSENSE") == (402, b"4.5.1 the command is not known here")
        client.mail("s@x")
        code, words = client.rcpt("b@far.test")
        assert (code // 100, words[:6]) == (4, b"4.7.1 ")
        assert client.docmd("RCPT", "TO:<")[0] in range(400, 500)
        assert client.noop()[0] == 421, "they are counted all the same"
    log = (running.context.paths.logs / "mail.log").read_text()
    assert "reject: RCPT" in log
    assert " 5.7" not in log
