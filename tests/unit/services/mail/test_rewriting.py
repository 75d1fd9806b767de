"""Addresses written anew: to the byte in a header, by maps, by the domain of a site; at ROUTER and
on the way out."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base.errors import ConfigError
from omq.services.delivery.rules import PeerLimit
from omq.services.mail.header_addresses import addresses_in
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.rewriting import (
    ADDRESSES_MAX,
    Class,
    Masquerade,
    header_addresses,
    rewrite_problem,
    with_addresses,
)
from omq.services.mail.router import RouterService
from omq.services.mail.routes_file import load_routes
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done, Move
from tests.unit.services.mail.conftest import sent_by
from tests.waiting import until

SCAN = 1 << 20
FIELDS: Mapping[str, tuple[bytes, list[str]]] = {
    "plain": (b"To: a@b.test\r\n", ["a@b.test"]),
    "several": (b"To: a@b.test, c@d.test\r\n", ["a@b.test", "c@d.test"]),
    "names": (b'From: "Doe, John" <a@b.test>\r\n', ["a@b.test"]),
    "words": (b"From: =?utf-8?q?J=C3=B6?= <a@b.test>\r\n", ["a@b.test"]),
    "8-bit name": ("From: Jörg <a@b.test>\r\n".encode(), ["a@b.test"]),
    "latin name": (b"From: J\xf6rg <a@b.test>\r\n", ["a@b.test"]),
    "an address as a name": (b"From: x@y.test <a@b.test>\r\n", ["a@b.test"]),
    "a quoted one as a name": (b'From: "x@y.test" <a@b.test>\r\n', ["a@b.test"]),
    "comments": (b"To: (an (inner) one) a@b.test (c@d.test)\r\n", ["a@b.test"]),
    "escaped": (b'To: (\\) no end) "a\\"<x@y>b" <a@b.test>\r\n', ["a@b.test"]),
    "folded": (b"To: a@b.test,\r\n\t<c@d.test>,\r\n e@f.test\r\n",
               ["a@b.test", "c@d.test", "e@f.test"]),
    "group": (b"To: friends: a@b.test, <c@d.test>;, e@f.test\r\n",
              ["a@b.test", "c@d.test", "e@f.test"]),
    "empty group": (b"To: undisclosed-recipients:;\r\n", []),
    "route": (b"To: <@x.test,@y.test:a@b.test>\r\n", ["a@b.test"]),
    "quoted local part": (b'To: "a b"@c.test\r\n', ['"a b"@c.test']),
    "literal": (b"To: a@[192.0.2.1]\r\n", ["a@[192.0.2.1]"]),
    "none": (b"To: <>\r\n", []),
    "a name alone": (b"To: root\r\n", []),
    "empty ones": (b"To: ,, a@b.test ,,\r\n", ["a@b.test"]),
    "white space in it": (b"To: a @b.test, <a@ b.test>, c@d.test\r\n", ["c@d.test"]),
    "two at once": (b"To: a@b@c.test\r\n", []),
    "quote without end": (b'To: a@b.test, "x\r\n', []),
    "comment without end": (b"To: a@b.test (x\r\n", []),
    "bracket without end": (b"To: <a@b.test\r\n", []),
    "bracket twice": (b"To: <a@b.test> <c@d.test>\r\n", []),
    "closed alone": (b"To: a@b.test>\r\n", []),
    "bracket in brackets": (b"To: <a<b@c.test>>\r\n", []),
    "no UTF-8": (b"To: \xff@b.test\r\n", []),
    "deep": (b"To: " + b"(" * 20_000 + b"a@b.test\r\n", []),
}


@pytest.mark.parametrize("case", FIELDS)
def test_where_the_addresses_stand(case: str) -> None:
    field, addresses = FIELDS[case]
    found = addresses_in(field)
    assert [each.address for each in found] == addresses
    assert all(field[each.start : each.end] == each.address.encode() for each in found)


@given(st.lists(st.sampled_from([b"a@b.test", b'"q', b'"', b"(", b")", b"<", b">", b",", b";", b":",
                                 b"\\", b"[", b"]", b"@", b".", b"\r\n ", b"\xff", b" ", b"x"])))
def test_whatever_a_field_holds(pieces: list[bytes]) -> None:
    """What is found is what is there, in order; what is replaced is that alone."""
    field = b"To: " + b"".join(pieces) + b"\r\n"
    found = addresses_in(field)
    last = 0
    for each in found:
        assert each.start >= last and field[each.start : each.end].decode() == each.address
        last = each.end
    text = field + b"\r\nTo: a@b.test\r\n"
    answers = {(Class.HEADER_RECIPIENT, each.address): "n@n.test" for each in found}
    made = with_addresses(text, answers, SCAN)
    assert made.count(b"n@n.test") == len(found) or text.startswith(b"To: \r\n")
    assert made.endswith(b"\r\n\r\nTo: a@b.test\r\n")


def test_nothing_else_of_a_mail_changes(nasty: bytes) -> None:
    answers = dict.fromkeys(header_addresses(nasty, SCAN), "new@n.test")
    if not answers:
        assert with_addresses(nasty, answers, SCAN) is nasty
    back = with_addresses(nasty, answers, SCAN)
    for (_, address), new in answers.items():
        back = back.replace(new.encode(), address.encode(), 1) if len(answers) == 1 else back
    assert len(answers) != 1 or back == nasty


def test_a_header_of_many_addresses_is_bounded() -> None:
    text = b"".join(b"To: a%d@b.test\r\n" % number for number in range(ADDRESSES_MAX + 50))
    found = header_addresses(text + b"\r\n", SCAN)
    assert len(found) == ADDRESSES_MAX
    made = with_addresses(text, dict.fromkeys(found, "n@n.test"), SCAN)
    assert made.count(b"n@n.test") == ADDRESSES_MAX and made.endswith(b"a1049@b.test\r\n")


@pytest.mark.parametrize(("address", "kind", "seen"), [
    ("a@host.b.test", Class.HEADER_SENDER, "a@b.test"),
    ("a@HOST.b.test", Class.ENVELOPE_SENDER, "a@b.test"),
    ("a@b.test", Class.HEADER_SENDER, "a@b.test"),
    ("a@xb.test", Class.HEADER_SENDER, "a@xb.test"),
    ("root@host.b.test", Class.HEADER_SENDER, "root@host.b.test"),
    ('"Root"@host.b.test', Class.HEADER_SENDER, '"Root"@host.b.test'),
    ("a@x.stays.b.test", Class.HEADER_SENDER, "a@x.stays.b.test"),
    ("a@host.b.test", Class.ENVELOPE_RECIPIENT, "a@host.b.test"),
    ("a@host.b.test", Class.HEADER_RECIPIENT, "a@b.test"),
    ("name", Class.HEADER_SENDER, "name")])
def test_masquerade(address: str, kind: Class, seen: str) -> None:
    rule = Masquerade(("!stays.b.test", "b.test"), frozenset(("root",)))
    assert rule.of(address, kind) == seen


@pytest.mark.parametrize("value", ["name", "a b@c.test", "@", "@-.test", "a@b@c", "ö@b.test",
                                   "a@ö.test", "<a@b.test>", "a@b..test", "a@b.test\x00"])
def test_what_is_no_value(value: str) -> None:
    assert rewrite_problem(value)


def routes(conf_dir: Path, text: str) -> Any:
    (conf_dir / "routes.conf").write_text(text)
    return load_routes(conf_dir)


def table(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return f"file:{folder / name}"


def test_the_order_and_the_classes(conf_dir: Path, tmp_path: Path) -> None:
    """The maps of a class, then those for all of what came out, then the masquerade; each once."""
    found = routes(conf_dir, f"""\
[rewriting]
masquerade_domains = b.test
[sender_canonical_maps]
s = {table(tmp_path, 's', SENDER)}
[recipient_canonical_maps]
r = {table(tmp_path, 'r', RECIPIENT)}
[canonical_maps]
c = {table(tmp_path, 'c', ALL)}
""").rewriting
    for kind, address, new in (
            (Class.HEADER_SENDER, "a@x.test", "z@b.test"),
            (Class.ENVELOPE_RECIPIENT, "a@x.test", "c@y.test"),
            (Class.ENVELOPE_RECIPIENT, "r@x.test", "r@deep.b.test"),
            (Class.HEADER_RECIPIENT, "r@x.test", "r@b.test"),
            (Class.HEADER_SENDER, "Any.One@old.test", "Any.One@new.test"),
            (Class.HEADER_SENDER, "circle@x.test", "circle@y.test"),
            (Class.ENVELOPE_SENDER, "", "")):
        assert found.of(address, kind, lambda maps, key: maps.ask(key)) == new, (kind, address)
    found.close()


SENDER = "a@x.test s@y.test\n"
RECIPIENT = "a@x.test c@y.test\nr@x.test r@deep.b.test\n"
ALL = """\
s@y.test z@host.b.test
@old.test @new.test
circle@x.test circle@y.test
circle@y.test circle@x.test
"""


@pytest.mark.parametrize("text", [
    "[rewriting]\nheaders = some\n", "[rewriting]\nmasquerade_domains = a@b\n",
    "[rewriting]\ncanonical_classes = header\n", "[rewriting]\ncanonical_classes =\n",
    "[rewriting]\nmasquerade = b.test\n", "[canonical_maps]\na = b@c.test\n",
    "[generic_maps]\na = file:relative\n", "[checks]\nheader = relative\n",
    "[checks]\nheaders = /x\n", "[checks]\nheader = /x\ntime_s = 0\n",
    "[peer_limits]\nb.test = 0\n", "[peer_limits]\nb.test = -\n", "[peer_limits]\nb.test = 2 5\n",
    "[peer_limits]\nb.test = 1001\n", "[peer_limits]\nb.test = 1 0/s\n",
    "[peer_limits]\nb.test = 1 1/0s\n", "[peer_limits]\nb.test = 1 5/year\n",
    "[sender_peers]\na b = h\n", "[sender_peers]\n* = pipe:none\n"])
def test_a_wrong_line_is_named(conf_dir: Path, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        routes(conf_dir, text)
    assert "routes.conf" in str(error.value)


@pytest.mark.parametrize("value", ["two@b.test, three@b.test", "@nowhere..test", "a b", "name"])
def test_a_value_that_cannot_be_has_the_mail_wait(
        conf_dir: Path, tmp_path: Path, value: str) -> None:
    place = table(tmp_path, "c", f"a@b.test {value}\n")
    found = routes(conf_dir, f"[canonical_maps]\nc = {place}\n").rewriting
    with pytest.raises(MapFailed):
        found.of("a@b.test", Class.HEADER_SENDER, lambda maps, key: maps.ask(key))
    found.close()


# at ROUTER: mail of programs of this host

LOCAL = {"mail.from": "root@host.b.test", "mail.to": "old@b.test\nx@far.test",
         "mail.dsn": "old@b.test\tFAILURE\t"}
MAIL = (b"From: Cron <root@host.b.test>\r\nTo: old@b.test (him),\r\n  x@far.test\r\n"
        b"Subject:  two  spaces\r\n\r\nroot@host.b.test\r\n")


@pytest.fixture
def router(service: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def make(more: str = "", **settings: Any) -> Any:
        (tmp_path / "c").write_text("old@b.test new@b.test\n")
        return service(RouterService, "router",
                       "[local]\ndomains = b.test\nusers = new\n[rewriting]\n"
                       "masquerade_domains = b.test\n"
                       f"[canonical_maps]\nc = file:{tmp_path}/c\n{more}", **settings)

    return make


def test_mail_of_a_program_here(router: Any, message: Callable[..., Any]) -> None:
    made = router()
    answer = made.handle(message(MAIL, LOCAL))
    assert isinstance(answer, Move)
    (new,) = answer.new
    assert new.properties["mail.from"] == "root@b.test"
    assert new.properties["mail.to.LOCAL"] == "new"
    assert new.properties["mail.dsn"] == "new@b.test\tFAILURE\t"
    assert new.properties["mail.to.UNIX"] == "x@far.test"
    assert new.body == MAIL.replace(b"old@b.test", b"new@b.test", 1).replace(
        b"root@host.b.test", b"root@b.test", 1)


@pytest.mark.parametrize("name", ["mail.peer", "mail.about", "mail.held"])
def test_what_came_otherwise_is_not_rewritten_again(
        router: Any, message: Callable[..., Any], name: str) -> None:
    answer = router().handle(message(MAIL, LOCAL | {name: "192.0.2.1"}))
    assert all(each.body == MAIL for each in answer.new)


def test_a_map_without_an_answer_has_it_wait(
        router: Any, message: Callable[..., Any], tmp_path: Path, logged: Any) -> None:
    made = router()
    (tmp_path / "c").write_text("old@b.test new@b.test")  # half a file
    assert isinstance(made.handle(message(MAIL, LOCAL)), Defer)
    assert 1521 in logged()


# on the way out


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any]) -> Callable[..., Any]:
    def make(text: str, **settings: Any) -> Any:
        made = service(UnixOutService, "unix", text, **settings)

        def handle(sender: str, *to: str, body: bytes = MAIL) -> Any:
            return sent_by(made, message(body, {"mail.from": sender, "mail.to.UNIX": "\n".join(to)},
                                         queue="UNIX"))

        return handle

    return make


def test_generic_on_the_way_out(unix: Any, sink: Any, tmp_path: Path) -> None:
    """Envelope and header; two that become one are told once, and each has its result."""
    far = sink()
    (tmp_path / "g").write_text("root@host.b.test shop@isp.test\nold@b.test x@far.test\n")
    handle = unix(f"[peers]\n* = 127.0.0.1:{far.port}\n[generic_maps]\ng = file:{tmp_path}/g\n")
    assert handle("root@host.b.test", "old@b.test", "x@far.test", "y@far.test") == Done()
    ((sender, recipients, text, _),) = far.received
    assert (sender, recipients) == ("shop@isp.test", ["x@far.test", "y@far.test"])
    assert text == MAIL.replace(b"old@b.test", b"x@far.test", 1).replace(
        b"root@host.b.test", b"shop@isp.test", 1)


def test_a_refusal_names_the_address_that_is_known_here(unix: Any, sink: Any, tmp_path: Path
                                                        ) -> None:
    far = sink({"RCPT other@far.test": "550 5.1.1 nobody"})
    (tmp_path / "g").write_text("mine@far.test other@far.test\n")
    handle = unix(f"[peers]\n* = 127.0.0.1:{far.port}\n[generic_maps]\ng = file:{tmp_path}/g\n")
    answer = handle("s@b.test", "mine@far.test")
    assert answer.new[0].properties["error.to"] == "mine@far.test"


def test_wishes_of_others_are_theirs(unix: Any, sink: Any, tmp_path: Path, message: Any,
                                     service: Any) -> None:
    """A message that is not shared out tells each peer of its own recipients' wishes alone."""
    one, two = sink(), sink()
    (tmp_path / "g").write_text("x@one.test z@one.test\n")
    made = service(UnixOutService, "unix", f"[peers]\none.test = 127.0.0.1:{one.port}\n"
                   f"two.test = 127.0.0.1:{two.port}\n[generic_maps]\ng = file:{tmp_path}/g\n",
                   unix_split_bytes_max=1)
    to = "x@one.test\ny@two.test"
    assert sent_by(made, message(MAIL, {
        "mail.from": "s@b.test", "mail.to.UNIX": to, "mail.orig.UNIX": to,
        "mail.dsn": "x@one.test\tNEVER\t\ny@two.test\tNEVER\t"}, queue="UNIX")) == Done()
    assert (one.received[0][1], two.received[0][1]) == (["z@one.test"], ["y@two.test"])


def test_a_reload_ends_the_look_ups_of_the_maps_before(
        service: Callable[..., Any], tmp_path: Path) -> None:
    """Else each reload leaves its threads, and what they hold open, to the next."""
    (tmp_path / "g").write_text("a@b.test c@b.test\n")
    made = service(UnixOutService, "unix", f"[generic_maps]\ng = file:{tmp_path}/g\n")
    before = set(threading.enumerate())
    assert made.routes.rewriting.generic.ask("a@b.test") == ("c@b.test",)
    (asked,) = set(threading.enumerate()) - before
    made.reload()
    until(lambda: not asked.is_alive(), "it waits for more questions")


def test_a_generic_map_without_an_answer_has_the_mail_wait(unix: Any, sink: Any, tmp_path: Path
                                                           ) -> None:
    far = sink()
    handle = unix(f"[peers]\n* = 127.0.0.1:{far.port}\n[generic_maps]\ng = file:{tmp_path}/g\n")
    assert isinstance(handle("s@b.test", "x@far.test"), Defer)
    assert not far.received


def test_the_relay_of_a_sender(unix: Any, sink: Any) -> None:
    """By address, by domain, for reports; a line of the recipient's domain comes before, one for
    all after it."""
    one, other, rest, own = sink(), sink(), sink(), sink()
    handle = unix(f"[peers]\n* = 127.0.0.1:{rest.port}\nown.test = 127.0.0.1:{own.port}\n"
                  f"[sender_peers]\na@b.test = 127.0.0.1:{one.port}\n"
                  f"b.test = 127.0.0.1:{other.port}\n<> = 127.0.0.1:{other.port}\n")
    for sender in ("A@b.test", "c@b.test", "", "c@elsewhere.test"):
        assert handle(sender, "x@far.test") == Done()
    assert handle("a@b.test", "x@own.test") == Done()
    assert [[each[0] for each in there.received] for there in (one, other, rest, own)] == [
        ["A@b.test"], ["c@b.test", "<>"], ["c@elsewhere.test"], ["a@b.test"]]


def test_whose_limit_counts_for_a_host(service: Callable[..., Any], message: Callable[..., Any]
                                       ) -> None:
    """By its name, or that of a domain above it; else by the domains that lead to it alone, the
    strictest of them. A smarthost has none of its domains' limits."""
    made = service(UnixOutService, "unix", """\
[peers]
one.test = mx.shared.test:25
two.test = mx.shared.test:25
three.test = mx.named.test:25
* = smart.test:25
[peer_limits]
one.test = 3 60/min
two.test = 2 1/5s
three.test = 1
.named.test = 7
far.test = 1
""")
    assert made.limit_of("mx.shared.test:25") is None, "nothing went there yet"
    for domain in ("one", "two", "three", "far"):
        made.plan(message(MAIL, {"mail.from": "s@b.test", "mail.to.UNIX": f"x@{domain}.test"}))
    assert made.limit_of("mx.shared.test:25") == PeerLimit(2, 5.0)
    assert made.limit_of("mx.shared.test:25/encrypt") == PeerLimit(2, 5.0)
    assert made.limit_of("MX.named.test:25") == PeerLimit(7, 0.0)
    assert made.limit_of("smart.test:25") is None
    assert made.limit_of("no peer at all:x:y") is None


def test_a_mail_is_signed_before_it_goes_and_not_changed_after(
        unix: Any, sink: Any, tmp_path: Path) -> None:
    """Without a generic map what a filter signed leaves as it was, whatever else is rewritten."""
    far = sink()
    signed = MAIL.replace(b"Subject", b"DKIM-Signature: " + base64.b64encode(b"x") + b"\r\nSubject")
    (tmp_path / "c").write_text("root@host.b.test other@b.test\n")
    handle = unix(f"[peers]\n* = 127.0.0.1:{far.port}\n[canonical_maps]\nc = file:{tmp_path}/c\n"
                  "[rewriting]\nmasquerade_domains = b.test\n")
    assert handle("root@host.b.test", "x@far.test", body=signed) == Done()
    ((sender, _, text, _),) = far.received
    assert text == signed and sender == "root@host.b.test"
