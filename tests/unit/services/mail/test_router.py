"""service.router: one message for the visible recipients, one for each blind one, nobody twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omq.base.errors import MessageTooLong, QueueFull
from omq.base.limits import PROPERTIES_BYTES_MAX
from omq.services.mail.router import RouterService
from omq.services.readers.service import Move

ROUTES = """\
[local]
domains = example.org
users = alice, bob, carol, u*
[aliases]
team = alice, bob, x@far.test
[queues]
fax.test = FAX
[router]
blind_copies_max = 4
hops_max = 30
"""
HEADER = b"To: alice@example.org, Team <team@example.org>\r\nCc: x@FAR.test, n@fax.test\r\n"


@pytest.fixture
def routed(service: Callable[..., Any], message: Callable[..., Any]
           ) -> Callable[..., list[Any]]:
    router = service(RouterService, "router", ROUTES)

    def route(body: bytes, recipients: list[str], **more: Any) -> list[Any]:
        properties = {"mail.from": "s@far.test", "mail.to": "\n".join(recipients), "mail.body":
                      "8BITMIME", "mine": "kept"} | more.pop("properties", {})
        answer = router.handle(message(body, properties, **more))
        assert isinstance(answer, Move)
        assert answer.queues == ()
        return list(answer.new)

    return route


def to(outgoing: Any, queue: str) -> list[str]:
    return [each for each in outgoing.properties.get(f"mail.to.{queue}", "").split("\n") if each]


def test_one_message_on_all_queues_for_visible_recipients(routed: Callable[..., list[Any]]) -> None:
    body = HEADER + b"\r\nhello\r\n"
    (new,) = routed(body, ["alice@example.org", "x@far.test", "n@fax.test"], priority=7,
                    correlation_id=b"c" * 24)
    assert new.queues == ("LOCAL", "UNIX", "FAX")
    assert new.body == body
    assert (new.priority, new.correlation_id) == (7, b"c" * 24)
    assert to(new, "LOCAL") == ["alice"]
    assert new.properties["mail.orig.LOCAL"] == "alice@example.org"
    assert to(new, "UNIX") == ["x@far.test"]
    assert to(new, "FAX") == ["n@fax.test"]
    assert new.properties["mail.from"] == "s@far.test"
    assert new.properties["mine"] == "kept"
    assert "mail.to" not in new.properties


def test_a_message_for_each_blind_recipient(routed: Callable[..., list[Any]]) -> None:
    body = HEADER + b"Bcc: bob@example.org\r\n\r\nhello\r\n"
    here, *blind = routed(body, ["alice@example.org", "bob@example.org", "b@far.test",
                                 "c@far.test"])
    assert [each.queues for each in (here, *blind)] == [("LOCAL",), ("UNIX",), ("UNIX",)]
    assert to(here, "LOCAL") == ["alice", "bob"], "each has a file of his own"
    assert [to(each, "UNIX") for each in blind] == [["b@far.test"], ["c@far.test"]]
    assert all(each.body == HEADER + b"\r\nhello\r\n" for each in (here, *blind))


def test_the_reader_of_another_queue_hears_of_no_blind_one(
        routed: Callable[..., list[Any]]) -> None:
    news = routed(b"To: a@far.test\r\n\r\n", ["a@far.test", "alice@example.org", "bob@example.org"])
    assert [each.queues for each in news] == [("UNIX",), ("LOCAL",)]
    assert "alice" not in str(news[0].properties)
    assert to(news[1], "LOCAL") == ["alice", "bob"]


@pytest.mark.parametrize("name", [b"Return-Path", b"return-path", b"RETURN-PATH "])
def test_a_foreign_return_path_goes(routed: Callable[..., list[Any]], name: bytes) -> None:
    """It stood next to the one that delivery writes, and who reads mail saw a forged sender."""
    (new,) = routed(name + b": <forged@bank.test>,\r\n <x@y>\r\n" + HEADER
                    + b"\r\nReturn-Path: x\r\n", ["alice@example.org"])
    assert new.body == HEADER + b"\r\nReturn-Path: x\r\n"


def test_the_trace_goes_on_with_every_message_made(routed: Callable[..., list[Any]]) -> None:
    """To the visible, to each blind one, and to who tells the sender of a failure."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             "tracestate": "vendor=1"}
    news = routed(HEADER + b"\r\n", ["alice@example.org", "bob@example.org", "b@far.test",
                                     "nobody@example.org"], properties=trace)
    assert {queue for each in news for queue in each.queues} == {"LOCAL", "UNIX", "ERRMGR"}
    assert all(trace.items() <= each.properties.items() for each in news)


def test_nobody_has_a_message_twice(routed: Callable[..., list[Any]]) -> None:
    recipients = ["team@EXAMPLE.org", "alice@example.org", "Alice@example.org", "x@FAR.test",
                  "x@far.test", "bob@example.org"]
    news = routed(HEADER + b"\r\n", recipients)
    assert len(news) == 1  # bob is blind, but has it through the alias
    assert to(news[0], "LOCAL") == ["alice", "bob"]
    assert to(news[0], "UNIX") == ["x@far.test"]


def test_the_visible_way_wins_over_the_blind_one(routed: Callable[..., list[Any]]) -> None:
    news = routed(b"To: team@example.org\r\n\r\n", ["bob@example.org", "team@example.org"])
    assert len(news) == 1
    assert to(news[0], "LOCAL") == ["alice", "bob"]


def test_local_parts_of_other_hosts_keep_their_case(routed: Callable[..., list[Any]]) -> None:
    (new,) = routed(b"To: A@far.test, a@far.test\r\n\r\n", ["A@far.test", "a@far.test"])
    assert to(new, "UNIX") == ["A@far.test", "a@far.test"]


def test_unknown_users_fail_and_the_others_go_on(routed: Callable[..., list[Any]]) -> None:
    body = b"To: nobody@example.org, alice@example.org\r\n\r\n"
    (new,) = routed(body, ["nobody@example.org", "alice@example.org"])
    assert new.queues == ("LOCAL", "ERRMGR")
    assert new.properties["error.to"] == "nobody@example.org"
    assert new.properties["error.status"] == "5.1.1"
    assert new.properties["error.reason"]


def test_null_sender_is_kept(routed: Callable[..., list[Any]]) -> None:
    (new,) = routed(b"\r\n", ["alice"], properties={"mail.from": ""})
    assert new.properties["mail.from"] == ""


def test_a_message_that_runs_in_a_circle_stops(routed: Callable[..., list[Any]]) -> None:
    (new,) = routed(b"Received: x\r\n" * 31 + HEADER + b"\r\n", ["alice", "x@far.test"])
    assert new.queues == ("ERRMGR",)
    assert new.properties["error.status"] == "5.4.6\n5.4.6"
    assert new.properties["error.to"] == "alice\nx@far.test"
    assert routed(b"Received: x\r\n" * 30 + b"\r\n", ["alice"])[0].queues == ("LOCAL",)


def test_no_recipient_is_an_error_message(routed: Callable[..., list[Any]]) -> None:
    (new,) = routed(b"\r\n", [])
    assert new.queues == ("ERRMGR",)
    assert new.properties["error.status"] == "5.1.3"


def test_earlier_routing_does_not_leak(routed: Callable[..., list[Any]]) -> None:
    (new,) = routed(b"\r\n", ["alice"], properties={"mail.to.UNIX": "z@z", "error.to": "q"})
    assert "mail.to.UNIX" not in new.properties
    assert "error.to" not in new.properties


def test_blind_recipients_beyond_the_limit_share_messages(routed: Callable[..., list[Any]]) -> None:
    news = routed(b"\r\n", [f"u{n}@far.test" for n in range(10)])
    assert len(news) == 4
    assert sorted(user for new in news for user in to(new, "UNIX")) == sorted(
        f"u{n}@far.test" for n in range(10))


def test_properties_stay_within_their_limit(routed: Callable[..., list[Any]]) -> None:
    recipients = [f"u{n:04}-{'x' * 50}@example.org" for n in range(1500)]
    body = b"To: " + b",\r\n ".join(each.encode() for each in recipients) + b"\r\n\r\n"
    news = routed(body, recipients)
    assert len(news) > 1
    for new in news:
        assert sum(len(k) + len(v) + 6 for k, v in new.properties.items()) < PROPERTIES_BYTES_MAX
    assert sum(len(to(new, "LOCAL")) for new in news) == 1500


def test_nasty_bodies_are_routed_unchanged(routed: Callable[..., list[Any]], nasty: bytes) -> None:
    (new,) = routed(nasty, ["alice"])
    assert new.body == nasty
    assert new.queues == ("LOCAL",)


def test_one_report_for_all_that_fail(routed: Callable[..., list[Any]]) -> None:
    """The blind ones' failures, too."""
    news = routed(b"To: alice@example.org\r\n\r\n",
                  ["alice@example.org", "no1@example.org", "bob@example.org", "no2@example.org"])
    told = [each for each in news if "ERRMGR" in each.queues]
    assert [each.properties["error.to"] for each in told] == ["no1@example.org\nno2@example.org"]
    assert sorted(user for new in news for user in to(new, "LOCAL")) == ["alice", "bob"]


def test_all_copies_are_known_by_the_id_of_the_mail(routed: Callable[..., list[Any]]) -> None:
    news = routed(b"\r\n", ["alice", "bob", "zz"], message_id="ab" * 24, put_time_ns=77)
    assert {each.properties["mail.id"] for each in news} == {"ab" * 24}
    assert {each.properties["mail.arrival"] for each in news} == {"77"}
    (new,) = routed(b"\r\n", ["alice"], properties={"mail.id": "cd" * 24, "mail.arrival": "5"})
    assert (new.properties["mail.id"], new.properties["mail.arrival"]) == ("cd" * 24, "5")


def test_a_message_too_long_for_its_way_is_reported(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    router = service(RouterService, "router", ROUTES)
    given = message(b"Subject: x\r\n\r\n" + b"y" * 5000, {"mail.from": "s@x", "mail.to": "alice"})
    answer = router.refused(given, MessageTooLong(size=5000, queue="LOCAL", limit=100))
    assert isinstance(answer, Move)
    (new,) = answer.new
    assert new.queues == ("ERRMGR",)
    assert new.body == b"Subject: x\r\n\r\n"
    assert (new.properties["error.to"], new.properties["error.status"]) == ("alice", "5.3.4")
    assert router.refused(given, QueueFull(queue="LOCAL", limit=1)) is None


def test_routing_twice_gives_the_same(routed: Callable[..., list[Any]]) -> None:
    recipients = ["team", "b@far.test", "nobody"]
    assert routed(HEADER + b"\r\n", recipients) == routed(HEADER + b"\r\n", recipients)
