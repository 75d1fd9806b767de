"""routes.conf: resolution, and mistakes with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.errors import ConfigError
from omq.services.mail.routes import Peer, Routes, peer_of
from omq.services.mail.routes_file import load_routes

TEXT = """\
[local]
domains = example.org, localhost
users = alice, bob, carol, user-*
[aliases]
postmaster = alice
staff = alice, bob, dave@elsewhere.test
bob = bob, bob@elsewhere.test
loop-a = loop-b
loop-b = loop-a
info@far.test = alice, x@far.test
partly = alice, nobody
[queues]
fax@example.org = FAX
special.test = SPECIAL
.special.test = SUB
[peers]
far.test = 127.0.0.1:2526
.far.test = [::1]
* = smart.test:587
"""


@pytest.fixture
def routes(conf_dir: Path) -> Routes:
    (conf_dir / "routes.conf").write_text(TEXT)
    return load_routes(conf_dir)


@pytest.mark.parametrize(("address", "places"), [
    ("alice", ["LOCAL:alice"]),
    ("ALICE@Example.ORG", ["LOCAL:alice"]),
    ("user-7@localhost", ["LOCAL:user-7"]),
    ("Postmaster@localhost", ["LOCAL:alice"]),
    ("staff", ["LOCAL:alice", "LOCAL:bob", "UNIX:bob@elsewhere.test", "UNIX:dave@elsewhere.test"]),
    ("bob@example.org", ["LOCAL:bob", "UNIX:bob@elsewhere.test"]),
    ("fax@example.org", ["FAX:fax@example.org"]),
    ("a@special.test", ["SPECIAL:a@special.test"]),
    ("a@b.c.special.test", ["SUB:a@b.c.special.test"]),
    ("a@notspecial.test", ["UNIX:a@notspecial.test"]),
    ("info@far.test", ["LOCAL:alice", "UNIX:x@far.test"]),
    ("partly", ["LOCAL:alice"]),
    ("nobody@example.org", []),
    ("../alice@example.org", []),
    ("loop-a", []),
    ('"alice"@example.org', ["LOCAL:alice"]),
    ('"al\\ice"@example.org', ["LOCAL:alice"]),
    ('"\\S\\taff"@example.org',
     ["LOCAL:alice", "LOCAL:bob", "UNIX:bob@elsewhere.test", "UNIX:dave@elsewhere.test"]),
    ('"fa\\x"@example.org', ["FAX:\"fa\\x\"@example.org"]),
    ('"post\\master"@localhost', ["LOCAL:alice"]),
    ('"al ice"@example.org', []),
    ('"al\\\\ice"@example.org', []),
])
def test_resolution(routes: Routes, address: str, places: list[str]) -> None:
    found, failures = routes.resolve(address)
    assert [f"{each.queue}:{each.address}" for each in found] == places
    assert bool(failures) == (not places or address == "partly")
    assert all(each.original == address for each in found)
    assert all(each.recipient == address for each in failures)


def test_failures_say_what_is_wrong(routes: Routes) -> None:
    assert routes.resolve("nobody")[1][0].status == "5.1.1"
    assert routes.resolve("loop-b@localhost")[1][0].status == "5.4.6"


def test_unknown_users_may_have_a_catcher(conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text("[local]\nusers = a\nunknown_user = Catcher\n")
    found, failures = load_routes(conf_dir).resolve("zzz@localhost")
    assert not failures
    assert found[0].address == "catcher"


def test_long_alias_chains_need_no_stack(conf_dir: Path) -> None:
    chain = "".join(f"a{n} = a{n + 1}\n" for n in range(3000))
    (conf_dir / "routes.conf").write_text(f"[aliases]\n{chain}")
    assert load_routes(conf_dir).resolve("a0")[0][0].address == "a3000"


def test_peers(routes: Routes) -> None:
    assert routes.peer("far.test") == Peer("127.0.0.1", 2526)
    assert routes.peer("x.far.test") == Peer("::1", 0)
    assert routes.peer("other.test") == Peer("smart.test", 587)
    assert Routes().peer("other.test") is None


@pytest.mark.parametrize(("text", "peer"), [
    ("a", Peer("a")), ("a:1", Peer("a", 1)), ("[::1]", Peer("::1")), ("[::1]:9", Peer("::1", 9)),
    ("::1", None), ("a:", None), ("a:b", None), ("a:70000", None), ("", None), (":25", None),
    ("a b", None), ("[]:1", None),
])
def test_peer_words(text: str, peer: Peer | None) -> None:
    assert peer_of(text) == peer


def test_who_a_stranger_may_send_to(routes: Routes) -> None:
    for address in ("alice@example.org", "alice", "info@far.test", "nobody@localhost"):
        assert routes.accepts(address)
    for address in ("a@far.test", "alice%far.test@other.test", "alice@example.org@other.test"):
        assert not routes.accepts(address)


def test_the_shipped_file_is_right() -> None:
    routes = load_routes(None)
    assert routes.queues == {"*": "UNIX"}
    assert routes.domains[0] == "localhost"
    assert routes.literals == Routes().literals
    assert routes.hops_max == Routes().hops_max


@pytest.mark.parametrize(("text", "line"), [
    ("[nowhere]\n", 1),
    ("[local]\ncolour = red\n", 2),
    ("[local]\n\ndomains =\n", 3),
    ("[local]\nunknown_user = ../x\n", 2),
    ("[aliases]\nx =\n", 2),
    ("[aliases]\nx = a<b>\n", 2),
    ("[queues]\nexample.org = lower\n", 2),
    ("[queues]\na*b = UNIX\n", 2),
    ("[peers]\nx = ::1\n", 2),
    ("[router]\nhops_max = 0\n", 2),
    ("[router]\nbcc_header = keep\n", 2),
    ("[local]\nliterals = 1.2.3.4.5\n", 2),
    ("[local]\n\nusers = file:/nowhere/at/all\n", 3),
    ("[local]\nusers = file:relative\n", 2),
    ("[local]\nusers = ldap:x\n", 2),
    ("[aliases]\npostmaster = nobody-here@localhost\n[local]\nusers = a\n", 1),
    ("[local]\ndomains = a.test, b.test\nrelayed = c.test, B.test\n", 3),
    ("domains = x\n", 1),
])
def test_mistakes_are_told_with_their_line(conf_dir: Path, text: str, line: int) -> None:
    (conf_dir / "routes.conf").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_routes(conf_dir)
    assert raised.value.fields["line"] == line
    assert raised.value.fields["allowed"]


def test_postmaster_and_address_literals_always_work(conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text(
        "[local]\ndomains = a.test, b.test\nliterals = 192.0.2.1 2001:db8::1\nusers = bob\n")
    routes = load_routes(conf_dir)
    for address in ("postmaster", "Postmaster@b.test", "postmaster@[192.0.2.1]",
                    "postmaster@[IPv6:2001:DB8:0::1]", "bob@[192.0.2.1]"):
        (place,), failures = routes.resolve(address)
        assert place.queue == "LOCAL"
        assert not failures
        assert routes.accepts(address)
    assert not routes.accepts("bob@[192.0.2.2]")
    assert not routes.accepts("bob@[x]")


def test_a_postmaster_without_a_mailbox_is_a_mistake(conf_dir: Path) -> None:
    text = "[local]\ndomains = a.test\nusers = bob\n[aliases]\npostmaster = "
    (conf_dir / "routes.conf").write_text(text + "bob\n")
    load_routes(conf_dir)
    (conf_dir / "routes.conf").write_text(text + "nobody\n")
    with pytest.raises(ConfigError) as raised:
        load_routes(conf_dir)
    assert "postmaster@a.test" in raised.value.fields["reason"]


def test_the_postmaster_of_the_host_name_is_ours(conf_dir: Path) -> None:
    """Also where the name is no domain of ours; unless the file sends it somewhere."""
    text = "[local]\ndomains = a.test\nusers = bob\n"
    (conf_dir / "routes.conf").write_text(text)
    routes = load_routes(conf_dir, "MX.a.test")
    (place,), failures = routes.resolve("Postmaster@mx.a.test")
    assert (place.queue, place.address, failures) == ("LOCAL", "postmaster", [])
    assert routes.accepts("postmaster@mx.a.test")
    assert not routes.accepts("bob@mx.a.test")
    assert routes.qualified("postmaster@mx.a.test") == routes.qualified("postmaster")
    (conf_dir / "routes.conf").write_text(f"{text}[peers]\nmx.a.test = inner.test\n")
    (place,), _ = load_routes(conf_dir, "mx.a.test").resolve("postmaster@mx.a.test")
    assert place.queue == "UNIX"


def test_users_of_a_file_and_of_the_system(conf_dir: Path, tmp_path: Path) -> None:
    listed = tmp_path / "users"
    listed.write_text("# ours\nAnna:x:1000\nben  # the other\n\n")
    (conf_dir / "routes.conf").write_text(f"[local]\nusers = file:{listed}, passwd:, u-*\n")
    routes = load_routes(conf_dir)
    for user in ("anna", "ben", "root", "postmaster"):
        assert routes.is_named(user)
    assert routes.is_user("u-1")
    assert not routes.is_named("u-1")
    for user in ("# ours", "passwd:", "nobody-of-this-name"):
        assert not routes.is_user(user)
