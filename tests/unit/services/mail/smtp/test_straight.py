"""A mail that comes out as one message goes past ROUTER; everything else, and what is refused where
it was to go, stops there. What is delivered is the same either way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq import Outgoing
from omq.services.mail import mail_message as mail
from omq.services.mail.routes import DEFAULT, Routes
from omq.services.mail.routing import route
from omq.services.mail.smtp_intake import (
    STRAIGHT_RECIPIENTS_MAX,
    Intake,
    Submission,
    _outgoing,
    _Prepared,
)
from tests.unit.services.mail.smtp.conftest import Manager

ID = "ab" * 24
TIMEOUT_S = 120
ROUTES = Routes(domains=("here.test",), users=("u*",), aliases={"list": ("u1", "u2", "x@far.test")},
                queues={DEFAULT: "UNIX", "fax.test": "FAX"}, hops_max=3)
TO = b"To: u1@here.test, x@far.test\r\nCc: n@fax.test\r\n"


def put(running: Any, recipients: list[str], text: bytes) -> Outgoing:
    with running.client() as client:
        client.sendmail("s@far.test", recipients, text)
    (message,) = running.manager.messages
    assert isinstance(message, Outgoing)
    return message


def test_a_named_recipient_has_its_mail_past_the_router(server: Callable[..., Any]) -> None:
    running = server()
    message = put(running, ["u1@here.test"], b"To: u1@here.test\r\nBcc: z@far.test\r\n\r\nx\r\n")
    assert message.queues == ("LOCAL",)
    assert message.properties["mail.to.LOCAL"] == "u1"
    assert message.properties["mail.orig.LOCAL"] == "u1@here.test"
    assert mail.TO not in message.properties
    assert message.given_id.hex() == message.properties[mail.ID]
    assert message.body.endswith(b"\r\nTo: u1@here.test\r\n\r\nx\r\n")


def test_several_queues_have_one_message(server: Callable[..., Any]) -> None:
    assert put(server(), ["u1@here.test", "x@far.test"], TO + b"\r\n").queues == ("LOCAL", "UNIX")


@pytest.mark.parametrize(("recipients", "text"), [
    (["u1@here.test", "blind@far.test"], TO + b"\r\n"),  # a copy each
    (["u1@here.test"], b"Received: a\r\n" * 3 + TO + b"\r\n"),  # its hops lead to a report
    ([f"u{n}@here.test" for n in range(STRAIGHT_RECIPIENTS_MAX + 1)],
     b"To: " + b",".join(b"u%d@here.test" % n for n in range(STRAIGHT_RECIPIENTS_MAX + 1))
     + b"\r\n\r\n"),
])
def test_what_is_more_than_one_message_stops_at_the_router(
        server: Callable[..., Any], conf_dir: Path, recipients: list[str], text: bytes) -> None:
    (conf_dir / "routes.conf").write_text(
        "[local]\ndomains = here.test\n[router]\nhops_max = 3\n")
    message = put(server(), recipients, text)
    assert message.queues == ("ROUTER",)
    assert message.properties[mail.TO].split("\n") == recipients


def test_all_mail_may_stop_at_the_router(server: Callable[..., Any]) -> None:
    assert put(server(smtp_straight=False), ["u1@here.test"], TO + b"\r\n").queues == ("ROUTER",)


def test_what_its_queue_refuses_waits_at_the_router(server: Callable[..., Any]) -> None:
    running = server()
    running.manager.refuses = lambda message: message.queues != ("ROUTER",)
    message = put(running, ["u1@here.test"], b"To: u1@here.test\r\nBcc: z@far.test\r\n\r\nx\r\n")
    assert message.queues == ("ROUTER",)
    assert message.properties[mail.TO] == "u1@here.test"
    assert b"\r\nBcc: z@far.test\r\n" in message.body  # the router takes it away


def test_a_refusal_of_both_is_the_clients(server: Callable[..., Any]) -> None:
    running = server()
    running.manager.refuses = lambda _: True
    replies = running.dialogue(b"EHLO c\r\nMAIL FROM:<s@x>\r\nRCPT TO:<u1@here.test>\r\nDATA\r\n"
                               b"To: u1@here.test\r\n\r\n.\r\n")
    assert replies[-2].startswith(b"552 5.3.4")
    assert running.manager.messages == []


@pytest.mark.parametrize(("recipients", "text"), [
    (["u1@here.test"], TO), (["u1@here.test", "x@far.test", "n@fax.test"], TO),
    (["list@here.test"], b"To: list@here.test\r\n"), (["blind@far.test"], TO),
    (["U1@HERE.test", "u1@here.test"], TO), (["x@far.test"], b"Bcc: x@far.test\r\n" + TO),
    (["postmaster"], b"To: Postmaster\r\n"), (["u1@here.test"], b"no header\r\n"),
    (["u1@here.test"], b"Priority: urgent\r\n" + TO), (["u\xe91@far.test"], TO),
])
def test_the_router_would_have_made_the_same(
        message: Callable[..., Any], recipients: list[str], text: bytes) -> None:
    properties = mail.Envelope("s@far.test", tuple(recipients)).properties() | mail.tracing(ID, 5)
    submission = Submission(text + b"\r\nbody\r\n", ID, properties, routes=ROUTES,
                            resolved={each: ROUTES.resolve(each) for each in recipients})
    ready = _outgoing(submission)
    assert isinstance(ready, _Prepared)
    assert ready.by_router is not None
    stopped = ready.by_router()
    assert stopped.queues == ("ROUTER",)
    (routed,) = route(message(stopped.body, dict(stopped.properties), priority=stopped.priority),
                      ROUTES, 1 << 20)
    assert ready.message == replace(
        routed, message_id=bytes.fromhex(ID), correlation_id=ready.message.correlation_id)
    assert ready.message.queues != ("ROUTER",)


def test_a_batch_is_put_queue_by_queue_and_each_answer_is_its_own() -> None:
    manager = Manager(refuses=lambda message: message.queues == ("UNIX",))
    intake = Intake(manager.connect, 1)
    outcomes: list[Any] = [_Prepared("", 1, str(number), Outgoing(
        b"x", queues=(queue,), priority=4, persistent=True, message_id=bytes([number] * 24)))
        for number, queue in enumerate(("LOCAL", "UNIX", "LOCAL", "ROUTER"), 1)]
    intake._put_all(list(enumerate(outcomes)), outcomes)
    assert [each[0] for each in manager.puts] == ["LOCAL", "LOCAL", "ROUTER"]
    assert [isinstance(each, Exception) for each in outcomes] == [False, True, False, False]
    assert intake.close(60)


def submission(number: int, size: int = 1) -> Submission:
    properties = mail.Envelope("s@far.test", ("u1@here.test",)).properties()
    return Submission(b"A: b\r\n\r\n" + b"x" * size, f"{number + 1:048x}",
                      properties | mail.tracing(ID, 5))


def test_what_one_turn_of_the_loop_brings_is_one_request() -> None:
    manager = Manager()

    async def run() -> None:
        for _ in range(20):  # a worker that was at it before may look in the middle of a turn
            intake = Intake(manager.connect, 4, 50, 1 << 20)
            await asyncio.gather(*(intake.put(submission(number)) for number in range(5)))
            assert intake.close(60)

    asyncio.run(run())
    assert manager.batches == [5] * 20


def test_what_does_not_fit_into_a_request_is_another_workers() -> None:
    manager = Manager(gate=threading.Event())
    intake = Intake(manager.connect, 3, 2, 1 << 20)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        puts = asyncio.gather(*(intake.put(submission(number)) for number in range(5)))
        for _ in range(3):  # all three are at it while none has an answer
            assert await loop.run_in_executor(
                None, lambda: manager.entered.acquire(timeout=TIMEOUT_S))
        assert manager.gate is not None
        manager.gate.set()
        await puts

    asyncio.run(run())
    assert sorted(manager.batches) == [1, 2, 2]
    assert intake.close(60)


def test_what_comes_behind_the_end_calls_nobody() -> None:
    intake = Intake(Manager().connect, 1)
    assert intake.close(60)

    async def run() -> None:
        put = asyncio.ensure_future(intake.put(submission(1)))
        await asyncio.wait([put], timeout=0)
        assert not put.done()
        put.cancel()

    asyncio.run(run(), debug=True)
