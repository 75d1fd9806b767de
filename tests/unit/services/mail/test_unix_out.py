"""unix.out against real SMTP servers on loopback: every recipient is accounted for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from omq.base.errors import ConfigError
from omq.services.mail.mail_retry import RETRY_PROPERTIES, SINCE, TRIES, Retry
from omq.services.mail.routes import Peer
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection, wire_text
from omq.services.mail.smtp_reply import Reply, Verdict
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done, Move
from tests.unit.services.mail.conftest import sent_by

BODY = b"Subject: x\r\n\r\n.hello\r\n"


def mail_to(*recipients: str, **more: str) -> dict[str, str]:
    return {"mail.from": "s@here.test", "mail.to.UNIX": "\n".join(recipients)} | more


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any]) -> Callable[..., Any]:
    """unix(sinks by domain, **settings): (handle one message, the service)."""

    def make(peers: dict[str, Any], **settings: Any) -> Any:
        routes = "[peers]\n" + "".join(
            f"{domain} = 127.0.0.1:{getattr(sink, 'port', sink)}\n"
            for domain, sink in peers.items())
        made = service(UnixOutService, "unix", routes, unix_retry_step_s=60, unix_retry_max_s=300,
                       **settings)

        def handle(properties: dict[str, str], body: bytes = BODY, **more: Any) -> Any:
            return sent_by(made, message(body, properties, queue="UNIX", **more))

        handle.service = made  # type: ignore[attr-defined]
        return handle

    return make


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A loopback port that nobody listens on: it is bound, so nobody else is given it."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


def test_a_refused_reload_changes_nothing(unix: Any, message: Any) -> None:
    """The routes are good and the passwords are not: neither is used."""
    service = unix({"a.test": 1}).service
    context = service.context
    own = service.worker("names")._own_addresses
    (context.conf_dir / "routes.conf").write_text(
        "[local]\nliterals = 192.0.2.9\n[peers]\na.test = 127.0.0.1:2\n")
    mail = message(BODY, mail_to("x@a.test"), queue="UNIX")

    def peers() -> list[str]:
        return [group.peer for group in service.plan(mail).groups]

    service.context = replace(context, settings=replace(
        context.settings, unix_auth_file=str(context.conf_dir / "absent")))
    with pytest.raises(ConfigError):
        service.reload()
    assert (peers(), service.worker("names")._own_addresses) == (["127.0.0.1:1"], own)
    service.context = context
    service.reload()
    assert peers() == ["127.0.0.1:2"]


def test_delivered_with_every_byte(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"*": far})
    assert handle(mail_to("a@far.test", "b@far.test")) == Done()
    assert far.received == [
        ("s@here.test", ["a@far.test", "b@far.test"], BODY, [f"SIZE={len(BODY) + 1}"])]


def test_one_connection_for_many_messages_until_idle(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"*": far}, unix_connection_messages_max=3)
    for _ in range(3):
        assert handle(mail_to("a@far.test")) == Done()
    assert far.connections == 1
    assert far.commands.count("RSET") == 2
    handle(mail_to("a@far.test"))
    assert far.connections == 2
    handle.service.tests_worker.idle()
    handle(mail_to("a@far.test"))
    assert far.connections == 3
    assert len(far.received) == 5


def test_peers_by_domain_and_the_null_sender(unix: Any, sink: Any) -> None:
    one, other = sink(), sink()
    handle = unix({"one.test": one, "*": other})
    both = handle(mail_to("a@one.test", "b@x.test", **{"mail.from": ""})).new
    assert [each.queues for each in both] == [("UNIX",), ("UNIX",)]
    assert [handle(dict(each.properties), each.body) for each in both] == [Done(), Done()]
    assert [each[:2] for each in one.received] == [("<>", ["a@one.test"])]
    assert [each[:2] for each in other.received] == [("<>", ["b@x.test"])]


def test_smarthost_and_no_host_at_all(unix: Any, sink: Any) -> None:
    smart = sink()
    assert unix({}, unix_smarthost=f"127.0.0.1:{smart.port}")(mail_to("a@b.test")) == Done()
    assert smart.received[0][1] == ["a@b.test"]


def test_a_domain_without_a_host_is_refused(unix: Any) -> None:
    (new,) = unix({})(mail_to("a@b.test")).new
    assert (new.queues, new.properties["error.status"]) == (("ERRMGR",), "5.4.4")


def test_refused_for_good_goes_to_the_error_manager(unix: Any, sink: Any) -> None:
    far = sink({"RCPT no@far.test": "550 5.1.1 no such user", "RCPT not@far.test": "551 go away"})
    answer = unix({"*": far})(mail_to("no@far.test", "yes@far.test", "not@far.test"), priority=7)
    assert isinstance(answer, Move)
    (new,) = answer.new
    assert (answer.queues, new.queues, new.priority, new.body) == ((), ("ERRMGR",), 7, BODY)
    assert new.properties["error.to"] == "no@far.test\nnot@far.test"
    assert new.properties["error.status"] == "5.1.1\n5.0.0"
    assert new.properties["error.reason"].startswith("550 5.1.1 no such user\n551")
    assert [each[1] for each in far.received] == [["yes@far.test"]]


@pytest.mark.parametrize("replies", [
    {"RCPT": "450 4.2.0 greylisted"}, {"MAIL": "451 later"}, {"DATA": "452 4.3.1 full"},
    {"MAIL": "421 bye"}, {"RCPT": "421 bye"}, {"DATA": "drop"}, {"MAIL": "drop"},
    {"RCPT": "552 too many"},
])
def test_all_refused_for_now_defers_with_linear_back_off(unix: Any, sink: Any,
                                                         replies: dict[str, str]) -> None:
    far = sink(replies)
    handle = unix({"*": far}, unix_retry_expiry_s=10**10)
    for defers, seconds in ((0, 60), (1, 120), (4, 300), (9, 300)):
        answer = handle(mail_to("a@far.test", "b@far.test"), defers=defers)
        assert isinstance(answer, Defer)
        assert answer.seconds == seconds
        assert answer.reason
    assert not far.received
    far.replies.clear()
    assert handle(mail_to("a@far.test", "b@far.test"), defers=10) == Done()


def test_some_refused_for_now_are_carried_on_alone(unix: Any, sink: Any) -> None:
    far = sink({"RCPT b@far.test": "450 4.2.0 later", "RCPT c@far.test": "550 never"})
    handle = unix({"*": far}, unix_retry_expiry_s=10**10)
    answer = handle(mail_to("a@far.test", "b@far.test", "c@far.test", mine="kept"), defers=2)
    failed, later = answer.new
    assert failed.properties["error.to"] == "c@far.test"
    assert not any(name in failed.properties for name in RETRY_PROPERTIES)
    assert later.queues == ("UNIX",)
    assert later.properties["mail.to.UNIX"] == "b@far.test"
    assert later.properties[TRIES] == "3"
    assert later.properties["mine"] == "kept"
    assert later.delay_s == 180
    # It is tried when it comes, and its back-off goes on from there.
    again = handle(dict(later.properties))
    assert isinstance(again, Defer)
    assert again.seconds == 240
    assert far.commands.count("RCPT b@far.test") == 2
    far.replies.clear()
    assert handle(dict(later.properties), defers=2) == Done()
    assert [each[1] for each in far.received] == [["a@far.test"], ["b@far.test"]]


def test_time_over_is_told_to_the_sender(unix: Any, sink: Any) -> None:
    far = sink({"RCPT": "450 4.2.0 later"})
    handle = unix({"*": far}, unix_retry_expiry_s=60)
    assert isinstance(handle(mail_to("a@far.test")), Defer)  # the first try is always allowed
    (new,) = handle(mail_to("a@far.test"), defers=1).new
    assert (new.queues, new.properties["error.status"]) == (("ERRMGR",), "4.4.7")
    assert "4.2.0 later" in new.properties["error.reason"]


def test_a_connection_that_died_in_between_is_opened_again(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"*": far})
    assert handle(mail_to("a@far.test")) == Done()
    far.replies["RSET"] = "drop"
    assert handle(mail_to("b@far.test")) == Done()
    assert (far.connections, len(far.received)) == (2, 2)


def test_recipients_are_shared_out_over_transactions(unix: Any, sink: Any) -> None:
    far = sink()
    recipients = [f"r{n}@far.test" for n in range(25)]
    assert unix({"*": far}, unix_recipients_max=10)(mail_to(*recipients, *recipients)) == Done()
    assert [len(each[1]) for each in far.received] == [10, 10, 5]
    assert far.connections == 1


def test_eight_bit_and_international_mail_where_offered(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"*": far})
    body = b"Subject: \xc3\xa9\r\n\r\n\xff\r\n"
    assert handle(mail_to("é@far.test", **{"mail.smtputf8": "1"}), body) == Done()
    (sender, recipients, got, options) = far.received[0]
    assert (sender, recipients, got) == ("s@here.test", ["é@far.test"], body)
    assert {"BODY=8BITMIME", "SMTPUTF8"} <= set(options)


@pytest.mark.parametrize(("options", "recipient", "body", "status"), [
    ({"enable_SMTPUTF8": False}, "é@far.test", BODY, "5.6.7"),
    ({"decode_data": True}, "a@far.test", b"\r\n\xff\r\n", "5.6.3"),
    ({"data_size_limit": 10}, "a@far.test", BODY, "5.3.4"),
])
def test_what_a_host_cannot_take_is_not_converted(
        unix: Any, sink: Any, options: dict[str, Any], recipient: str, body: bytes,
        status: str) -> None:
    (new,) = unix({"*": sink(**options)})(mail_to(recipient), body).new
    assert (new.queues, new.properties["error.status"]) == (("ERRMGR",), status)
    assert not new.properties["error.reason"][0].isdigit(), "the host has not said so"


def test_nasty_bodies_arrive(unix: Any, sink: Any, nasty: bytes) -> None:
    far = sink()
    handle = unix({"*": far})
    longest = max(map(len, nasty.split(b"\r\n")))
    if longest > 998:
        (new,) = handle(mail_to("a@far.test"), nasty).new
        assert new.properties["error.reason"].startswith("500 Line too long")
        return
    assert handle(mail_to("a@far.test"), nasty) == Done()
    wanted = nasty.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    if wanted and not wanted.endswith(b"\r\n"):
        wanted += b"\r\n"
    assert far.received[0][2] == wanted
    assert handle(mail_to("b@far.test")) == Done()  # the session is still in step
    assert len(far.received) == 2


def test_addresses_cannot_inject_commands(unix: Any, sink: Any) -> None:
    far = sink()
    properties = mail_to("a@far.test> ORCPT=x", "b\r@far.test", "c@far.test")
    (new,) = unix({"*": far})(properties).new
    assert new.properties["error.status"] == "5.1.3\n5.1.3"
    assert far.commands == ["MAIL s@here.test", "RCPT c@far.test", "DATA"]


def test_no_recipients_is_an_error_message(unix: Any) -> None:
    (new,) = unix({})({"mail.from": "s@here.test"}).new
    assert (new.queues, new.properties["error.status"]) == (("ERRMGR",), "5.1.3")


@pytest.mark.parametrize(("body", "text"), [
    (b"", b""), (b"a", b"a\r\n"), (b".\r\n", b"..\r\n"), (b"a\n.\r\n", b"a\r\n..\r\n"),
    (b"a\r.\r\n", b"a\r\n..\r\n"), (b"\r\r\n\n", b"\r\n\r\n\r\n"), (b"..", b"...\r\n"),
])
def test_wire_text(body: bytes, text: bytes) -> None:
    assert wire_text(body) == text


def test_replies() -> None:
    assert Reply(550, "5.1.1 x").result("a").status == "5.1.1"
    assert Reply(550, "4.1.1 x").result("a").status == "5.0.0"
    assert Reply(450, "").result("a").verdict is Verdict.TEMPORARY
    assert Reply(-1, "garbage").result("a").verdict is Verdict.TEMPORARY


def test_nonsense_in_retry_properties_counts_as_absent(message: Callable[..., Any]) -> None:
    for nonsense in ("x", "-1", "9" * 99, "²"):
        found = Retry.of(message(b"", {TRIES: nonsense, SINCE: nonsense}, put_time_ns=3), 5)
        assert (found.tries, found.since_ns) == (0, 3)


def test_the_pauses_are_those_of_the_rule_however_often_it_was_put_off(
        message: Callable[..., Any]) -> None:
    """A deferral without a try counts for nothing: so many tries do not fit into the time."""
    second, begun = 10**9, 1_700_000_000_000_000_000
    at = 0
    for number in range(1, 8):
        retry = Retry.of(message(b"", {}, defers=50, put_time_ns=begun), begun + at * second)
        assert retry.pause_s(60, 300) == min(300, 60 * number)
        at += 60 * number
    late = Retry.of(message(b"", {}, defers=0, put_time_ns=begun), begun + 86400 * second)
    assert late.pause_s(60, 3600) == 60, "it waited a day for its first try"


def test_a_clock_set_back_cannot_freeze_a_message(message: Callable[..., Any]) -> None:
    assert Retry.of(message(b"", {}, defers=9), 0).pause_s(60, 300) == 60


def test_a_host_that_speaks_no_smtp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection = SmtpConnection(Peer("127.0.0.1", port), "mx.test", ClientLimits(5, 5, 5, 10))
        server.settimeout(5)

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        (result,) = connection.send(Mail("a@b", ["c@d"], BODY))
        thread.join()
    assert result.verdict is Verdict.TEMPORARY
    assert not connection.reached


def test_a_first_try_is_made_whatever_the_clock_says(message: Callable[..., Any]) -> None:
    """A clock that is ahead gives nothing up that nobody has tried to deliver."""
    day = 86400 * 1_000_000_000
    assert not Retry.of(message(b"", {}, put_time_ns=day), 9999 * day).expired(5 * 86400)
    assert Retry.of(message(b"", {TRIES: "1"}, put_time_ns=day), 9999 * day).expired(5 * 86400)
    back = Retry.of(message(b"", {TRIES: "1"}, put_time_ns=9 * day), day)
    assert not back.expired(5 * 86400) and back.pause_s(60, 300) > 0
