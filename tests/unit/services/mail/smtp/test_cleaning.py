"""Checks and rewriting at smtp.server: before milters and before a signature is made, for whom, in
how much time, while other sessions go on."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from omq.services.mail import content_checks, smtp_cleaning
from omq.services.mail import milter_packets as packets
from omq.services.mail.milter_client import Milter
from omq.services.mail.smtp_handler import Listener
from omq.services.mail.smtp_storing import StoringCommands
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.unit.services.mail.smtp.milters import TestMilter
from tests.unit.services.mail.smtp.test_maps import Gate, gate  # noqa: F401 (a fixture)
from tests.unit.services.mail.smtp.test_milter import send
from tests.unit.services.mail.smtp.test_real_milters import key, opendkim  # noqa: F401

STRANGERS = {"smtp_relay_networks": "192.0.2.0/24"}
TEXT = (b"From: a@host.here.test\r\nTo: old@here.test (him),\r\n\tx@far.test\r\n"
        b"Subject:  two  spaces\r\n\r\nold@here.test\r\n")
Start = Callable[..., Running]


@pytest.fixture
def cleaning(server: Start, conf_dir: Path, tmp_path: Path, context: Any) -> Start:
    """cleaning(checks=text, rewriting=lines, **settings): [canonical_maps] is tmp_path/map."""
    def start(checks: str = "", rewriting: str = "", more: str = "", **settings: Any) -> Running:
        (tmp_path / "h").write_text(checks)
        (tmp_path / "map").write_text("old@here.test new@here.test\nold@there.test new@here.test\n"
                                      "away@here.test away@far.test\n")
        (conf_dir / "routes.conf").write_text(
            "[local]\ndomains = here.test\nusers = new, alice, bob\n"
            + (f"[checks]\nheader = {tmp_path}/h\n" if checks else "")
            + f"[rewriting]\nmasquerade_domains = here.test\n{rewriting}\n"
              f"[canonical_maps]\nc = file:{tmp_path}/map\n{more}")
        return server(**settings)

    return start


def text_of(running: Running) -> bytes:
    """Of the only mail, without our Received field."""
    (put,) = running.manager.puts
    return put[1][put[1].index(b"From: "):]


def logged(running: Running) -> str:
    return (running.context.paths.logs / "mail.log").read_text()


def test_mail_of_our_own_clients_is_rewritten(cleaning: Start) -> None:
    running = cleaning()
    assert send(running, "old@here.test", "x@far.test", text=TEXT,
                sender="a@host.here.test") == "250"
    (put,) = running.manager.puts
    assert put[3]["mail.from"] == "a@here.test"
    assert (put[3]["mail.to.LOCAL"], put[3]["mail.to.UNIX"]) == ("new", "x@far.test")
    assert text_of(running) == TEXT.replace(b"old@here.test", b"new@here.test", 1).replace(
        b"a@host.here", b"a@here")


@pytest.mark.parametrize(("headers", "changed"), [("own", False), ("all", True), ("none", False)])
def test_a_strangers_header_is_his(cleaning: Start, headers: str, *, changed: bool) -> None:
    """The envelope is rewritten all the same, and who is named finds his mailbox."""
    running = cleaning(rewriting=f"headers = {headers}", **STRANGERS)
    assert send(running, "old@here.test", text=TEXT, sender="old@there.test") == "250"
    (put,) = running.manager.puts
    assert (put[3]["mail.from"], put[3]["mail.to.LOCAL"]) == ("new@here.test", "new")
    assert (text_of(running) != TEXT) is changed


def test_rewriting_opens_no_way_and_closes_none(cleaning: Start) -> None:
    """Who may send where is a matter of the address that was given, or of the new one."""
    running = cleaning(**STRANGERS)
    assert send(running, "away@here.test", text=TEXT) == "250"
    assert send(running, "x@far.test", text=TEXT).startswith("550 5.7.1")
    assert send(running, "nobody@here.test", text=TEXT).startswith("550 5.1.1")
    assert [put[3].get("mail.to.UNIX") for put in running.manager.puts] == ["away@far.test"]


def test_a_wish_stays_with_its_recipient(cleaning: Start) -> None:
    running = cleaning()
    with running.client() as line:
        line.ehlo()
        line.mail("a@here.test")
        assert line.rcpt("old@here.test", ["NOTIFY=FAILURE"])[0] == 250
        assert line.data(TEXT)[0] == 250
    (put,) = running.manager.puts
    assert put[3]["mail.dsn"].startswith("new@here.test\tFAILURE")


def test_a_user_sends_as_himself_before_he_is_rewritten(
        cleaning: Start, users: Start, conf_dir: Path, tmp_path: Path) -> None:
    """Whom a map makes of him is not whom he may name himself."""
    (tmp_path / "map").write_text("alice@here.test a.lice@here.test\n")
    (conf_dir / "routes.conf").write_text(
        f"[local]\ndomains = here.test\n[canonical_maps]\nc = file:{tmp_path}/map\n")
    running = users(**STRANGERS)
    with smtplib.SMTP("127.0.0.1", running.port_of(Listener.SUBMISSION), timeout=TIMEOUT_S) as line:
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        line.starttls(context=unchecked)
        line.login("alice", "secret")
        line.ehlo()
        assert line.mail("a.lice@here.test")[0] == 553
        line.sendmail("alice@here.test", ["x@far.test"], b"From: alice@here.test\r\n\r\nx\r\n")
    (put,) = running.manager.puts
    assert put[3]["mail.from"] == "a.lice@here.test"
    assert b"\r\nFrom: a.lice@here.test\r\n" in put[1]


def test_filters_see_what_was_made_of_the_mail(cleaning: Start) -> None:
    milter = TestMilter()
    try:
        running = cleaning("/^subject:/ REPLACE Subject: new\n", smtp_milters=milter.place)
        assert send(running, "old@here.test", text=TEXT) == "250"
        seen = milter.told(b"L")
    finally:
        milter.close()
    assert [each.replace(b" ", b"") for each in seen if each.startswith((b"Sub", b"From"))] == [
        b"From\0a@here.test\0", b"Subject\0new\0"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_signature_is_made_of_what_is_sent(
        cleaning: Start, tmp_path: Path, key: tuple[str, str],  # noqa: F811
        monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """OpenDKIM's own verifier finds the signature right: addresses were rewritten before. With
    rewriting taken out of its place and put behind the filters it finds it wrong."""
    if order == "after":
        before = StoringCommands._store

        async def stored(self: Any, body: bytes) -> Any:
            head, text = body[: self._mail.head_bytes], body[self._mail.head_bytes :]
            return await before(self, head + await self._cleaned(self._mail, text))

        monkeypatch.delattr(smtp_cleaning.CleaningCommands, "_store")
        monkeypatch.setattr(StoringCommands, "_store", stored)
    with ExitStack() as stack:
        signer = stack.enter_context(opendkim(tmp_path / "s", key[0], Mode="s"))
        verifier = stack.enter_context(opendkim(
            tmp_path / "v", key[0], Mode="v", AuthservID="mx.test", AlwaysAddARHeader="yes",
            TestPublicKeys=key[1]))
        running = cleaning(smtp_milters=signer)
        assert send(running, "old@here.test", sender="a@here.test", text=TEXT.replace(
            b"a@host.here.test", b"old@here.test")) == "250"
        signed = running.manager.puts[0][1]
        assert b"From: new@here.test\r\n" in signed
        said = asyncio.run(verdict(verifier, signed[signed.index(b"DKIM-Sig"):]))
    assert (b"dkim=pass" in said) is (order == "before"), said


async def verdict(place: str, text: bytes) -> bytes:
    """What a verifying filter adds to a mail."""
    milter = Milter(place, TIMEOUT_S, 1 << 20)
    await milter.open()
    try:
        for command, packet in (
                (packets.CONNECT, packets.connect("198.51.100.1")),
                (packets.HELO, packets.packet(packets.HELO, packets.strings(["x.test"]))),
                (packets.MAIL, packets.packet(packets.MAIL, packets.strings(["<a@here.test>"]))),
                (packets.RCPT, packets.packet(packets.RCPT, packets.strings(["<x@far.test>"])))):
            await milter.stage(command, packet, {"i": "1"})
        found = await milter.text(text, {"i": "1"}, 1 << 20)
    finally:
        milter.close()
    return b"\n".join(each.value for each in found.changes)


# checks


@pytest.mark.parametrize(("rule", "said"), [
    ("REJECT not this", "550 5.7.1 not this"), ("REJECT", "550 5.7.1 the content is not taken")])
def test_what_is_refused(cleaning: Start, rule: str, said: str) -> None:
    running = cleaning(f"/two  spaces/ {rule}\n", **STRANGERS)
    assert send(running, "new@here.test", text=TEXT) == said
    assert not running.manager.puts
    assert "reject: Subject: two spaces" in logged(running).replace("'", "")


def test_what_is_held_discarded_redirected_and_copied(cleaning: Start) -> None:
    running = cleaning("/^x-do: hold/ HOLD look\n/^x-do: gone/ DISCARD\n"
                       "/^x-do: other/ REDIRECT bob@here.test\n/^x-do: copy/ BCC bob@here.test\n")
    for word in (b"hold", b"gone", b"other", b"copy"):
        assert send(running, "alice@here.test", text=b"X-Do: " + word + b"\r\n" + TEXT) == "250"
    held, other, copy = running.manager.puts
    assert held[0] == "DEFER" and held[3]["mail.held"] == "look"
    assert other[3]["mail.to.LOCAL"] == "bob"
    assert set(copy[3]["mail.to.LOCAL"].split("\n")) == {"alice", "bob"}
    assert "discarded by a filter" in logged(running)


def test_what_a_check_makes_is_rewritten_and_no_more_than_a_mail_may_have(cleaning: Start) -> None:
    running = cleaning("/^subject:/ PREPEND Reply-To: boss@host.here.test\n",
                       smtp_message_bytes_max=len(TEXT) + 300)
    assert send(running, "alice@here.test", text=TEXT) == "250"
    assert b"\r\nReply-To: boss@here.test\r\nSubject" in text_of(running)
    assert send(running, "alice@here.test",
                text=b"Subject: x\r\n" * 20 + TEXT).startswith("552 5.3.4")


def test_a_file_that_is_wrong_refuses_for_now(cleaning: Start, tmp_path: Path) -> None:
    running = cleaning("/x/ NONSENSE\n")
    assert send(running, "alice@here.test", text=TEXT).startswith("451 4.3.0 the content cannot")
    (tmp_path / "h").write_text("/nothing/ OK\n/^more/ OK\n")
    assert send(running, "alice@here.test", text=TEXT) == "250", "without a reload"
    assert '"event":1552' in running.context.paths.event_log.read_text().replace(" ", "")


def test_a_map_that_fails_refuses_for_now(cleaning: Start, tmp_path: Path) -> None:
    running = cleaning(rewriting="canonical_classes = header_sender")
    (tmp_path / "map").write_text("half a file")
    assert send(running, "alice@here.test", text=TEXT).startswith("451 4.3.0 an address cannot")
    assert not running.manager.puts


def test_a_slow_map_holds_up_nobody_else(cleaning: Start, gate: Gate) -> None:  # noqa: F811
    running = cleaning()
    with running.client() as slow:
        slow.ehlo()
        slow.mail("a@here.test")
        slow.rcpt("alice@here.test")
        said = list[Any]()
        waiting = threading.Thread(
            target=lambda: said.append(slow.data(b"From: slow@here.test\r\n\r\nx\r\n")))
        waiting.start()
        assert gate.began.wait(TIMEOUT_S)
        assert send(running, "bob@here.test", text=TEXT) == "250"
        assert not said
        gate.may.set()
        waiting.join(TIMEOUT_S)
    assert said[0][0] == 250 and len(running.manager.puts) == 2


def test_a_slow_check_holds_up_nobody_else(
        cleaning: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a thread of its own, and passwords have others."""
    began, may = threading.Event(), threading.Event()
    before = content_checks.Checks.of

    def slow(self: Any, text: bytes, scan_bytes: int, ends: float) -> Any:
        if b"slow" in text:
            began.set()
            assert may.wait(TIMEOUT_S)
        return before(self, text, scan_bytes, ends)

    monkeypatch.setattr(content_checks.Checks, "of", slow)
    running = cleaning("/x/ OK\n")
    said = list[str]()
    waiting = threading.Thread(
        target=lambda: said.append(send(running, "bob@here.test", text=b"X: slow\r\n" + TEXT)))
    waiting.start()
    assert began.wait(TIMEOUT_S)
    assert send(running, "bob@here.test", text=TEXT) == "250"
    assert not said
    may.set()
    waiting.join(TIMEOUT_S)
    assert said == ["250"]


def test_no_memory_for_what_checks_make(cleaning: Start) -> None:
    running = cleaning("/x/ OK\n", smtp_memory_bytes_max=400_000, smtp_message_bytes_max=200_000)
    assert send(running, "bob@here.test", text=TEXT + b"x\r\n" * 60_000).startswith("45")
    assert send(running, "bob@here.test", text=TEXT) == "250"
