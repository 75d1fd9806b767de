"""unix.out: what a sender is told, what other processes know, and what is never sent twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import QueueFull
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Move
from tests.unit.services.mail.conftest import sent_by

BODY = b"Subject: x\r\n\r\nhello\r\n"
TO = {"mail.from": "s@here.test", "mail.to.UNIX": "real@far.test\nb@far.test",
      "mail.orig.UNIX": "list@here.test\nb@far.test", "mail.id": "ab" * 24}
REFUSED = {"RCPT real@far.test": "550 5.1.1 gone"}


@pytest.fixture
def pipelining() -> bool:
    return True


def routes(port: int) -> str:
    return f"[peers]\n* = 127.0.0.1:{port}\n"


def test_a_sender_hears_of_the_address_that_it_wrote(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any,
        tmp_path: Path) -> None:
    far = sink(REFUSED)
    unix = service(UnixOutService, "unix", routes(far.port))
    answer = sent_by(unix, message(BODY, TO, queue="UNIX"))
    assert isinstance(answer, Move)
    properties = answer.new[0].properties
    assert properties["error.to"] == "list@here.test"
    assert properties["error.reason"] == "550 5.1.1 gone"
    assert properties["error.mta"] == "127.0.0.1"
    lines = (tmp_path / "spool/logs/mail.log").read_text().splitlines()
    said = [line.split("]: ")[1] for line in lines]
    assert said[0].startswith(f"{'ab' * 24}: to=<real@far.test>, relay=127.0.0.1, delay=")
    assert said[0].endswith("dsn=5.1.1, status=bounced (550 5.1.1 gone)")
    assert "status=sent" in said[1]


def test_those_that_wait_keep_the_address_that_was_written(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any) -> None:
    far = sink({"RCPT real@far.test": "450 4.2.0 later"})
    unix = service(UnixOutService, "unix", routes(far.port))
    answer = sent_by(unix, message(BODY, TO, queue="UNIX"))
    assert isinstance(answer, Move)
    (rest,) = answer.new
    assert rest.properties["mail.to.UNIX"] == "real@far.test"
    assert rest.properties["mail.orig.UNIX"] == "list@here.test"


def test_a_report_that_errmgr_does_not_take_waits_here_and_nothing_is_sent_again(
        service: Callable[..., Any], message: Callable[..., Any], sink: Any) -> None:
    far = sink(REFUSED)
    unix = service(UnixOutService, "unix", routes(far.port))
    given = message(BODY, TO, queue="UNIX")
    refused = sent_by(unix, given)
    assert isinstance(refused, Move)
    other = unix.instead(refused, given, QueueFull(queue="ERRMGR", limit=1))
    assert isinstance(other, Move)
    (kept,) = other.new
    assert (kept.queues, kept.delay_s) == (("UNIX",), unix.context.settings.reader_refused_retry_s)
    again = message(kept.body, kept.properties, queue="UNIX")
    due = sent_by(unix, again)
    assert isinstance(due, Move)
    (report,) = due.new
    assert (report.queues, report.properties) == (("ERRMGR",), refused.new[0].properties)
    assert unix.instead(due, again, QueueFull(queue="ERRMGR", limit=1)) is None
    assert len(far.received) == 1


def test_a_mail_for_several_peers_becomes_one_message_for_each(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    to = {"mail.from": "s@here.test", "mail.to.UNIX": "a@one.test\nbad>@x\nb@two.test\nc@one.test",
          "mail.orig.UNIX": "list@here.test\nbad>@x\nb@two.test\nc@one.test", "mine": "kept"}
    unix = service(UnixOutService, "unix", "[peers]\none.test = 127.0.0.1:1\n"
                                           "two.test = 127.0.0.1:2\n")
    first = message(BODY, to, queue="UNIX", priority=7, put_time_ns=5)
    answer = unix.plan(first)
    assert isinstance(answer, Move)
    assert [each.properties["mail.to.UNIX"].split() for each in answer.new] == [
        ["bad>@x", "a@one.test", "c@one.test"], ["b@two.test"]]
    for each in answer.new:
        assert (each.queues, each.priority, each.body) == (("UNIX",), 7, BODY)
        assert each.properties["mine"] == "kept"
        assert each.properties["unix.since"] == "5", "its time does not begin anew"
        assert each.properties["mail.id"] == first.message_id
    assert answer.new[0].properties["mail.orig.UNIX"].split()[1] == "list@here.test"
    plan = unix.plan(message(BODY, answer.new[0].properties, queue="UNIX"))
    assert [group.recipients for group in plan.groups] == [("a@one.test", "c@one.test")]
    assert [each.recipient for each in plan.results] == ["bad>@x"]


def test_peers_share_a_message_where_copies_would_be_too_much(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    hosts = [f"h{n}.test" for n in range(5)]
    routes_text = "[peers]\n" + "".join(f"{each} = {each}:1\n" for each in hosts)
    to = {"mail.to.UNIX": "\n".join(f"a@{each}" for each in hosts)}
    unix = service(UnixOutService, "unix", routes_text, unix_split_bytes_max=2 * len(BODY))
    answer = unix.plan(message(BODY, to, queue="UNIX"))
    assert [len(each.properties["mail.to.UNIX"].split()) for each in answer.new] == [3, 2]
    plan = unix.plan(message(BODY, answer.new[0].properties, queue="UNIX"))
    assert [group.peer for group in plan.groups] == ["h0.test:1", "h1.test:1", "h2.test:1"]
    alone = service(UnixOutService, "unix", unix_split_bytes_max=0)
    assert len(alone.plan(message(BODY, to, queue="UNIX")).groups) == 5
