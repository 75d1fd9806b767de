"""Maps of recipients and senders: each kind of source, and wrong, slow or hostile ones."""

from __future__ import annotations

import os
import pwd
import shlex
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError
from omq.services.mail import map_sources, watched_file
from omq.services.mail.map_errors import MapFailed, MapMissing
from omq.services.mail.maps import Maps
from omq.services.mail.router import RouterService
from omq.services.mail.routes import MAPPED_MAX, Routes
from omq.services.mail.routes_file import load_routes
from omq.services.readers.service import Defer, Move

WAIT_S = 60
LOCAL = "[local]\ndomains = here.test\nrelayed = other.test\nusers = alice, bob, carol\n"
USER = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"


@pytest.fixture
def routes(conf_dir: Path) -> Iterator[Callable[..., Routes]]:
    """routes(line, line): with these sources of recipients, s0, s1 ..."""
    made: list[Routes] = []

    def load(*sources: str, more: str = "") -> Routes:
        lines = "".join(f"s{number} = {each}\n" for number, each in enumerate(sources))
        (conf_dir / "routes.conf").write_text(f"{LOCAL}[recipient_maps]\n{lines}{more}")
        made.append(load_routes(conf_dir))
        return made[-1]

    yield load
    for each in made:
        each.close()


def places(routes: Routes, address: str) -> list[str]:
    assert routes.recipient_maps is not None
    found, failures = routes.resolve(address, routes.recipient_maps.ask)
    return [f"{each.queue}:{each.address}" for each in found] + [each.status for each in failures]


def failure(routes: Routes, address: str) -> str:
    assert routes.recipient_maps is not None
    with pytest.raises(MapFailed) as caught:
        routes.resolve(address, routes.recipient_maps.ask)
    return str(caught.value)


def command(body: str) -> str:
    """A shell's words, with the address as $1."""
    return f"command:{USER} /bin/sh -c {shlex.quote(body)} sh {{address}}"


def database(path: Path, *rows: tuple[object, object]) -> str:
    made = sqlite3.connect(path)
    made.execute("create table alias (address, goto)")
    made.executemany("insert into alias values (?, ?)", rows)
    made.commit()
    made.close()
    return f"sqlite:{path} select goto from alias where address = :address"


# what each kind answers


def test_a_file_of_addresses(routes: Callable[..., Routes], tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("# Postfix's form\nInfo@here.test  alice,\n   x@far.test\n"
                    "@other.test\tbob\ncarol@here.test carol, x@far.test\n")
    found = routes(f"file:{path}")
    assert places(found, "INFO@Here.test") == ["LOCAL:alice", "UNIX:x@far.test"]
    assert places(found, "anybody@other.test") == ["LOCAL:bob"]
    assert places(found, "bob@here.test") == ["LOCAL:bob"], "what no map names goes as before"
    assert places(found, "carol@here.test") == ["LOCAL:carol", "UNIX:x@far.test"], "a copy is kept"
    assert places(found, "x@far.test") == ["UNIX:x@far.test"]


def test_regular_expressions(routes: Callable[..., Routes], tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("/^(.+)-old@here\\.test$/  $1@here.test\n"
                    "/^(no-)?news-(\\d+)@/ ${2}.n$(2)@far.test, bob\n/^price@/ us$$@far.test\n")
    found = routes(f"regexp:{path}")
    assert places(found, "ALICE-old@here.test") == ["LOCAL:alice"]
    assert places(found, "news-7@here.test") == ["UNIX:7.n7@far.test", "LOCAL:bob"]
    assert places(found, "price@here.test") == ["UNIX:us$@far.test"]
    assert places(found, "alice@here.test") == ["LOCAL:alice"]


def test_a_command(routes: Callable[..., Routes]) -> None:
    found = routes(command('read key; test "$key" = "$1" || exit 75; echo warned >&2; case $key in '
                           'many*) echo alice; echo bob,x@far.test;; none*) exit 67;; esac'))
    assert places(found, "many@here.test") == ["LOCAL:alice", "LOCAL:bob", "UNIX:x@far.test"]
    assert places(found, "none@here.test") == ["5.1.1"]
    assert places(found, "carol@here.test") == ["LOCAL:carol"], "no word is no entry"


def test_sqlite(routes: Callable[..., Routes], tmp_path: Path) -> None:
    found = routes(database(tmp_path / "a%b?.db", ("a@here.test", "alice, bob"),
                            ("a@here.test", "x@far.test"), ("b@here.test", None),
                            ("' or ''='", "carol")))
    assert places(found, "A@here.test") == ["LOCAL:alice", "LOCAL:bob", "UNIX:x@far.test"]
    assert places(found, "b@here.test") == ["5.1.1"]
    assert places(found, "\"' or ''='\"@here.test") == ["5.1.1"], "a key is no part of a statement"


def test_the_first_that_has_it_counts_and_one_that_fails_ends_it(
        routes: Callable[..., Routes], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a@here.test alice\n")
    second.write_text("a@here.test bob\nb@here.test bob\n")
    found = routes(f"file:{first}", f"file:{second}")
    assert places(found, "a@here.test") == ["LOCAL:alice"]
    assert places(found, "b@here.test") == ["LOCAL:bob"]
    first.unlink()
    assert "s0" in failure(routes(f"file:{first}", f"file:{second}"), "b@here.test")


def test_only_domains_of_ours_are_asked_about(routes: Callable[..., Routes], tmp_path: Path
                                              ) -> None:
    found = routes(f"file:{tmp_path / 'none'}", more="[aliases]\nlist = y@far.test\n[queues]\n"
                   "fax@here.test = FAX\n* = UNIX\n[router]\nmap_ttl_s = 5\n")
    assert places(found, "x@far.test") == ["UNIX:x@far.test"]
    assert places(found, "list@here.test") == ["UNIX:y@far.test"]
    assert places(found, "fax@here.test") == ["FAX:fax@here.test"]
    failure(found, "bob@here.test")


def test_the_user_before_the_delimiter(conf_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "map").write_text("a@here.test alice\n")
    (conf_dir / "routes.conf").write_text(
        f"{LOCAL}delimiter = +\n[recipient_maps]\nm = file:{tmp_path / 'map'}\n")
    routes = load_routes(conf_dir)
    assert places(routes, "a+news@here.test") == ["LOCAL:alice"]
    routes.close()


# what is wrong


@pytest.mark.parametrize(("text", "told"), [
    ("", "is empty"), ("a@here.test alice", "no end"), ("a@here.test\n", ":1"),
    ("# x\na alice\n", ":2"), ("a@here.test a b@here.test\n", "space"),
    ("a@here.test alice\nA@here.test bob\n", ":2"), ("a@here.test <x>@far.test\n", ":1"),
    ("a@here.test " + ",".join(f"u{each}@far.test" for each in range(101)) + "\n", "more than 100"),
])
def test_a_wrong_file_has_mail_wait(text: str, told: str, routes: Callable[..., Routes],
                                    tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text(text)
    said = failure(routes(f"file:{path}"), "bob@here.test")
    assert told in said and str(path) in said


@pytest.mark.parametrize(("text", "told"), [
    ("/(a/ x\n", ":1"), ("# x\n/(a)\\1/ x\n", ":2"), ("a x\n", "expected"), ("/a/  \n", "expected"),
    ("/(a)/ $2\n", "$1"), ("/a/ $x\n", "$1"), (f"/{'a' * 1025}/ x\n", "1024 bytes"),
    ("/a{1000}{1000}/ x\n", ":1"), ("/x/ a\n" * 1001, "1000 expressions"),
])
def test_wrong_expressions_have_mail_wait(text: str, told: str, routes: Callable[..., Routes],
                                          tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text(text)
    assert told in failure(routes(f"regexp:{path}"), "bob@here.test")


def test_an_expression_without_end_ends(routes: Callable[..., Routes], tmp_path: Path) -> None:
    """Python's own re would take longer than the universe has."""
    path = tmp_path / "map"
    path.write_text("/^(([a-z])+)+[0-9]$/ bob\n/^(a+)+$/ bob\n/^(a|aa)+!$/ bob\n")
    assert places(routes(f"regexp:{path}"), f"{'a' * 60}@here.test") == ["5.1.1"]


@pytest.mark.parametrize("said", ["a b@far.test", "<alice>", "x@", "alice, x@far.test y"])
def test_a_value_that_is_no_address_makes_all_void(said: str, routes: Callable[..., Routes],
                                                   tmp_path: Path) -> None:
    assert "not an address" in failure(
        routes(database(tmp_path / "db", ("a@here.test", said))), "a@here.test")


def test_what_a_bracket_matched_is_one_value(routes: Callable[..., Routes], tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("/^(.*)@here.test/ $1@far.test\n")
    assert places(routes(f"regexp:{path}"), '"a,bob@here.test"@here.test') != ["LOCAL:bob"]


@pytest.mark.parametrize(("body", "told"), [
    ("echo bob; exit 75", "ended with 75"), ("kill -9 $$", "ended with -9"),
    ("head -c 100000 /dev/zero", "65536 bytes"), ("printf '\\377'", "UTF-8"),
    ("echo no address at all", "not an address"),
])
def test_a_command_that_fails_has_mail_wait(body: str, told: str, routes: Callable[..., Routes]
                                            ) -> None:
    assert told in failure(routes(command(body)), "bob@here.test")


def test_a_command_that_is_gone(routes: Callable[..., Routes], tmp_path: Path) -> None:
    assert "s0" in failure(routes(f"command:{USER} {tmp_path}/none {{address}}"), "bob@here.test")


def test_an_address_is_never_an_option_of_a_map(routes: Callable[..., Routes]) -> None:
    assert places(routes(command("echo bob")), "-x@here.test") == ["5.1.1"]


def test_a_command_without_end_costs_its_time(routes: Callable[..., Routes]) -> None:
    before = set(threading.enumerate())
    found = routes(command("sleep 1000 & sleep 1000"), more="[router]\nmap_timeout_s = 1\n")
    failure(found, "bob@here.test")
    found.close()
    for each in set(threading.enumerate()) - before:
        each.join(WAIT_S)
        assert not each.is_alive(), "it was killed, with its children, who held its output"


@pytest.mark.parametrize(("statement", "told"), [
    ("select none from alias where address = :address", "no such column"),
    ("select 1 where :address > ''", "not text"),
    ("delete from alias where address = :address", "prohibited"),
    ("attach :address as x", "authorized"), ("select load_extension(:address)", "authorized"),
    ("select hex(zeroblob(100000)) where :address > ''", "too big"),
    ("with recursive n(x) as (select 1 union all select x + 1 from n) select 'bob' from n "
     "where :address > ''", "more than 100"),
])
def test_a_statement_that_fails_has_mail_wait(statement: str, told: str, tmp_path: Path,
                                              routes: Callable[..., Routes]) -> None:
    database(tmp_path / "db")
    said = failure(routes(f"sqlite:{tmp_path / 'db'} {statement}"), "bob@here.test")
    assert told in said or "not authorized" in said


def test_a_statement_without_end_is_stopped(routes: Callable[..., Routes], tmp_path: Path) -> None:
    database(tmp_path / "db")
    before = set(threading.enumerate())
    statement = ("with recursive n(x) as (select 1 union all select x + 1 from n) "
                 "select 'bob' from n where x < 0 and :address > ''")
    found = routes(f"sqlite:{tmp_path / 'db'} {statement}", more="[router]\nmap_timeout_s = 1\n")
    failure(found, "bob@here.test")
    assert found.recipient_maps is not None
    found.close()
    for each in set(threading.enumerate()) - before:
        each.join(WAIT_S)
        assert not each.is_alive(), "SQLite was stopped, too"


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 100])
def test_a_database_that_is_none(content: bytes | None, routes: Callable[..., Routes],
                                 tmp_path: Path) -> None:
    path = tmp_path / "db"
    if content is not None:
        path.write_bytes(content)
    failure(routes(f"sqlite:{path} select a from b where a = :address"), "bob@here.test")
    assert path.exists() == (content is not None), "none is made"


def test_maps_that_lead_on_without_end(routes: Callable[..., Routes], tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("/^(.*)@here.test$/ $1x@here.test\n")
    assert "without end" in failure(routes(f"regexp:{path}"), "a@here.test")
    path.write_text("/^a@/ b@here.test\n/^b@/ a@here.test\n")
    assert places(routes(f"regexp:{path}"), "a@here.test") == ["5.4.6"]
    assert MAPPED_MAX == 100


# what changes under way


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "map"
    source = map_sources.FileMap("m", watched_file.Watched("m", path),
                                 map_sources.recipient_problem)
    path.write_text("a@here.test alice\n")
    assert source.look_up("a@here.test", 1.0) == ("alice",)
    path.write_text("a@here.test b")
    with pytest.raises(MapFailed, match="half written"):
        source.look_up("a@here.test", 1.0)
    path.write_text("a@here.test bob, x@far.test\n")
    assert source.look_up("a@here.test", 1.0) == ("bob", "x@far.test")
    path.unlink()
    with pytest.raises(MapFailed, match="cannot be read"):
        source.look_up("a@here.test", 1.0)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    path, stamps = tmp_path / "map", iter([(1,), (2,)])
    path.write_text("a@here.test alice\n")
    monkeypatch.setattr(watched_file, "_stamp", lambda descriptor: next(stamps))
    with pytest.raises(MapFailed, match="changes while"):
        watched_file.Watched("m", path).content(str)


# what is bounded


class Slow:
    """A source that answers when it may."""

    name = "slow"

    def __init__(self, *, holds: bool = True) -> None:
        self.asked, self.may = list[str](), threading.Event()
        self.began = threading.Semaphore(0)
        if not holds:
            self.may.set()

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        self.asked.append(key)
        self.began.release()
        assert self.may.wait(WAIT_S)
        if key == "bug":
            raise RuntimeError("of a library")
        return (key.upper(),)


def test_one_that_hangs_costs_its_time_and_no_more_threads_than_allowed() -> None:
    slow, before = Slow(), set(threading.enumerate())
    maps = Maps([slow], timeout_s=0.05, at_once=2)
    for number in range(6):
        with pytest.raises(MapFailed, match="no answer in"):
            maps.ask(f"k{number}")
    slow.may.set()
    maps.close()
    for each in set(threading.enumerate()) - before:
        each.join(WAIT_S)
    # Which two: one that has not begun before its time was over is not asked for any more.
    assert 0 < len(slow.asked) <= 2, "and nobody asks for those that nobody waits for"


def test_maps_that_are_closed_answer_who_still_has_them() -> None:
    """A reload closes maps that a session is about to ask; the next reload may do so while it is
    asked. Nobody waits for his time, and no thread is left."""
    slow, before = Slow(holds=False), set(threading.enumerate())
    maps = Maps([slow], timeout_s=WAIT_S, at_once=2)
    maps.close()
    assert maps.ask("never asked before") == ("NEVER ASKED BEFORE",)
    maps = Maps([slow], timeout_s=WAIT_S, at_once=2)
    for number in range(10):
        assert maps.ask(f"a{number}")
        if number == 4:
            maps.close()
            assert ended(before) == set()
    assert ended(before) == set()
    maps.close()
    assert maps.ask("z") == ("Z",) and ended(before) == set()


def test_maps_that_close_while_many_ask() -> None:
    """Each gets an answer: those that are asked, those that wait for a thread, and who comes
    behind."""
    slow, before = Slow(), set(threading.enumerate())
    maps, found = Maps([slow], timeout_s=WAIT_S, at_once=2), list[object]()
    clients = [threading.Thread(target=lambda key=f"k{number}": found.append(maps.ask(key)))
               for number in range(8)]
    for each in clients:
        each.start()
    for _ in range(2):
        assert slow.began.acquire(timeout=WAIT_S)
    maps.close()
    slow.may.set()
    for each in clients:
        each.join(WAIT_S)
    assert sorted(map(str, found)) == sorted(str((f"K{number}",)) for number in range(8))
    assert ended(before) == set()


def test_without_a_thread_the_look_up_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = Maps([Slow(holds=False)], timeout_s=WAIT_S)

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(MapFailed, match="can't start new thread"):
            maps.ask("a")
    assert maps.ask("b") == ("B",)
    maps.close()


def ended(before: set[threading.Thread]) -> set[threading.Thread]:
    """Those that still run, when they have had time enough to end."""
    for each in set(threading.enumerate()) - before:
        each.join(WAIT_S)
    return set(threading.enumerate()) - before


def test_answers_are_remembered_and_failures_for_a_moment() -> None:
    slow = Slow(holds=False)
    maps = Maps([slow])
    with pytest.raises(MapMissing):
        maps.known("a")
    assert maps.ask("a") == maps.ask("a") == maps.known("a") == ("A",)
    for _ in range(2):
        with pytest.raises(MapFailed, match="RuntimeError"):
            maps.ask("bug")
    assert slow.asked == ["a", "bug"]
    maps.close()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omq.services.mail.maps.KNOWN_MAX", 3)
    slow = Slow(holds=False)
    maps = Maps([slow])
    for each in "abcd":
        maps.ask(each)
    maps.known("b")
    with pytest.raises(MapMissing):
        maps.known("a")
    maps.close()


# routes.conf, the router


@pytest.mark.parametrize(("line", "told"), [
    ("nonsense", "not a map"), ("file:map", "not a map"), ("file:/a b", "space"),
    ("sqlite:/db", "not a statement"), ("sqlite:/db select 1", "not a statement"),
    ("command:root /bin/true", "cannot run"), ("command:nobody true", "absolute"),
    ("ldap:/none", "cannot be read"),
])
def test_a_wrong_line_is_refused_with_its_number(line: str, told: str, conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text(f"[recipient_maps]\n\nm = {line}\n")
    with pytest.raises(ConfigError, match=told) as caught:
        load_routes(conf_dir)
    assert ":3:" in str(caught.value) or "/none" in str(caught.value)


@pytest.mark.parametrize("module", ["re2", "ldap3"])
def test_a_package_that_is_missing(module: str, conf_dir: Path, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    monkeypatch.setattr("omq.services.mail.map_file.find_spec", lambda name: None)
    kind = "regexp" if module == "re2" else "ldap"
    (conf_dir / "routes.conf").write_text(f"[recipient_maps]\nm = {kind}:/m\n")
    with pytest.raises(ConfigError, match=r"omq-base\[maps\]"):
        load_routes(conf_dir)


def test_mail_waits_at_the_router_for_a_map(
        service: Callable[..., Any], message: Callable[..., Any],
        logged: Callable[[], list[int]], tmp_path: Path) -> None:
    path = tmp_path / "map"
    router = service(RouterService, "router", f"{LOCAL}[recipient_maps]\nm = file:{path}\n")
    waits = message(b"To: a@here.test\r\n\r\n", {"mail.from": "s@far.test",
                                                "mail.to": "a@here.test\nx@far.test"})
    other = message(b"To: x@far.test\r\n\r\n", {"mail.from": "s@far.test", "mail.to": "x@far.test"})
    first, second = router.handle_many([waits, other])
    assert isinstance(first, Defer) and isinstance(second, Move)
    assert second.new[0].queues == ("UNIX",), "its neighbour goes on"
    assert logged().count(1521) == 1
    path.write_text("a@here.test alice\n")
    router.reload()
    (moved,) = router.handle_many([waits])
    assert isinstance(moved, Move)
    new, blind = moved.new
    assert new.properties["mail.to.LOCAL"] == "alice"
    assert new.properties["mail.orig.LOCAL"] == "a@here.test"
    assert blind.properties["mail.to.UNIX"] == "x@far.test"


def test_names_of_senders(tmp_path: Path) -> None:
    assert not map_sources.sender_problem("*") and not map_sources.sender_problem("@a.test")
    assert not map_sources.sender_problem("a@b.test")
    for each in ("a", "@a@b", "@a b", "a b@c.test", "@"):
        assert map_sources.sender_problem(each)

