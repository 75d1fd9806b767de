"""What peers, name servers and commands of others do that no peer does that means well: tried by
hand first, see MAIL."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from omq.base.settings import Settings
from omq.services.mail import peer_line
from omq.services.mail.mx_lookup import NamesWorker
from omq.services.mail.next_hop import NextHops
from omq.services.mail.peer_line import Security
from omq.services.mail.pipe_channel import PipeChannel
from omq.services.mail.routes import Peer, Pipe, Routes
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection
from omq.services.mail.smtp_reply import Result, Verdict
from tests.unit.services.mail.name_server import NameServer
from tests.unit.services.mail.stage_peer import Saying, StagePeer

PATIENT = ClientLimits(60, 60, 60, 10)
TEXT = b"Subject: x\r\n\r\nhello\r\n"
MAIL = Mail("s@here.test", ["a@far.test"], TEXT)


@pytest.fixture
def connection() -> Iterator[Callable[..., SmtpConnection]]:
    made: list[SmtpConnection] = []

    def to(peer: StagePeer, *, login: tuple[str, str] | None = None, lmtp: bool = False
           ) -> SmtpConnection:
        security = Security(logins={"127.0.0.1": login} if login else {}, level="none")
        there = Peer("127.0.0.1", peer.port, "encrypt" if login else "")
        made.append(SmtpConnection(there, "mx.test", PATIENT, security, lmtp=lmtp))
        return made[-1]

    yield to
    for each in made:
        each.abandon()


# SMTP and LMTP


@pytest.mark.parametrize("pipelining", [False, True])
def test_what_is_no_answer_to_data_delivers_nothing(connection: Any, *, pipelining: bool) -> None:
    """250 in place of 354: the text was not sent."""
    with Saying({"DATA": ["250 2.0.0 fine\r\n"]}, pipelining=pipelining) as peer:
        to = connection(peer)
        (result,) = to.send(MAIL)
        assert (result.verdict, result.status) == (Verdict.TEMPORARY, "4.4.2")
        assert to.send(MAIL)[0].verdict is Verdict.DELIVERED, "over a new connection"
    assert [each[2] for each in peer.received] == [TEXT]


def test_an_answer_before_the_text_is_no_answer_to_it(connection: Any) -> None:
    with Saying({"DATA": ["354 go on\r\n250 2.0.0 taken, whatever it is\r\n"]}) as peer:
        (result,) = connection(peer).send(MAIL)
    assert (result.verdict, result.status) == (Verdict.TEMPORARY, "4.4.2")


@pytest.mark.parametrize("pipelining", [False, True])
def test_a_reply_too_many_is_no_reply_to_the_next_mail(connection: Any, *, pipelining: bool
                                                       ) -> None:
    with Saying({".": ["250 2.0.0 taken\r\n250 2.0.0 and again\r\n"]},
                pipelining=pipelining) as peer:
        to = connection(peer)
        assert to.send(MAIL)[0].verdict is Verdict.DELIVERED
        assert to.send(MAIL)[0].verdict is Verdict.DELIVERED
    assert [each[2] for each in peer.received] == [TEXT, TEXT]


def test_an_lmtp_server_that_answers_for_some_alone(connection: Any) -> None:
    class Short(StagePeer):
        def _right(self, line: Any, stage: str, reply: str) -> bool:
            if stage == "." and "b@far.test" in reply:
                line.shutdown(socket.SHUT_RDWR)
                return False
            return super()._right(line, stage, reply)

    with Short(lmtp=True) as peer:
        results = connection(peer, lmtp=True).send(
            Mail("s@here.test", ["a@far.test", "b@far.test", "c@far.test"], TEXT))
    assert [each.verdict for each in results] == [
        Verdict.DELIVERED, Verdict.TEMPORARY, Verdict.TEMPORARY]


@pytest.mark.parametrize("offer", ["SIZE " + "9" * 5000, "SIZE -1", "SIZE", "SIZE \xb2",
                                   "SIZE 1e9", "X" * 5000])
def test_an_offer_that_means_nothing(connection: Any, offer: str) -> None:
    with Saying({"EHLO": [f"250-peer.test\r\n250 {offer}\r\n"]}) as peer:
        assert connection(peer).send(MAIL)[0].verdict is Verdict.DELIVERED


def test_a_challenge_that_is_no_base64(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_line.Line, "secured", property(lambda _: "TLS", lambda *_: None),
                        raising=False)
    monkeypatch.setattr(peer_line, "_secure", lambda *_: None)
    with Saying({"EHLO": ["250-peer.test\r\n250 AUTH CRAM-MD5\r\n"],
                 "AUTH": ["334 a\r\n"]}) as peer:
        to = connection(peer, login=("me", "secret"))
        (result,) = to.send(MAIL)
    assert (result.verdict, to.reached) == (Verdict.TEMPORARY, False)
    assert not peer.received


def test_addresses_that_answer_nothing_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host names as many as it likes: with a time-out for each it would hold a process."""
    given: list[float] = []

    def silent(address: tuple[str, int], timeout_s: float) -> socket.socket:
        given.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    monkeypatch.setattr(peer_line, "time", SimpleNamespace(monotonic=lambda: sum(given)))
    to = SmtpConnection(Peer("far.test", 25), "mx.test", ClientLimits(30, 30, 30, 10))
    (result,) = to.send(Mail("s@here.test", ["a@far.test"], TEXT,
                             addresses=[f"192.0.2.{n}" for n in range(8)]))
    assert (result.verdict, result.status, len(given)) == (Verdict.TEMPORARY, "4.4.1", 8)
    assert (min(given), sum(given)) == (3.75, 30.0)


# names


@pytest.fixture
def look_up() -> Iterator[Callable[..., Any]]:
    servers: list[NameServer] = []

    def ask(records: dict[str, list[str]], domain: str = "a.test", *, first: str = "",
            timeout_s: int = 60) -> Any:
        servers.append(NameServer(records))
        return NamesWorker(Settings(hostname="mx.test", dns_timeout_s=timeout_s,
                                    dns_servers=f"{first} {servers[-1].address}"),
                           Routes()).look_up(domain)

    yield ask
    for each in servers:
        each.__exit__()


def test_names_of_names_are_followed(look_up: Any) -> None:
    found = look_up({"a.test CNAME": ["b.test."], "b.test MX": ["10 one.test."],
                     "one.test CNAME": ["two.test."], "two.test A": ["192.0.2.7"]})
    assert [(each.host, each.addresses) for each in found.hosts] == [("one.test", ("192.0.2.7",))]


def test_a_name_that_leads_to_none_does_not_exist(look_up: Any) -> None:
    found = look_up({"a.test CNAME": ["gone.test."]})
    assert (found.status, found.permanent) == ("5.1.2", True)


@pytest.mark.parametrize("records", [
    {"a.test CNAME": ["b.test."], "b.test CNAME": ["a.test."]},
    {f"{left}.test CNAME": [f"{right}.test."] for left, right in zip(
        ["a", *(f"h{n}" for n in range(40))], (f"h{n}" for n in range(41)), strict=True)},
    {"a.test MX": ["REFUSED"]}, {"a.test MX": ["garbage"]}, {"a.test MX": ["another"]}],
    ids=["circle", "forty names", "refused", "garbage", "answers another question"])
def test_nonsense_of_a_name_server_is_for_now(look_up: Any, records: dict[str, list[str]]) -> None:
    found = look_up(records, timeout_s=1)
    assert (found.hosts, found.status, found.permanent) == ((), "4.4.3", False)


def test_the_next_name_server_where_one_is_not_there(look_up: Any) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    found = look_up({"a.test A": ["192.0.2.7"]}, first=f"127.0.0.1:{port}")
    assert found.hosts[0].addresses == ("192.0.2.7",)


def test_a_null_exchanger_beside_others_is_none(look_up: Any) -> None:
    """RFC 7505: it must be alone."""
    found = look_up({"a.test MX": ["0 .", "10 one.test."], "one.test A": ["192.0.2.7"]})
    assert [each.host for each in found.hosts] == ["one.test"]


# commands


def test_a_command_that_closes_its_output_and_goes_on() -> None:
    channel = PipeChannel(Settings(pipe_timeout_s=1), {
        "x": Pipe("", ("/bin/sh", "-c", "exec >&- 2>&-; exec sleep 1000"))})
    report = channel.send({"peer": "x:0", "recipients": ["a@far.test"],
                           "sender": "s@here.test"}, TEXT)
    assert report.results[0][1:4] == [Verdict.TEMPORARY.value, "4.3.0",
                                      "/bin/sh did not end in 1 s"]


# address literals


@pytest.mark.parametrize("domain", ["[127.0.0.2]", "[IPv6:::1]", "[IPv6:::ffff:127.0.0.1]",
                                    "[0.0.0.0]", "[IPv6:::]"])
def test_a_literal_of_this_host_is_no_way_back_into_it(domain: str) -> None:
    """Else a report to a sender of that kind would come in again as mail of this host."""
    way = NextHops(Settings(unix_mx=True), Routes()).of(f"x@{domain}")
    assert isinstance(way, Result)
    assert (way.verdict, way.status) == (Verdict.PERMANENT, "5.4.6")
