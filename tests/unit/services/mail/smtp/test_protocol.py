"""Replies that clients can tell apart: enhanced statuses, strict addresses, one id, nothing odd."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from omq.base.settings import Settings
from omq.base.settings_key import METADATA
from omq.services.mail.smtp_address import grammar_problem

TEXT = b"Subject: x\r\nMessage-ID: <1@c>\r\nX-Priority: 1\r\n\r\nhello\r\n"
BEGIN = b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<a@here.test>\r\n"
_STATUS = re.compile(rb"(\d)\d\d ([245])\.\d{1,3}\.\d{1,3} ")


def test_every_reply_has_an_enhanced_status(server: Callable[..., Any]) -> None:
    running = server(smtp_session_errors_max=1000)
    lines = (b"\r\nFOO\r\nSTARTTLS\r\nAUTH PLAIN x\r\nHELP\r\nHELP DATA\r\nNOOP\r\nVRFY\r\n"
             b"VRFY a\r\nEXPN a\r\nRSET x\r\nRSET\r\nDATA\r\nRCPT TO:<a@here.test>\r\nMAIL\r\n"
             b"MAIL FROM:<s@x> SIZE=x\r\nMAIL FROM:<s@x> FOO=1\r\nMAIL FROM:<s@x> BODY=X\r\n"
             b"MAIL FROM:<s@x> SIZE=99999999999\r\nMAIL FROM:<\xff>\r\n" + b"N" * 5000 + b"\r\n"
             b"MAIL FROM:<s@x>\r\nMAIL FROM:<s@x>\r\nDATA\r\nRCPT TO:<a@here.test> NOTIFY=NEVER\r\n"
             b"RCPT TO:<a@here.test>\r\nDATA x\r\n")
    replies = running.dialogue(b"EHLO c\r\n" + lines)
    assert b"250-ENHANCEDSTATUSCODES" in replies
    answers = [each for each in replies[1:] if each[3:4] != b"-"][1:]
    assert len(answers) == lines.count(b"\r\n") + 1
    for answer in answers:
        found = _STATUS.match(answer)
        assert found, answer
        assert found[1] == found[2], answer


def test_what_is_not_there_is_not_offered(server: Callable[..., Any]) -> None:
    replies = server().dialogue(b"EHLO c\r\nHELP\r\nSTARTTLS\r\nAUTH PLAIN AAAA\r\n")
    text = b"\n".join(replies)
    assert text.count(b"STARTTLS") == text.count(b"AUTH") == 0
    assert [each[:9] for each in replies[-3:-1]] == [b"502 5.5.1"] * 2


def test_browsers_are_sent_away(server: Callable[..., Any]) -> None:
    running = server()
    request = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n" + BEGIN + b"DATA\r\n" + TEXT + b".\r\n"
    assert running.dialogue(request)[-1].startswith(b"421")
    assert running.manager.puts == []


@pytest.mark.parametrize("address", [
    "a@b", "a.b+c@x-y.example.org", "a@b.", '"a b"@c', '"a\\"@"@c', "a@[192.0.2.1]",
    "a@[IPv6:2001:db8::1]", "postmaster", "o'neil!#$%&*/=?^_`{|}~@x", "é@ü.de", "a@_dmarc.x",
])
def test_addresses(address: str) -> None:
    assert grammar_problem(address) is None


@pytest.mark.parametrize("address", [
    "", "a..b@c", ".a@c", "a.@c", "a b@c", "a@b..c", "a@-b", "a@b-", "a@b c", "a@", "@b", "a@b@c",
    "a,b@c", "a:b@c", "a;b@c", "a@[192.0.2.256]", "a@[::1]", "a@[IPv6:192.0.2.1]", "a@[x", "(a)@b",
    "x" * 65 + "@c", "a@" + "b" * 64, "a@" + ".".join(["b" * 60] * 5), '"a"b@c', "a\\b@c", '"a@c',
])
def test_no_addresses(address: str) -> None:
    assert grammar_problem(address)


def test_unknown_users_are_refused_at_once(server: Callable[..., Any], conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text(
        "[local]\ndomains = here.test\nusers = bob, u-*\n[aliases]\nall = bob\nnone = nobody\n")
    running = server(maildir_pattern_max=1)
    replies = {}
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        for name in ("bob", "nobody", "all", "none", "postmaster", "u-1"):
            replies[name] = client.rcpt(f"{name}@here.test")
    assert {name: code for name, (code, _) in replies.items()} == {
        "bob": 250, "nobody": 550, "all": 250, "none": 550, "postmaster": 250,
        "u-1": 250}  # there is no folder of Maildirs yet
    assert replies["nobody"][1].startswith(b"5.1.1")


def test_users_without_maildir_when_none_are_made(server: Callable[..., Any],
                                                   tmp_path: Path) -> None:
    (tmp_path / "spool/mail/bob").mkdir(parents=True)
    running = server(maildir_create=False)
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        assert client.rcpt("bob@here.test")[0] == 250
        assert client.rcpt("eve@here.test")[0] == 550


def test_mailboxes_by_pattern_have_a_limit(server: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("bob", "eve"):
        (tmp_path / "spool/mail" / name).mkdir(parents=True)
    running = server(maildir_pattern_max=2)
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        assert client.rcpt("bob@here.test")[0] == 250
        assert client.rcpt("postmaster@here.test")[0] == 250
        assert client.rcpt("somebody@here.test")[0] == 550


def test_mailboxes_that_are_promised_count(server: Callable[..., Any], tmp_path: Path) -> None:
    """Twenty recipients were taken where there was room for one: nineteen had a report."""
    (tmp_path / "spool/mail/bob").mkdir(parents=True)
    running = server(maildir_pattern_max=3)

    def taken(client: Any, *names: str) -> list[int]:
        return [client.rcpt(f"{name}@here.test")[0] for name in names]

    with running.client() as client, running.client() as other:
        for each in (client, other):
            each.ehlo()
            each.mail("s@x")
        assert taken(client, "a1", "a2", "a3", "bob", "a1") == [250, 250, 550, 250, 250]
        assert taken(other, "a2", "b1") == [250, 550]
        client.rset()
        assert taken(other, "b1", "b2") == [250, 550], "a2 is promised to this one, too"
        assert other.data(TEXT)[0] == 250
        other.mail("s@x")
        assert taken(other, "b2", "b1") == [550, 250], "its mail is under way"
        (tmp_path / "spool/mail/b1").mkdir()
        (tmp_path / "spool/mail/b1").rmdir()
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        assert taken(client, "c1") == [550]


@pytest.mark.parametrize(("count", "size"), [(1000, 31), (100, 320)])
def test_as_many_recipients_as_the_setting_says(server: Callable[..., Any], count: int, size: int
                                                ) -> None:
    """10,000 could be set, and 2,419 were taken."""
    running = server()
    domain = ".".join(["d" * 60] * 4) if size > 200 else "here.test"
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        codes = set()
        for number in range(count):
            local = f"{number:04}".ljust(min(64, size - len(domain) - 1), "x")
            codes.add(client.rcpt(f"{local}@{domain}")[0])
        assert codes == {250}
        assert client.data(TEXT)[0] == 250
    key = next(each for each in fields(Settings) if each.name == "smtp_recipients_max")
    assert key.metadata[METADATA].high == 1000, "what is allowed is taken"


def test_one_id_from_the_reply_to_the_log(server: Callable[..., Any], tmp_path: Path) -> None:
    running = server()
    with running.client() as client:
        client.ehlo()
        client.mail("s@x")
        client.rcpt("a@here.test")
        code, reply = client.data(TEXT)
    assert code == 250
    mail_id = reply.split()[-1].decode()
    assert re.fullmatch("[0-9a-f]{48}", mail_id)
    ((_, body, _, properties),) = running.manager.puts
    assert f" id {mail_id}\r\n".encode() in body
    assert properties["mail.id"] == mail_id
    lines = (tmp_path / "spool/logs/mail.log").read_text().splitlines()
    said = [line.split("]: ", 1)[1] for line in lines]
    assert said == [f"{mail_id}: client=client.test[127.0.0.1]", f"{mail_id}: message-id=<1@c>",
                    f"{mail_id}: from=<s@x>, size={len(body)}, nrcpt=1 (queue active)"]
    assert all(re.match(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d mx\.test omq/[a-z]+\[\d+\]: ", line)
               for line in lines)


def test_refusals_stand_in_the_log_in_one_line(server: Callable[..., Any], tmp_path: Path) -> None:
    running = server(smtp_relay_networks="192.0.2.0/24")
    running.dialogue("EHLO c\r\nMAIL FROM:<s\x85x@y> SMTPUTF8\r\nMAIL FROM:<s@x>\r\n"
                     "RCPT TO:<b@far.test>\r\n".encode())
    (line,) = (tmp_path / "spool/logs/mail.log").read_text().splitlines()
    assert line.endswith("NOQUEUE: reject: RCPT from c[127.0.0.1]: 550 5.7.1 relaying is not "
                         "allowed; from=<s@x> to=<b@far.test>")


@pytest.mark.parametrize(("settings", "priority"), [
    ({}, 7), ({"smtp_relay_networks": "192.0.2.0/24"}, 4),
    ({"smtp_relay_networks": "192.0.2.0/24", "smtp_stranger_priority": True}, 7)])
def test_strangers_are_not_urgent(server: Callable[..., Any], settings: dict[str, Any],
                                  priority: int) -> None:
    running = server(**settings)
    with running.client() as client:
        client.sendmail("s@x", ["a@here.test"], TEXT)
    assert running.manager.puts[0][2] == priority


def test_a_header_without_end_is_refused(server: Callable[..., Any]) -> None:
    """Only what is looked through can be told to have no Bcc."""
    running = server(mail_header_scan_bytes=4096)
    fields = b"X: y\r\n" * 1000 + b"Bcc: c@x\r\n\r\nhello\r\n"
    assert running.dialogue(BEGIN + b"DATA\r\n" + fields + b".\r\n")[-2].startswith(b"552 5.3.4")
    assert running.dialogue(BEGIN + b"DATA\r\n" + TEXT + b"x\r\n" * 5000 + b".\r\n"
                            )[-2].startswith(b"250")


def test_memory_is_one_for_all_sessions(server: Callable[..., Any]) -> None:
    running = server(smtp_memory_bytes_max=200_000)
    with socket.create_connection(("127.0.0.1", running.port), 10) as holder:
        holder.sendall(BEGIN + b"DATA\r\n" + b"x\r\n" * 30_000)
        replies = [b""]
        while not replies[-2:][0].startswith(b"452 4.3.1"):  # until that text has been read
            replies = running.dialogue(b"EHLO c\r\nMAIL FROM:<s@x> SIZE=50000\r\n")
        replies = running.dialogue(BEGIN + b"DATA\r\n" + b"y\r\n" * 30_000 + b".\r\n")
        assert replies[-2].startswith(b"452 4.3.1")
        holder.sendall(b".\r\n")
        with holder.makefile("rb") as answers:
            while not answers.readline().startswith(b"250 2.0.0 OK"):
                continue
    assert running.dialogue(BEGIN + b"DATA\r\n" + b"y\r\n" * 20_000 + b".\r\n"
                            )[-2].startswith(b"250")


def test_a_refused_message_takes_no_other_of_its_batch_with_it(server: Callable[..., Any]) -> None:
    running = server(smtp_workers=1)
    running.manager.refuses = lambda message: b"too long" in message.body
    running.manager.gate = threading.Event()
    peers = [socket.create_connection(("127.0.0.1", running.port), 10) for _ in range(6)]
    for number, peer in enumerate(peers):
        peer.sendall(BEGIN + b"DATA\r\n" + (b"too long" if number == 3 else b"good")
                     + b"\r\n.\r\nQUIT\r\n")
    assert running.manager.entered.acquire(timeout=120)
    running.manager.gate.set()
    last = []
    for peer in peers:
        with peer, peer.makefile("rb") as answers:
            last.append(answers.read().split(b"\r\n")[-3][:9])
    assert last == [b"250 2.0.0"] * 3 + [b"552 5.3.4"] + [b"250 2.0.0"] * 2
    assert len(running.manager.puts) == 5
