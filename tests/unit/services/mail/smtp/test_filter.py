"""The filter before the queue: what it says the client hears, what it gives back is the mail."""

from __future__ import annotations

import asyncio
import re
import signal
import smtplib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from omq.services.mail.smtp_handler import Listener
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.unit.services.mail.stage_peer import Saying

TEXT = b"Subject: s\r\n\r\nhello\r\n"


@dataclass
class Filter:
    """Gives back what it takes, with a field of its own; or says what the test wants."""

    reply: str = ""  # of the text
    refuses: str = ""  # this recipient
    copies: int = 1
    pause_s: float = 0.0  # of each recipient
    back: int = 0
    seen: list[Envelope] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    async def handle_RCPT(self, _server: SMTP, _session: Session, envelope: Envelope,
                          address: str, _options: list[str]) -> str:
        if self.pause_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), self.pause_s)
        if address == self.refuses:
            return "550 5.7.1 not to this one"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope
                          ) -> str:
        self.seen.append(envelope)
        self.came.set()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.go.wait, TIMEOUT_S)
        if self.reply:
            return self.reply
        for _ in range(self.copies):
            await loop.run_in_executor(None, self._give_back, envelope)
        return "250 2.0.0 taken"

    def _give_back(self, envelope: Envelope) -> None:
        assert isinstance(envelope.content, bytes)
        with smtplib.SMTP("127.0.0.1", self.back, timeout=TIMEOUT_S) as line:
            line.sendmail(envelope.mail_from or "", envelope.rcpt_tos,
                          b"X-Checked: yes\r\n" + envelope.content,
                          mail_options=["BODY=8BITMIME"])


async def serve(chosen: Filter, ready: threading.Event, stopped: asyncio.Event) -> None:
    """Until it is stopped; nothing of a session is left."""
    sessions: list[SMTP] = []

    def session() -> SMTP:
        sessions.append(SMTP(chosen, hostname="filter.test"))
        return sessions[-1]

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0)
    chosen.port = server.sockets[0].getsockname()[1]
    ready.set()
    await stopped.wait()
    server.close()
    for each in sessions:
        if each.transport is not None:
            each.transport.close()
    await server.wait_closed()


@pytest.fixture
def checked() -> Iterator[Filter]:
    """A running one."""
    chosen, ready, loop, stopped = Filter(), threading.Event(), list[Any](), asyncio.Event()
    chosen.go.set()

    async def run() -> None:
        loop.append(asyncio.get_running_loop())
        await serve(chosen, ready, stopped)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(TIMEOUT_S)
    yield chosen
    chosen.go.set()
    loop[0].call_soon_threadsafe(stopped.set)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


Start = Callable[..., Running]


@pytest.fixture
def filtered(server: Start, checked: Filter) -> Start:
    """A server behind it."""
    def start(**settings: Any) -> Running:
        running = server(smtp_filter=f"127.0.0.1:{checked.port}", smtp_filter_return_port=0,
                         **settings)
        checked.back = running.port_of(Listener.RETURNED)
        return running

    return start


def sent(running: Running, text: bytes = TEXT, *options: str) -> tuple[int, bytes]:
    client = running.client()
    try:
        client.ehlo()
        client.mail("from@there.test", list(options))
        for to in ("a@here.test", "b@here.test"):
            client.rcpt(to)
        return client.data(text)
    finally:
        client.close()  # without QUIT: a server that stops says 421 to it


def test_what_is_given_back_is_the_mail(filtered: Start, checked: Filter) -> None:
    running = filtered()
    code, reply = sent(running, TEXT, "ENVID=e1")
    assert code == 250
    mail_id = reply.split()[-1].decode()
    ((queue, body, _, properties),) = running.manager.puts
    assert (queue, properties["mail.id"]) == ("LOCAL", mail_id)
    assert (properties["mail.peer"], properties["mail.helo"]) == ("127.0.0.1", "client.test")
    assert properties["mail.orig.LOCAL"] == "a@here.test\nb@here.test"
    assert properties["mail.envid"] == "e1"
    top, _, text = body.partition(b"X-Checked: yes\r\n")
    assert f"id {mail_id}".encode() in top
    assert f"id {mail_id}".encode() in text
    assert text.endswith(b"Subject: s\r\n\r\nhello\r\n")
    log = (running.context.paths.logs / "mail.log").read_text()
    assert len(re.findall(f"{mail_id}: client=client.test", log)) == 1


@pytest.mark.parametrize(("said", "heard"), [
    ("550 5.7.1 this is spam", (550, b"5.7.1 this is spam")),
    ("554 no", (554, b"5.0.0 no")),
    ("451 4.7.1 greylisted", (451, b"4.7.1 greylisted")),
    ("421 4.3.2 going down", (451, b"4.3.0 the content filter")),
    ("354 what", (451, b"4.3.0 the content filter")),
])
def test_what_it_refuses_the_client_hears(filtered: Start, checked: Filter, said: str,
                                          heard: tuple[int, bytes]) -> None:
    running = filtered()
    checked.reply = said
    code, words = sent(running)
    assert (code, words[: len(heard[1])]) == heard
    assert not running.manager.puts


def test_one_refused_recipient_refuses_the_text(filtered: Start, checked: Filter) -> None:
    """The client has had 250 for both."""
    running = filtered()
    checked.refuses = "b@here.test"
    assert sent(running) == (550, b"5.7.1 not to this one")
    assert not checked.seen
    checked.refuses = ""
    assert sent(running)[0] == 250


def test_an_absent_filter_is_no_way_around(server: Start) -> None:
    with socket.socket() as place:  # the port is its own, and nobody listens there
        place.bind(("127.0.0.1", 0))
        running = server(smtp_filter=f"127.0.0.1:{place.getsockname()[1]}",
                         smtp_filter_return_port=0)
        code, words = sent(running)
    assert (code, words[:5]) == (451, b"4.3.0")
    assert not running.manager.puts
    running.stop()
    assert '"event": 1511' in running.context.paths.event_log.read_text()


def test_a_filter_has_its_time_for_all_together(filtered: Start, checked: Filter) -> None:
    """Each of its answers is in time."""
    running = filtered(smtp_filter_timeout_s=1)
    checked.pause_s = 0.7
    code, words = sent(running)
    assert (code, words[:5]) == (451, b"4.3.0")
    assert not checked.seen


def test_a_silent_filter_is_cut(server: Start) -> None:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        running = server(smtp_filter=f"127.0.0.1:{place.getsockname()[1]}",
                         smtp_filter_return_port=0, smtp_filter_timeout_s=1)
        code, words = sent(running)
        assert (code, words[:5]) == (451, b"4.3.0")
        assert not running.manager.puts
        running.stop()


def test_a_filter_that_asks_for_no_text_has_not_taken_it(server: Start) -> None:
    """250 in place of 354: to take that for an answer would lose the mail."""
    with Saying({"DATA": ["250 2.0.0 fine\r\n"]}) as peer:
        running = server(smtp_filter=f"127.0.0.1:{peer.port}", smtp_filter_return_port=0)
        code, words = sent(running)
        assert (code, words[:5]) == (451, b"4.3.0")
        assert not running.manager.puts
        running.stop()


def test_an_older_filter_without_extensions(server: Start) -> None:
    """Plain mail goes through it; what it cannot take waits with its client, and is told of."""
    with Saying({"EHLO": ["500 5.5.1 what?\r\n"] * 2}) as peer:
        running = server(smtp_filter=f"127.0.0.1:{peer.port}", smtp_filter_return_port=0)
        assert sent(running)[0] == 250
        code, words = sent(running, b"Subject: s\r\n\r\n\xe4\r\n", "BODY=8BITMIME")
        assert (code, words[:5]) == (451, b"4.3.0")
        running.stop()
    assert [each[2] for each in peer.received] == [peer.received[0][2]]
    assert peer.received[0][2].endswith(TEXT)
    assert "8BITMIME" in running.context.paths.event_log.read_text()


def test_a_slow_filter_holds_up_others_not(filtered: Start, checked: Filter) -> None:
    """Its mail waits; sessions go on, and the stop waits for it."""
    running = filtered()
    checked.go.clear()
    found: list[tuple[int, bytes]] = []
    waiting = threading.Thread(target=lambda: found.append(sent(running)))
    waiting.start()
    assert checked.came.wait(TIMEOUT_S)
    with running.client() as other:
        assert other.noop()[0] == 250
    assert not running.manager.puts
    running.signals.send(signal.SIGTERM)
    checked.go.set()
    waiting.join(TIMEOUT_S)
    assert found[0][0] == 250
    assert len(running.manager.puts) == 1


def test_a_filter_that_splits_a_mail(filtered: Start, checked: Filter) -> None:
    running = filtered()
    checked.copies = 2
    mail_id = sent(running)[1].split()[-1].decode()
    assert [put[3]["mail.id"] for put in running.manager.puts] == [mail_id] * 2


def test_a_filter_that_keeps_a_mail(filtered: Start, checked: Filter) -> None:
    """A quarantine: that is its right, and is told."""
    running = filtered()
    checked.copies = 0
    code, reply = sent(running)
    assert code == 250
    assert not running.manager.puts
    assert f'{reply.split()[-1].decode()}: client=' in (
        running.context.paths.logs / "mail.log").read_text()
    running.stop()
    assert '"event": 1512' in running.context.paths.event_log.read_text()


def test_a_circle_ends(filtered: Start, checked: Filter) -> None:
    """It gives back at the port that it is asked for."""
    running = filtered()
    checked.back = running.port
    code, _ = sent(running)
    assert code in (500, 554)
    assert len(checked.seen) == 1
    assert not running.manager.puts


def test_what_it_writes_itself_is_taken(filtered: Start, checked: Filter) -> None:
    running = filtered()
    with smtplib.SMTP("127.0.0.1", checked.back, timeout=TIMEOUT_S) as line:
        line.sendmail("", ["a@here.test"], TEXT)
    assert len(running.manager.puts) == 1


def test_the_return_port_is_not_for_others(filtered: Start, checked: Filter) -> None:
    filtered(smtp_relay_networks="192.0.2.0/24")
    with pytest.raises(smtplib.SMTPConnectError, match="not for you"):
        smtplib.SMTP("127.0.0.1", checked.back, timeout=TIMEOUT_S)


def test_waiting_clients_do_not_shut_the_filter_out(filtered: Start, checked: Filter) -> None:
    """All sessions there may be are taken by clients, and yet it can give back."""
    running = filtered(smtp_sessions_max=1, smtp_sessions_reserved=0)
    assert sent(running)[0] == 250


def test_bare_newlines_are_refused_before_it(filtered: Start, checked: Filter) -> None:
    running = filtered(smtp_bare_newline="refuse")
    answers = running.dialogue(b"EHLO x\r\nMAIL FROM:<>\r\nRCPT TO:<a@here.test>\r\nDATA\r\n"
                               b"S: x\r\n\r\na\nb\r\n.\r\n")
    assert any(each.startswith(b"550 5.6.0") for each in answers)
    assert not checked.seen
