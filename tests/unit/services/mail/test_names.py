"""Hosts that take mail for a domain, asked of a name server on loopback (dnspython's messages)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.services.mail.mx_lookup import HOSTS_MAX, NamesWorker, as_result, check_names, of_result
from omq.services.mail.routes import Routes
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done, Move
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.name_server import NameServer

LOCAL = "[local]\nliterals = 192.0.2.1\n"
"""Loopback is this host in earnest, and in these tests where the peers are."""


@pytest.fixture
def names() -> Iterator[Callable[..., Any]]:
    """names(records, **settings): a worker that asks a server with these records."""
    servers: list[NameServer] = []

    def make(records: dict[str, list[str]], **settings: Any) -> Any:
        server = NameServer(records)
        servers.append(server)
        made = NamesWorker(Settings(hostname="mx.test", dns_servers=server.address,
                                    **{"dns_timeout_s": 60} | settings), Routes())
        made.server = server  # type: ignore[attr-defined]
        return made

    yield make
    for each in servers:
        each.__exit__()


def hosts(found: Any) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(each.preference, each.host, each.addresses) for each in found.ordered()]


def test_exchangers_by_preference_with_both_kinds_of_addresses(names: Any) -> None:
    found = names({"a.test MX": ["20 two.test.", "10 One.test."],
                   "one.test A": ["192.0.2.7"], "one.test AAAA": ["2001:db8::7"],
                   "two.test A": ["192.0.2.8"]}).look_up("a.test")
    assert hosts(found) == [(10, "one.test", ("2001:db8::7", "192.0.2.7")),
                            (20, "two.test", ("192.0.2.8",))]
    assert found.ttl_s == 300
    assert of_result(as_result("a.test", found)) == found


def test_equal_preferences_are_taken_by_turns(names: Any) -> None:
    found = names({"a.test MX": ["10 one.test.", "10 two.test."], "one.test A": ["192.0.2.7"],
                   "two.test A": ["192.0.2.8"]}).look_up("a.test")
    assert {found.ordered()[0].host for _ in range(100)} == {"one.test", "two.test"}


def test_a_domain_without_exchangers_is_its_own(names: Any) -> None:
    asked = names({"a.test A": ["192.0.2.7"], "b.test TXT": ['"x"']})
    assert hosts(asked.look_up("a.test")) == [(0, "a.test", ("192.0.2.7",))]
    nothing = asked.look_up("b.test")
    assert (nothing.status, nothing.permanent) == ("5.4.4", True)


@pytest.mark.parametrize(("records", "status", "permanent"), [
    ({"a.test MX": ["0 ."]}, "5.1.10", True),
    ({"b.test A": ["192.0.2.7"]}, "5.1.2", True),
    ({"a.test MX": ["SERVFAIL"]}, "4.4.3", False),
    ({"a.test MX": ["silence"]}, "4.4.3", False),
    ({"a.test MX": ["10 one.test."], "one.test A": ["SERVFAIL"], "one.test AAAA": ["SERVFAIL"]},
     "4.4.3", False),
    ({"a.test MX": ["10 gone.test."]}, "5.4.4", True),
    ({"a.test MX": ["10 mx.test."], "mx.test A": ["192.0.2.7"]}, "5.4.6", True),
    ({"a.test MX": ["10 x.test.", "20 y.test."], "x.test A": ["127.0.0.1"],
      "y.test A": ["192.0.2.7"]}, "5.4.6", True),
    ({"a.test MX": ["10 x.test."], "x.test A": ["127.0.0.2"]}, "5.4.6", True),
    ({"a.test MX": ["10 x.test."], "x.test A": ["0.0.0.0"]}, "5.4.6", True),
    ({"a.test MX": ["10 x.test."], "x.test AAAA": ["::ffff:127.1.2.3"]}, "5.4.6", True),
])
def test_why_there_is_no_host(names: Any, records: dict[str, list[str]], status: str,
                              permanent: bool) -> None:  # noqa: FBT001 (a parameter)
    found = names(records, dns_timeout_s=1).look_up("a.test")
    assert (found.hosts, found.status, found.permanent) == ((), status, permanent)
    assert found.problem


@pytest.mark.parametrize("domain", ["a..test", "x" * 64 + ".test", ".", "a" * 300])
def test_what_is_no_domain(names: Any, domain: str) -> None:
    assert names({}).look_up(domain).permanent


@pytest.mark.parametrize("name", ["/run/omq/x.sock", "[x.test", "x]y.test", "a\\032b.test",
                                  "a:25.test", "x.test/none", "-x.test"])
def test_an_exchanger_that_is_no_host_name_is_left_out(names: Any, name: str) -> None:
    """A DNS may hold any bytes: a name with "/" would be a socket of this host."""
    sound = {"two.test A": ["192.0.2.8"], f"{name} A": ["192.0.2.7"]}
    found = names({"a.test MX": [f"10 {name}.", "20 two.test."]} | sound).look_up("a.test")
    assert [each.host for each in found.hosts] == ["two.test"]
    alone = names({"a.test MX": [f"10 {name}."]} | sound).look_up("a.test")
    assert (alone.hosts, alone.status, alone.permanent) == ((), "5.4.4", True)
    assert names(sound).look_up(name).permanent, "a domain of a mail that was put by hand"


def test_hosts_before_this_one_are_used(names: Any) -> None:
    found = names({"a.test MX": ["5 first.test.", "10 mx.test.", "20 last.test."],
                   "first.test A": ["192.0.2.7"], "mx.test A": ["192.0.2.9"],
                   "last.test A": ["192.0.2.8"]}).look_up("a.test")
    assert [each.host for each in found.hosts] == ["first.test"]


def test_an_alias_is_followed_and_one_host_may_fail(names: Any) -> None:
    found = names({"a.test MX": ["10 sick.test.", "20 two.test."], "sick.test A": ["SERVFAIL"],
                   "sick.test AAAA": ["SERVFAIL"], "two.test A": ["192.0.2.8"]}).look_up("a.test")
    assert [each.host for each in found.hosts] == ["two.test"]


def test_thousands_of_records_are_bounded(names: Any) -> None:
    worker = names({"a.test MX": [f"{number} h{number}.test." for number in range(1500, 0, -1)],
                    **{f"h{number}.test A": [f"192.0.2.{each}" for each in range(1, 200)]
                       for number in range(1, 30)}}, dns_timeout_s=60)
    found = worker.look_up("a.test")
    assert [each.host for each in found.hosts] == [f"h{n}.test" for n in range(1, HOSTS_MAX + 1)]
    assert all(len(each.addresses) <= 8 for each in found.hosts)
    assert sum(worker.server.asked.values()) <= 2 * (2 + 2 * HOSTS_MAX)


def test_one_kind_of_addresses_where_that_is_wanted(names: Any) -> None:
    records = {"a.test A": ["192.0.2.7"], "a.test AAAA": ["2001:db8::7"]}
    assert names(records, unix_ip="ipv4").look_up("a.test").hosts[0].addresses == ("192.0.2.7",)
    assert names(records, unix_ip="ipv6").look_up("a.test").hosts[0].addresses == ("2001:db8::7",)


# unix.out


@pytest.fixture
def unix(service: Any, message: Any) -> Iterator[Any]:
    """unix(records, port, **settings): a gateway that asks a server with these records."""
    servers: list[NameServer] = []

    def make(records: dict[str, list[str]], port: int, routes: str = "", **settings: Any) -> Any:
        server = NameServer(records)
        servers.append(server)
        made = service(UnixOutService, "unix", LOCAL + routes, unix_mx=True, unix_port=port,
                       dns_servers=server.address, dns_timeout_s=2, unix_connect_timeout_s=2,
                       **settings)

        def handle(*recipients: str, **more: str) -> Any:
            return sent_by(made, message(b"Subject: x\r\n\r\n", {
                "mail.from": "s@here.test", "mail.to.UNIX": "\n".join(recipients)} | more,
                queue="UNIX"))

        handle.server = server  # type: ignore[attr-defined]
        return handle

    yield make
    for each in servers:
        each.__exit__()


def test_mail_goes_where_the_names_lead_and_they_are_remembered(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test MX": ["10 one.test."], "one.test A": ["127.0.0.1"]}, far.port)
    assert handle("x@a.test", "y@A.test") == Done()
    assert handle("z@a.test") == Done()
    assert [each[1] for each in far.received] == [["x@a.test", "y@A.test"], ["z@a.test"]]
    assert far.connections == 1
    assert handle.server.asked["a.test. MX"] == 1


def test_domains_with_the_same_host_share_its_line(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test MX": ["10 one.test."], "b.test MX": ["10 one.test."],
                   "one.test A": ["127.0.0.1"]}, far.port)
    assert handle("x@a.test", "y@b.test") == Done()
    assert [each[1] for each in far.received] == [["x@a.test", "y@b.test"]]


def test_the_next_exchanger_when_one_is_not_reached(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test MX": ["10 dead.test.", "20 one.test."], "dead.test A": ["127.0.0.9"],
                   "one.test A": ["127.0.0.1"]}, far.port)
    assert handle("x@a.test") == Done()
    assert handle("y@a.test") == Done()
    assert len(far.received) == 2


def test_the_next_address_when_one_is_not_reached(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test A": ["127.0.0.9", "127.0.0.1"]}, far.port)
    assert handle("x@a.test") == Done()


def test_nobody_reached_is_for_now_and_no_name_for_good(unix: Any, sink: Any) -> None:
    handle = unix({"a.test A": ["127.0.0.9"], "sick.test MX": ["SERVFAIL"],
                   "null.test MX": ["0 ."]}, sink().port)
    assert isinstance(handle("x@a.test"), Defer)
    assert isinstance(handle("x@sick.test"), Defer)
    answer = handle("x@gone.test", "y@null.test")
    assert isinstance(answer, Move)
    assert answer.new[0].properties["error.status"] == "5.1.2\n5.1.10"


def test_a_sick_name_holds_up_nobody_else(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test A": ["127.0.0.1"], "sick.test MX": ["SERVFAIL"]}, far.port)
    answer = handle("x@a.test", "y@sick.test")
    assert [each[1] for each in far.received] == [["x@a.test"]]
    (rest,) = answer.new
    assert rest.properties["mail.to.UNIX"] == "y@sick.test"


def test_a_configured_peer_comes_before_the_names(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({}, 1, f"[peers]\na.test = 127.0.0.1:{far.port}\n")
    assert handle("x@a.test") == Done()
    assert not handle.server.asked


def test_a_host_that_the_rule_does_not_name_gets_nothing(unix: Any, sink: Any) -> None:
    far = sink()
    handle = unix({"a.test MX": ["10 evil.example."], "evil.example A": ["127.0.0.1"]}, far.port,
                  "[tls]\na.test = verify\n")
    answer = handle("x@a.test")
    assert isinstance(answer, Defer)
    assert "TLS rule" in answer.reason
    assert not far.connections


# the configuration


@pytest.mark.parametrize("servers", ["1.2.3.4.5", "127.0.0.1:x", ":::"])
def test_wrong_servers_are_refused(servers: str, conf_dir: Path) -> None:
    with pytest.raises(ConfigError, match="dns_servers"):
        check_names(Settings(unix_mx=True, dns_servers=servers), conf_dir)


def test_a_missing_package_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch, conf_dir: Path
                                                ) -> None:
    for name in ("dns", "dns.resolver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match="dnspython"):
        check_names(Settings(unix_mx=True), conf_dir)
    check_names(Settings(), conf_dir)
