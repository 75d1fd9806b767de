"""What smtp.server accepts: put with every byte, answered with 250 only after the put."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from omq.base.settings import Settings

TEXT = b"Subject: x\r\n\r\n.hello\r\n..\r\n"
TIMEOUT_S = 120


def test_what_is_accepted_is_put_with_every_byte(server: Callable[..., Any]) -> None:
    running = server()
    with running.client() as client:
        client.ehlo()
        assert {"size", "8bitmime", "smtputf8", "pipelining"} <= set(client.esmtp_features)
        assert client.esmtp_features["size"] == str(Settings().smtp_message_bytes_max)
        client.sendmail("s@far.test", ["a@here.test", "b@far.test"], TEXT)
    ((queue, body, priority, properties),) = running.manager.puts
    assert queue == "ROUTER"
    assert priority == 4
    assert properties["mail.from"] == "s@far.test"
    assert properties["mail.to"] == "a@here.test\nb@far.test"
    assert properties["mail.peer"] == "127.0.0.1"
    assert properties["mail.helo"] == "client.test"
    assert properties["mail.body"] == "7BIT"
    assert "mail.smtputf8" not in properties
    trace, rest = body[: -len(TEXT)], body[-len(TEXT):]
    assert rest == TEXT
    assert trace.startswith(b"Received: from client.test ([127.0.0.1])\r\n\tby mx.test (omq) with ")
    assert trace.count(b"\r\n") == 3
    assert b"here.test" not in trace


def test_one_recipient_is_named_in_the_trace(server: Callable[..., Any]) -> None:
    running = server()
    with running.client() as client:
        client.sendmail("", ["a@here.test"], b"Priority: urgent\r\n\r\n")
    ((_, body, priority, properties),) = running.manager.puts
    assert b"\r\n\tfor <a@here.test>;\r\n" in body
    assert priority == 7
    assert properties["mail.from"] == ""


def test_nasty_bodies_are_kept(server: Callable[..., Any], nasty: bytes) -> None:
    running = server()
    stuffed = b"".join(b"." + line if line.startswith(b".") else line
                       for line in nasty.replace(b"\r\n", b"\r\n\0split").split(b"\0split"))
    end = b".\r\n" if not stuffed or stuffed.endswith(b"\r\n") else b"\r\n.\r\n"
    replies = running.dialogue(b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nDATA\r\n"
                               + stuffed + end)
    assert replies[-2].startswith(b"250 2.0.0 OK")
    ((_, body, _, _),) = running.manager.puts
    wanted = nasty if not nasty or nasty.endswith(b"\r\n") else nasty + b"\r\n"
    trace = body.split(b"\r\n\t", 3)[-1].split(b"\r\n", 1)
    assert body.startswith(b"Received: from c ")
    assert trace[1] == wanted


def test_pipelined_commands_are_answered_in_order(server: Callable[..., Any]) -> None:
    running = server()
    message = b"MAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nRCPT TO:<b@here.test>\r\nDATA\r\n"
    replies = running.dialogue(b"EHLO c\r\n" + (message + TEXT.replace(b"\r\n.", b"\r\n..")
                                                + b".\r\n") * 3)
    codes = [line[:3] for line in replies if line[3:4] != b"-"]
    assert codes == [b"220", b"250"] + [b"250", b"250", b"250", b"354", b"250"] * 3 + [b"221"]
    assert [put[1].endswith(TEXT) for put in running.manager.puts] == [True] * 3


def test_no_reply_before_the_put_returned(server: Callable[..., Any]) -> None:
    running = server()
    running.manager.gate = threading.Event()
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        client.putcmd("DATA")
        assert client.getreply()[0] == 354
        client.send(TEXT + b".\r\n")
        assert running.manager.entered.acquire(timeout=TIMEOUT_S)
        assert client.sock is not None
        client.sock.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.sock.recv(1)
        client.sock.settimeout(TIMEOUT_S)
        running.manager.gate.set()
        assert client.getreply()[0] == 250


def test_only_crlf_dot_crlf_ends_the_text(server: Callable[..., Any]) -> None:
    running = server()
    evil = (b"x\n.\n" b"x\n.\r\n" b"x\r.\r" b"\nMAIL FROM:<evil@x>\r\nRCPT TO:<b@here.test>\r\n"
            b"DATA\r\nsmuggled\r\n.\r\n")
    running.dialogue(b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\nDATA\r\n" + evil)
    assert [put[3]["mail.from"] for put in running.manager.puts] == ["s@x"]


def test_international_addresses_need_smtputf8(server: Callable[..., Any]) -> None:
    running = server()
    replies = running.dialogue(
        "EHLO c\r\nMAIL FROM:<é@x> SMTPUTF8 BODY=8BITMIME\r\nRCPT TO:<ü@far.test>\r\nDATA\r\n"
        "é\r\n.\r\n".encode())
    assert replies[-2].startswith(b"250 2.0.0")
    properties = running.manager.puts[0][3]
    assert (properties["mail.from"], properties["mail.to.UNIX"]) == ("é@x", "ü@far.test")
    assert (properties["mail.smtputf8"], properties["mail.body"]) == ("1", "8BITMIME")


def test_puts_of_several_sessions_run_side_by_side(server: Callable[..., Any]) -> None:
    running = server(smtp_workers=4, smtp_batch_messages_max=1)
    running.manager.gate = threading.Event()

    def send() -> None:
        with running.client() as client:
            client.sendmail("s@x", ["a@here.test"], TEXT)

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for _ in senders:
        assert running.manager.entered.acquire(timeout=TIMEOUT_S)
    running.manager.gate.set()
    for sender in senders:
        sender.join(TIMEOUT_S)
    assert len(running.manager.threads) == 4
    assert running.manager.connections == 4


def test_what_the_sender_wants_to_be_told_is_kept(server: Callable[..., Any]) -> None:
    running = server()
    with running.client() as client:
        client.ehlo()
        assert client.has_extn("dsn")
        assert client.docmd("MAIL FROM:<s@x> RET=hdrs ENVID=a+2Bb")[0] == 250
        assert client.docmd("RCPT TO:<a@here.test> NOTIFY=never")[0] == 250
        assert client.docmd("RCPT TO:<b@here.test> ORCPT=rfc822;B@x NOTIFY=DELAY")[0] == 250
        assert client.docmd("RCPT TO:<c@here.test>")[0] == 250
        for wrong in ("NOTIFY=x", "ORCPT=rfc822;a+0D+0Ab", "ORCPT=" + "a" * 501, "X=y", "NOTIFY"):
            assert client.docmd(f"RCPT TO:<d@here.test> {wrong}")[0] in (501, 555), wrong
        client.data(b"A: b\r\n")
        for wrong in ("ENVID=" + "x" * 101, "ENVID=a+0Ab", "ENVID", "RET=all"):
            assert client.docmd(f"MAIL FROM:<s@x> {wrong}")[0] == 501, wrong
    (_, _, _, properties), = running.manager.puts
    assert properties["mail.ret"] == "hdrs"
    assert properties["mail.envid"] == "a+2Bb"
    assert properties["mail.dsn"] == "a@here.test\tNEVER\t\nb@here.test\tDELAY\trfc822;B@x"


def test_whether_its_sender_calls_tls_optional(server: Callable[..., Any]) -> None:
    """TLS-Required: No (RFC 8689), for unix.out."""
    running = server()
    headers = ((b"TLS-Required: No\r\n", True), (b"tls-required:\tno \r\n", True),
               (b"TLS-Required: Yes\r\n", False), (b"", False),
               (b"TLS-Required: No\r\nTLS-Required: Yes\r\n", False),
               (b"Subject: TLS-Required: No\r\n", False),
               (b"\r\nTLS-Required: No\r\n", False))
    with running.client() as client:
        for header, _ in headers:
            client.sendmail("s@x", ["a@here.test"], b"From: s@x\r\n" + header + b"\r\nx\r\n")
    assert [put[3].get("mail.tls") == "optional" for put in running.manager.puts] == [
        optional for _, optional in headers]
