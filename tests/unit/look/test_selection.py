"""The terms of --where: what each chooses, what is refused, and the rule of ids."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.base.errors import BadRequest, InputUnreadable
from omq.core.engine.puts import NewMessage
from omq.core.index.view import IndexView
from omq.core.look import payload_scan
from omq.core.look.look import look
from omq.core.look.selection import parse
from omq.core.look.stored import StoredMessages, message_id
from omq.format.wire import Settlement
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.unit.engine.world import NS, A, B, World, make_named


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_named(tmp_path / "spool")
    made.put(A, body=b"x" * 10, priority=9)
    made.put(A, body=b"x" * 2000, priority=4)
    made.put(A, B, body=b"both", priority=4)
    put(made, Outgoing(body=b"named", priority=2, properties={"customer": "42", "kind": "a b"},
                       message_id=b"my own id"))
    (first,) = made.give(1)
    made.settle(Settlement.FAIL, first)
    made.wall += 7200 * NS
    made.put(B, body=b"young")
    return made


def put(world: World, message: Outgoing) -> int:
    encoded = encode_outgoing(message, (A,), 0, world.info.paths, 1 << 18, "test")
    world.sequence += 1
    world.begin()
    qpool = world.engine.put(world.putter, NewMessage(
        encoded.queue, encoded.priority, encoded.flags, encoded.size, encoded.crc,
        encoded.correlation, encoded.key, encoded.expiry, encoded.parts,
        memoryview(encoded.payload)), world.sequence)
    world.engine.commit()
    return qpool


def chosen(world: World, *terms: str, queue: str | None = None) -> list[tuple[int, str]]:
    """(QPoolId, queue) by the tables; the files must say the same."""
    out = []
    with IndexView.of(world.core.t, world.info.paths) as view:
        out.append([(row.message.qpool, row.queue) for row in parse(*terms).rows(
            view, world.info.paths, world.info.uuid, world.wall, queue)])
    with look(world.info.paths) as seen:
        out.append([(row.message.qpool, row.queue) for row in parse(*terms).rows(
            seen.view, world.info.paths, world.info.uuid, world.wall, queue)])
    assert out[0] == out[1]
    return out[0]


@pytest.mark.parametrize(("terms", "expected"), [
    ("", [1, 2, 3, 4, 3, 5]), ("queue=B", [3, 5]), ("queue!=B", [1, 2, 3, 4]),
    ("queue=a,b", [1, 2, 3, 4, 3, 5]), ("queue~[AC]", [1, 2, 3, 4]), ("queue!~A*", [3, 5]),
    ("priority>=4", [1, 2, 3, 3, 5]), ("priority=2,9", [1, 4]), ("priority!=4", [1, 4]),
    ("size>1K", [2]), ("size<=10", [1, 3, 4, 3, 5]), ("age>1h", [1, 2, 3, 4, 3]), ("age<2h", [5]),
    ("attempts>0", [1]), ("attempts=0 queue=A", [2, 3, 4]), ("queues=2", [3, 3]),
    ("pid=101 and queue=B", [3, 5]), ("persistent=no", []), ("replayed=no queue=B", [3, 5]),
    ("lsn>0 queue=B", [3, 5]), ("property:customer", [4]), ("property:customer=41,42", [4]),
    ("property:customer!=42 queue=B", [3, 5]), ("'property:kind=a b'", [4]),
    ("property:kind~a*", [4]), ("id=3,5", [3, 3, 5]), ("id=3 queue=B", [3])])
def test_terms(world: World, terms: str, expected: list[int]) -> None:
    assert [qpool for qpool, _ in chosen(world, terms)] == expected


MAIL = (b"From: Al <al@example.com>\r\nSubject: an\r\n  invoice (late)\r\nX-Kind:"
        b" =?utf-8?q?gr=C3=BCn?=\r\n\r\nbody: subject")


@pytest.mark.parametrize(("terms", "expected"), [
    ("priority=9 or priority=2", [1, 4]), ("priority=9 or priority=4 size>1K", [1, 2]),
    ("(priority=9 or priority=4) and size>1K", [2]), ("((priority=9)or(size>1K))", [1, 2]),
    ("queue=B or property:customer=42", [4, 3, 5]), ("id=1 or id=5", [1, 5]),
    ("(id=1,2 or id=5) queue=B", [5]), ("property:customer=42 or priority=9", [1, 4]),
    ("property:customer=42 property:kind=b", []), ("property:customer!=42 or id=4", [
        1, 2, 3, 4, 3, 5])])
def test_or_and_parentheses(world: World, terms: str, expected: list[int]) -> None:
    assert [qpool for qpool, _ in chosen(world, terms)] == expected


@pytest.mark.parametrize("terms", [
    "sender=al@example.com", "sender~*@example.com", "sender!=x sender!~test", "recipient=bo@x.org",
    "recipient~cy*", "'subject=an invoice (late)'", "subject~*voice*", "'subject~*an inv*'",
    "header:x-kind=grün", "header:X-Kind~gr?n", "header:From~*al@*",
    "property:mail.from=al@example.com"])
@pytest.mark.parametrize("large", [False, True], ids=("small", "container"))
def test_senders_and_headers(world: World, terms: str, *, large: bool) -> None:
    qpool = put(world, Outgoing(
        body=MAIL + b"y" * (300_000 if large else 0), priority=0,
        properties={"mail.from": "al@example.com", "mail.to": "bo@x.org\ncy@x.org"}))
    found = [qpool for qpool, _ in chosen(world, f"({terms}) priority=0")]
    assert found == [qpool]
    if "!" not in terms:
        assert [each for each, _ in chosen(world, terms)] == [qpool]
        assert chosen(world, f"{terms}x") == []


def test_the_sender_of_what_is_no_mail_is_its_application(world: World) -> None:
    assert len(chosen(world, "sender=test")) == len(chosen(world, "sender~te*")) == 3
    assert len(chosen(world, "sender!=test")) == 3, "these have none"


@pytest.mark.parametrize("alone", [0, 1 << 40], ids=("several processes", "one"))
def test_the_sieve_lets_nobody_through_its_fingers(
        world: World, monkeypatch: pytest.MonkeyPatch, alone: int) -> None:
    """Whatever the windows and processes: as if each message were read by itself."""
    monkeypatch.setattr(payload_scan, "ALONE_BYTES_MAX", alone)
    monkeypatch.setattr(payload_scan, "WINDOW_BYTES", 512)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    ids = [put(world, Outgoing(body=b"z" * (n * 37 % 900), priority=0,
                               properties={"n": str(n), "odd": "yes" if n % 2 else "no"}))
           for n in range(60)]
    for n in (0, 17, 59):
        assert chosen(world, f"property:n={n} priority=0") == [(ids[n], "A")]
    assert [qpool for qpool, _ in chosen(world, "property:odd=yes")] == ids[1::2]


def test_a_payload_that_cannot_be_read_matches_nothing_and_hides_nobody(world: World) -> None:
    file = next(world.info.paths.journal.glob("0*.jnl"))
    raw = bytearray(file.read_bytes())
    at = raw.find(b"customer")
    raw[at] ^= 0xFF
    file.write_bytes(raw)
    with IndexView.of(world.core.t, world.info.paths) as view:
        for terms, count, unread in (("property:customer", 0, 0), ("property:kind", 0, 1),
                                     ("property:none!=x", 5, 1), ("priority>=0", 6, 0)):
            selection = parse(terms)
            found = selection.rows(view, world.info.paths, world.info.uuid, world.wall)
            assert len(list(found)) == count, terms
            assert len(selection.unreadable) == len(list(selection.notes())) == unread, terms


def test_states(world: World) -> None:
    assert chosen(world, "state=held") == [] and len(chosen(world, "state=ready,deferred")) == 6
    world.give(1)
    with IndexView.of(world.core.t, world.info.paths) as view:
        found = parse("state!=ready").rows(view, world.info.paths, world.info.uuid, world.wall)
        assert [row.state.name for row in found] == ["DEFERRED", "ACTIVE"]
        found = parse("attempts>0").rows(view, world.info.paths, world.info.uuid, world.wall)
        assert [row.message.qpool for row in found] == [1], "the attempt under way is not counted"


def test_several_wheres_and_a_queue_must_all_hold(world: World) -> None:
    assert chosen(world, "size>3", "priority=4", queue="B") == [(3, "B"), (5, "B")]
    assert chosen(world, "queue=A", queue="B") == []


def test_ids_in_every_form(world: World, tmp_path: Path) -> None:
    given = b"my own id".ljust(24, b"\0").hex()
    with IndexView.of(world.core.t, world.info.paths) as view:
        (row,) = view.of_message(2)
        stored = StoredMessages(world.info.paths)
        derived = message_id(stored.read(row.message), world.info.uuid, 2).hex()
        stored.close()
    assert chosen(world, f"id={given},{derived}") == [(2, "A"), (4, "A")]
    listed = tmp_path / "ids"
    listed.write_text("2 and more\n\n77\n" + "ab" * 24 + "\n")
    selection = parse(f"id=@{listed}")
    with IndexView.of(world.core.t, world.info.paths) as view:
        found = selection.rows(view, world.info.paths, world.info.uuid, world.wall)
        assert [each.message.qpool for each in found] == [2]
    assert sorted(selection.missing) == ["77", "ab" * 24]


def test_many_ids_are_one_pass(world: World, tmp_path: Path) -> None:
    listed = tmp_path / "ids"
    listed.write_text("".join(f"{n}\n" for n in range(2, 5000)))
    assert [qpool for qpool, _ in chosen(world, f"id=@{listed}")] == [2, 3, 4, 3, 5]


@pytest.mark.parametrize("terms", [
    "colour=red", "size>", "size>1X", "size~1", "state=gone", "age>2y", "queue>A", "priority",
    "id>3", "property:", "(size>1", "size>1)", "or", "size>1 or", "()", "sender", "sender>3",
    "header:x", "header:=1", "'open", "persistent=maybe", "size>-1", "attempts=1,x", "=5",
    "id=" + "x" * 30])
def test_what_is_refused(world: World, terms: str) -> None:
    with IndexView.of(world.core.t, world.info.paths) as view, pytest.raises(BadRequest):
        list(parse(terms).rows(view, world.info.paths, world.info.uuid, world.wall))


def test_a_file_of_ids_that_is_not_there() -> None:
    with pytest.raises(InputUnreadable, match="nowhere"):
        parse("id=@/nowhere/at/all")


@pytest.mark.parametrize(("selector", "expected"), [
    ("customer = '42'", [4]), ("customer = 42", [4]), ("customer <> '42'", []),
    ("NOT customer = '41'", [4]), ("customer IS NULL AND queue = 'B'", [3, 5]),
    ("customer IS NOT NULL OR priority = 9", [1, 4]), ("customer LIKE '4%'", [4]),
    ("kind IN ('a b', 'c')", [4]), ("NOT (customer = '42' OR priority = 9)", []),
    ("priority BETWEEN 5 AND 9 OR customer = '42'", [1, 4]), ("size > 1000", [2]),
    ("size > 1000 AND NOT priority = 9", [2]), ("size / 2 > 500", [2]),
    ("queue = 'B' AND persistent = TRUE", [3, 5]), ("JMSPriority = 9", [1]),
    ("JMSDeliveryMode = 'PERSISTENT' queue=B", [3, 5]),
    ("state = 'ready' AND queue = 'B'", [3, 5]),
    ("age > 3600 AND queue = 'B'", [3]), ("id = 'my' OR id LIKE '4f4d5131%' AND queue = 'B'", [
        3, 5]),
    ("property:customer=42 AND priority < 5", [4]), ("NOT (property:customer queue=A)", [
        1, 2, 3, 5]),
    ("customer = '42' id=3,4", [4]), ("'property:kind=a b' and customer='42'", [4]),
    ("retries = 0 AND pid = 101 AND queue = 'B'", [3, 5]),
    ("correlation IS NULL queue=B", [3, 5]),
    ("sender = 'test' AND customer IS NULL", [3]), ("subject IS NULL queue=B", [3, 5])])
def test_selectors(world: World, selector: str, expected: list[int]) -> None:
    found = sorted({qpool for qpool, _ in chosen(world, selector)})
    assert found == sorted(set(expected)), selector


def test_a_payload_that_cannot_be_read_is_not_found_by_not(world: World) -> None:
    file = next(world.info.paths.journal.glob("0*.jnl"))
    raw = bytearray(file.read_bytes())
    raw[raw.find(b"customer")] ^= 0xFF
    file.write_bytes(raw)
    with IndexView.of(world.core.t, world.info.paths) as view:
        for terms in ("NOT kind = 'x'", "kind IS NULL", "NOT property:kind", "kind <> 'x'"):
            selection = parse(terms)
            found = selection.rows(view, world.info.paths, world.info.uuid, world.wall)
            assert 4 not in [row.message.qpool for row in found], terms
            assert list(selection.unreadable) == [4], terms


@pytest.mark.parametrize("words", [
    "id=@{}", "id=-", "'id=@{}'", '"id=-"', "id=@'{}'", "(NOT id=@{})", "pid=1 or id=@{}"])
def test_no_file_is_read_for_who_is_elsewhere(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A file that blocks who opens it, and a standard input that is none."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadRequest, match="here stand ids alone"):
        parse(words.format(fifo), files=False)
    assert parse("id=1,2", files=False).ids[0].texts == ["1", "2"]
