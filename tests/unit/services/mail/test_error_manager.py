"""error.manager: a report that mail programs understand, and never a report about a report."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable
from email.message import EmailMessage, Message
from typing import Any

import pytest

from omq.services.mail.error_manager import SENDERS_MAX, ErrorManagerService, ReportRate
from omq.services.readers.service import Defer, Move

PROPERTIES = {"mail.from": "s@far.test", "error.to": "a@here\nb@here",
              "error.status": "5.1.1\n4.4.7",
              "error.reason": "no such user\n451 nobody answered",
              "error.mta": "-\nmx.far.test", "mail.id": "ab" * 24,
              "mail.arrival": "1600000000000000000"}
BODY = b"Received: x\r\nSubject: lost\r\nMessage-ID: <1@x>\r\n\r\ntext\r\n"


def report(answer: object) -> tuple[Any, EmailMessage]:
    assert isinstance(answer, Move)
    assert answer.queues == ()
    (new,) = answer.new
    parsed = email.message_from_bytes(new.body, policy=email.policy.SMTP)
    assert isinstance(parsed, EmailMessage)
    return new, parsed


def parts(parsed: Message) -> list[Message]:
    found = parsed.get_payload()
    assert isinstance(found, list)
    return [each for each in found if isinstance(each, Message)]


@pytest.fixture
def manager(service: Callable[..., Any]) -> Any:
    return service(ErrorManagerService, "errmgr")


def test_the_report(manager: Any, message: Callable[..., Any],
                    logged: Callable[[], list[int]]) -> None:
    new, parsed = report(manager.handle(message(BODY, PROPERTIES, queue="ERRMGR", priority=7)))
    assert new.queues == ("ROUTER",)
    assert new.priority == 7
    assert (new.properties["mail.from"], new.properties["mail.to"]) == ("", "s@far.test")
    assert "error.to" not in new.properties
    assert parsed["To"] == "s@far.test"
    assert parsed["Auto-Submitted"] == "auto-replied"
    assert parsed["From"].addresses[0].addr_spec == "MAILER-DAEMON@mx.test"
    assert parsed["Date"].datetime is not None
    assert parsed["MIME-Version"] == "1.0"
    assert parsed.get_content_type() == "multipart/report"
    assert parsed.get_param("report-type") == "delivery-status"
    text, status, returned = parts(parsed)
    assert "no such user" in str(text.get_payload())
    assert "postmaster@mx.test" in str(text.get_payload())
    whole, first, second = parts(status)
    assert whole["Reporting-MTA"] == "dns; mx.test"
    assert (first["Final-Recipient"], first["Status"], first["Action"]) == (
        "rfc822; a@here", "5.1.1", "failed")
    assert first["Diagnostic-Code"] == "x-omq; no such user"
    assert first["Remote-MTA"] is None
    assert second["Diagnostic-Code"] == "smtp; 451 nobody answered"
    assert second["Remote-MTA"] == "dns; mx.far.test"
    assert whole["Arrival-Date"] == "Sun, 13 Sep 2020 12:26:40 +0000"
    assert whole["X-Omq-Queue-ID"] == "ab" * 24
    assert new.properties["mail.about"] == "ab" * 24
    assert returned.get_content_type() == "text/rfc822-headers"
    assert "Subject: lost" in str(returned.get_payload())
    assert "text" not in str(returned.get_payload())
    assert logged()[-1] == 8803


def test_the_report_is_of_the_trace_of_its_mail(manager: Any, message: Callable[..., Any]) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             "tracestate": "vendor=1"}
    new, parsed = report(manager.handle(message(BODY, PROPERTIES | trace | {"mine": "x"})))
    assert trace.items() <= new.properties.items()
    assert "mine" not in new.properties and "traceparent" not in parsed.as_string()


def test_no_report_about_a_report(manager: Any, message: Callable[..., Any],
                                  logged: Callable[[], list[int]]) -> None:
    for sender in ("", "<>", "@"):
        answer = manager.handle(message(BODY, PROPERTIES | {"mail.from": sender}, queue="ERRMGR"))
        assert answer == Move(("ERROR",))
    assert logged() == [8801, 8804, 8805, 8805, 8805]


def test_nasty_messages_are_returned_in_lines_that_may_travel(
        manager: Any, message: Callable[..., Any], nasty: bytes) -> None:
    new, parsed = report(manager.handle(message(nasty, PROPERTIES, queue="ERRMGR")))
    assert len(parts(parsed)) == 3
    assert b"\0" not in new.body
    assert new.body.count(b"\r\n") == new.body.count(b"\n") == new.body.count(b"\r")
    assert max(map(len, new.body.split(b"\r\n"))) <= 998
    assert new.body.isascii()


def test_reasons_cannot_forge_lines(manager: Any, message: Callable[..., Any]) -> None:
    evil = PROPERTIES | {"error.reason": "a\rTo: x\r\r\x0bb", "error.to": "r@x\u2028Y: z",
                         "error.mta": "m\rX: y", "error.status": "5.0.0"}
    _, parsed = report(manager.handle(message(BODY, evil, queue="ERRMGR")))
    block = parts(parts(parsed)[1])[1]
    assert set(block.keys()) == {
        "Final-Recipient", "Action", "Status", "Remote-MTA", "Diagnostic-Code"}


def test_international_addresses(manager: Any, message: Callable[..., Any]) -> None:
    properties = PROPERTIES | {"mail.from": "jörg@far.test", "error.to": "é@here"}
    new, parsed = report(manager.handle(message(BODY, properties, queue="ERRMGR")))
    assert new.properties["mail.smtputf8"] == "1"
    assert "To: <jörg@far.test>\r\n".encode() in new.body
    block = parts(parts(parsed)[1])[1]
    assert block["Final-Recipient"] == r"utf-8; \x{E9}@here"


def test_the_whole_message_where_it_is_wanted(service: Callable[..., Any],
                                              message: Callable[..., Any]) -> None:
    manager = service(ErrorManagerService, "errmgr", report_original="full", report_bytes_max=1024)
    new, parsed = report(manager.handle(message(BODY, PROPERTIES, queue="ERRMGR")))
    assert parts(parsed)[2].get_content_type() == "message/rfc822"
    assert BODY in new.body
    _, parsed = report(manager.handle(message(BODY + b"x\r\n" * 999, PROPERTIES, queue="ERRMGR")))
    assert parts(parsed)[2].get_content_type() == "text/rfc822-headers"


def test_the_same_message_gives_the_same_message_id(manager: Any,
                                                    message: Callable[..., Any]) -> None:
    ids = {report(manager.handle(message(BODY, PROPERTIES, queue="ERRMGR")))[1]["Message-ID"]
           for _ in range(2)}
    assert len(ids) == 1


def test_what_was_no_reply_is_no_smtp_diagnostic(manager: Any, message: Callable[..., Any]) -> None:
    properties = PROPERTIES | {"error.reason": "TimeoutError: timed out",
                               "error.mta": "2001:db8::1"}
    _, parsed = report(manager.handle(message(BODY, properties, queue="ERRMGR")))
    block = parts(parts(parsed)[1])[1]
    assert block["Diagnostic-Code"] == "x-omq; TimeoutError: timed out"
    assert block["Remote-MTA"] == "dns; [2001:db8::1]"
    text = str(parts(parsed)[0].get_payload())
    assert "2001:db8::1: TimeoutError" in text and "said: TimeoutError" not in text


def test_a_report_has_an_id_and_lines_of_its_own(manager: Any, message: Callable[..., Any]) -> None:
    given = message(BODY, PROPERTIES, queue="ERRMGR")
    new, parsed = report(manager.handle(given))
    own = new.properties["mail.id"]
    assert own == new.message_id.hex() != "ab" * 24
    assert report(manager.handle(given))[0].message_id == new.message_id, "made twice, known again"
    other, _ = report(manager.handle(
        message(BODY, PROPERTIES, queue="ERRMGR", message_id="c" * 48)))
    assert other.message_id != new.message_id
    lines = (manager.context.paths.logs / "mail.log").read_text().splitlines()
    said = [line.split("]: ", 1)[1] for line in lines]
    assert said[:3] == [
        f"{'ab' * 24}: sender non-delivery notification: {own}, to=<s@far.test>, failed=2",
        f"{own}: message-id={parsed['Message-ID']}",
        f"{own}: from=<>, size={len(new.body)}, nrcpt=1 (queue active)"]


def test_reports_are_limited_and_none_is_dropped(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    manager = service(ErrorManagerService, "errmgr", reports_per_minute_max=3,
                      reports_per_sender_max=2)
    answers = [manager.handle(message(BODY, PROPERTIES | {"mail.from": sender}, queue="ERRMGR"))
               for sender in ("a@x", "A@x", "a@x", "b@x", "c@x")]
    assert [type(each) for each in answers] == [Move, Move, Defer, Move, Defer]
    assert 60 < answers[2].seconds <= 3600
    assert 0 < answers[4].seconds <= 60


def test_the_rate_of_reports() -> None:
    s = 1_000_000_000
    rate = ReportRate(2, 10)
    assert [rate.wait_s(f"s{n}", n * s) for n in range(3)] == [0, 0, 58.0]
    assert rate.wait_s("s2", 60 * s) == 0
    for n in range(SENDERS_MAX + 5):
        rate.wait_s(f"many{n}", 61 * s)
    assert len(rate._senders) == SENDERS_MAX
