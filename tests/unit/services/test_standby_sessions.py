"""Both sides of a standby's line, and the bytes between them: who is refused, and what is believed
of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import cast

import pytest

from omq.base.errors import DiskError, SpoolFull, SpoolLocked, StreamBroken
from omq.base.paths import SpoolPaths
from omq.core.standby.replica import Replica
from omq.format.standby import HEAD, Piece, PieceKind, Synced
from omq.services.standby import primary as serving
from omq.services.standby.base_receiving import BaseReceiving
from omq.services.standby.line import Line
from omq.services.standby.next_journal_file import Preparing
from omq.services.standby.receiving import Receiving
from omq.services.standby.sending import HELD_S, Sending
from omq.services.standby.stream import Outgoing, PieceReader
from omq.services.standby.synced_to_manager import SyncedToManager
from omq.storage import durable, spool, standby_holds
from omq.storage.disk import Disk
from omq.storage.instance_file import Instance, Role
from omq.storage.journal_reader import load_file, read_entry
from omq.storage.mirror_start import adopt
from omq.storage.spool import SpoolInfo, create_spool, make_directories, open_spool
from tests.unit.storage.world import BROKEN, FULL, PAGE, SETTINGS, Journal, use_faulty

PIECES = [Piece(PieceKind.BLOCK, 3, i, 10 * i, 20 * i, 5, bytes([i]) * (37 * i)) for i in range(6)]


def sent(pieces: list[Piece]) -> list[bytes]:
    out = Outgoing()
    return [b"".join(map(bytes, out.encode(piece))) for piece in pieces]


def received(data: bytes, chance: Random | None = None) -> list[Piece]:
    """As it arrives in pieces of any size."""
    reader, found = PieceReader(), []
    while data:
        step = chance.randint(1, 200) if chance else len(data)
        found += list(reader.feed(data[:step]))
        data = data[step:]
    return found


def test_a_stream_arrives_however_it_is_cut() -> None:
    for seed in range(20):
        assert received(b"".join(sent(PIECES)), Random(seed)) == PIECES


@pytest.mark.parametrize("how", ["flip", "double", "drop", "swap", "length", "kind", "old"])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_nothing_is_believed_behind_the_first_piece_that_is_not_the_next(how: str, at: int) -> None:
    raw = sent(PIECES)
    if how == "flip":
        raw[at] = raw[at][:-1] + bytes([raw[at][-1] ^ 1])
    elif how == "double":
        raw.insert(at, raw[at])
        at += 1
    elif how == "drop":
        del raw[at]
    elif how == "swap":
        raw[at], raw[at + 1] = raw[at + 1], raw[at]
    elif how == "length":
        raw[at] = raw[at][:28] + (1 << 31).to_bytes(4, "little") + raw[at][32:]
    elif how == "kind":
        raw[at] = raw[at][:10] + b"\x63" + raw[at][11:]
    else:
        raw[at] = sent([*PIECES[at : at + 1]])[0] if at else bytes(HEAD.size)
    reader, found = PieceReader(), []
    with pytest.raises(StreamBroken):
        for each in raw:
            found += list(reader.feed(each))
    assert found == PIECES[:at]
    with pytest.raises(StreamBroken):
        list(reader.feed(raw[-1]))


@pytest.fixture(autouse=True)
def _real_disk_again() -> Iterator[None]:
    yield
    durable.use(Disk())


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    return create_spool(tmp_path / "primary")


@pytest.fixture
def primary(info: SpoolInfo) -> Iterator[tuple[Journal, Sending]]:
    writer = Journal(info)
    writer.put(b"1")
    sending = Sending(info.paths, Instance(info.uuid, 3, Role.PRIMARY, "a"))
    yield writer, sending
    sending.close()
    writer.writer.close()


def hello(info: SpoolInfo, term: int = 3, said: dict[str, object] | None = None) -> Piece:
    mark = Synced(info.uuid, 1, 1, 0, 1, PAGE, 0)
    who = {"uuid": info.uuid.hex(), "member": "b"} | (said or {})
    return Piece(PieceKind.HELLO, term, 1, payload=mark.encode() + json.dumps(who).encode())


def test_a_standby_is_let_in_and_its_files_are_kept(info: SpoolInfo,
                                                    primary: tuple[Journal, Sending]) -> None:
    _, sending = primary
    assert sending.turn(1, 1 << 20) == [], "nothing before it is agreed"
    (said,) = sending.take(hello(info), 1)
    assert (said.kind, said.durable, sending.member) == (PieceKind.FOLLOW, 1, "b")
    assert [p.kind for p in sending.turn(1, 1 << 20)] == [PieceKind.BLOCK]
    assert standby_holds.load(info.paths) == {"b": 1}
    sending.take(Piece(PieceKind.ACK, 3, 2, lsn=1, durable=1), 1)
    assert standby_holds.load(info.paths) == {"b": 2} and sending.synced == 1


def test_a_note_that_finds_no_room_stops_no_standby(
        info: SpoolInfo, primary: tuple[Journal, Sending], monkeypatch: pytest.MonkeyPatch
        ) -> None:
    """Whoever makes room on a full primary waits for its standby; the note is made later."""
    _, sending = primary
    sending.take(hello(info), 1)
    ack = Piece(PieceKind.ACK, 3, 2, lsn=1, durable=1)
    with monkeypatch.context() as full:
        def refuse(paths: SpoolPaths, member: str, number: int, *, patience_s: float) -> bool:
            raise SpoolFull(path=paths.root, detail="full")

        full.setattr(standby_holds, "note", refuse)
        assert sending.take(ack, 1) == []
        assert (sending.synced, standby_holds.load(info.paths)) == (1, {"b": 1})
    sending._held = 2, 0.0  # its time is over
    sending.take(ack, 1)
    assert standby_holds.load(info.paths) == {"b": 2}


def test_a_note_that_somebody_else_holds_up_stops_no_standby(
        info: SpoolInfo, primary: tuple[Journal, Sending], monkeypatch: pytest.MonkeyPatch
        ) -> None:
    """Clients wait for its acknowledgements; at its greeting nobody does, and it is told."""
    _, sending = primary
    sending.take(hello(info), 1)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits for the lock"))
    ack = Piece(PieceKind.ACK, 3, 2, lsn=1, durable=1)
    with closing(spool.lock(info.paths.standbys_lock, "somebody who hangs")):
        assert sending.take(ack, 1) == []
        assert (sending.synced, standby_holds.load(info.paths)) == (1, {"b": 1})
        with pytest.raises(SpoolLocked):
            standby_holds.note(info.paths, "b", 2, patience_s=0.0)
    sending._held = 2, 0.0  # its time is over
    sending.take(ack, 1)
    assert standby_holds.load(info.paths) == {"b": 2}


def test_what_is_being_synced_is_sent_and_not_said_to_be_durable(
        info: SpoolInfo, primary: tuple[Journal, Sending]) -> None:
    writer, sending = primary
    sending.take(hello(info), 1)
    sending.turn(1, 1 << 20)
    writer.put(b"2")
    assert sending.turn(1, 1 << 20) == []
    (block,) = sending.turn(1, 1 << 20, written=2)
    assert (block.kind, block.lsn, block.durable) == (PieceKind.BLOCK, 2, 1)


class Lines:
    """A line on which these come, a list at each wait; `waits`: how long each was."""

    peer, silence_s, other_ready = "b", 30.0, True

    def __init__(self, *answers: list[Piece]) -> None:
        self.answers, self.sent, self.waits = list(answers), list[Piece](), list[float]()

    def send(self, piece: Piece) -> None:
        self.sent.append(piece)

    def receive(self, timeout_s: float, other: int | None = None) -> list[Piece]:
        assert other is None
        self.waits.append(timeout_s)
        return self.answers.pop(0) if self.answers else []


class Told:
    """The manager, which has told of so much; `said`: what it was told."""

    descriptor, durable, written, within = None, 1, 0, 0

    def __init__(self) -> None:
        self.said: list[int] = []

    def turn(self, member: str, synced: int, *, hears: bool = True) -> None:
        del hears
        assert member == "b"
        self.said.append(synced)

    def close(self) -> None:
        self.said.append(-1)


def test_a_sender_that_has_sent_all_waits_at_once_and_passes_an_answer_on(
        info: SpoolInfo, primary: tuple[Journal, Sending], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = primary
    writer.put(b"2")
    ack = Piece(PieceKind.ACK, 3, 1, lsn=1, durable=1)
    lines, told = Lines([hello(info)], [ack]), Told()
    made = serving.Primary(info.paths, Instance(info.uuid, 3, Role.PRIMARY, "a"),
                           cast(Line, lines), 0.5, sync=True)
    made._attached = cast(SyncedToManager, told)
    made._turn()
    assert told.said == [], "nobody follows yet"
    made._turn()
    assert [each.kind for each in lines.sent if each.kind is not PieceKind.DURABLE] == [
        PieceKind.FOLLOW, PieceKind.BLOCK]
    assert lines.waits == [0.5, 0.5], "one wait a turn, and not a look first"
    assert told.said == [0, 1], "within the turn in which it came"
    monkeypatch.setattr(serving, "BYTES_MAX", 1)
    told.durable = 2
    made._turn()
    assert lines.waits[2:] == [0], "there may be more to send"
    made._turn()
    assert lines.waits[3:] == [0.5]
    made._sending.close()
    made._look.close()


@pytest.mark.parametrize(("piece", "reason"), [
    ({"uuid": "00" * 16}, "it is of the instance 0000"), ({"member": "a"}, "another member"),
    ({"member": "a/b"}, "another member"), ({"member": ""}, "another member"),
    ({"uuid": 5}, "instance 5"),
])
def test_a_stranger_is_refused(info: SpoolInfo, primary: tuple[Journal, Sending],
                               piece: dict[str, object], reason: str) -> None:
    with pytest.raises(StreamBroken, match=reason):
        primary[1].take(hello(info, said=piece), 1)
    assert not primary[1].following and primary[1].turn(1, 1 << 20) == []
    assert standby_holds.load(info.paths) == {}


def test_what_is_kept_for_a_standby_is_looked_at_once_a_second(
        info: SpoolInfo, primary: tuple[Journal, Sending], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may wait for each acknowledgement; and who was forgotten by mistake is noted again.
    """
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    _, sending = primary
    sending.take(hello(info), 1)
    standby_holds.note(info.paths, "b", None)
    sending.take(Piece(PieceKind.ACK, 3, 1, lsn=1, durable=1), 1)
    assert standby_holds.load(info.paths) == {}
    now[0] += HELD_S
    sending.take(Piece(PieceKind.ACK, 3, 1, lsn=1, durable=1), 1)
    assert standby_holds.load(info.paths) == {"b": 1}


def test_a_standby_says_why_it_cannot_go_on(info: SpoolInfo, primary: tuple[Journal, Sending]
                                            ) -> None:
    primary[1].take(hello(info), 1)
    with pytest.raises(StreamBroken, match="it cannot go on: no disk space"):
        primary[1].take(Piece(PieceKind.REFUSE, 3, payload=b"no disk space"), 1)


def made_standby(info: SpoolInfo, root: Path) -> Receiving:
    """It has the primary's first file, without a block."""
    other = create_spool(root, info.uuid)
    (other.paths.journal / "0000000001.jnl").write_bytes(
        load_file(info.paths.journal / "0000000001.jnl")[:PAGE].ljust(64 * PAGE, b"\0"))
    header = read_entry(info.paths, 1, info.uuid).header
    assert header is not None
    adopt(other.paths, info.uuid, Synced(info.uuid, 1, 1, 0, header.epoch, PAGE, 0))
    return Receiving(other.paths, Instance(info.uuid, 3, Role.STANDBY, "b", "x"),
                     Replica(other.paths, info.uuid, SETTINGS))


def test_a_line_that_breaks_in_the_middle_of_a_group_is_gone_on_with(
        info: SpoolInfo, primary: tuple[Journal, Sending], tmp_path: Path) -> None:
    """What was taken and not acknowledged is written: the next connection begins behind it."""
    writer, sending = primary
    for body in (b"2", b"3"):
        writer.put(body)
    standby = made_standby(info, tmp_path / "standby")
    (said,) = sending.take(standby.hello(), 3)
    standby.take(said)
    for piece in sending.turn(3, 1 << 20)[:2]:
        standby.take(piece)
    again = Sending(info.paths, Instance(info.uuid, 3, Role.PRIMARY, "a"))
    (said,) = again.take(standby.hello(), 3)
    standby.take(said)
    assert again.synced == 2
    for piece in again.turn(3, 1 << 20):
        standby.take(piece)
    assert standby.settle().durable == 3
    again.close()
    standby.close()


@pytest.mark.parametrize("how", ["full", "fails"])
def test_the_next_journal_file_is_made_aside(tmp_path: Path, how: str) -> None:
    info = create_spool(tmp_path / "spool")
    preparing = Preparing(info.paths, SETTINGS)
    preparing.wait()
    disk = use_faulty(create=FULL if how == "full" else BROKEN)
    preparing.begin()
    if how == "full":
        preparing.wait()  # there is room in the file that is open
        assert durable.latched() is None
        disk.failures.clear()
        preparing.begin()
        preparing.wait()
        assert (info.paths.journal / "next.jnl").stat().st_size == SETTINGS.journal_file_bytes
    else:
        with pytest.raises(DiskError):
            preparing.wait()
        preparing.wait()  # it was said


def test_garbage_for_a_greeting(info: SpoolInfo, primary: tuple[Journal, Sending]) -> None:
    for payload in (b"", b"{}", hello(info).payload[:50], bytes(200), b"[" * 100_000,
                    bytes(hello(info).payload)[:96] + b"[1]"):
        with pytest.raises(StreamBroken):
            primary[1].take(Piece(PieceKind.HELLO, 3, 1, payload=payload), 1)
    for kind in (PieceKind.ACK, PieceKind.BLOCK, PieceKind.FOLLOW):
        with pytest.raises(StreamBroken, match="does not say"):
            primary[1].take(Piece(kind, 3), 1)


def test_a_later_term_ends_a_primary_and_an_earlier_one_a_standby(
        info: SpoolInfo, primary: tuple[Journal, Sending], tmp_path: Path) -> None:
    writer, sending = primary
    with pytest.raises(StreamBroken, match="another member was promoted since"):
        sending.take(hello(info, term=4), 1)
    assert sending.superseded == 4
    other = create_spool(tmp_path / "standby", info.uuid)
    (other.paths.journal / "0000000001.jnl").write_bytes(
        load_file(writer.info.paths.journal / "0000000001.jnl")[:PAGE].ljust(64 * PAGE, b"\0"))
    header = read_entry(info.paths, 1, info.uuid).header
    assert header is not None
    adopt(other.paths, info.uuid, Synced(info.uuid, 1, 1, 0, header.epoch, PAGE, 0))
    with closing(Receiving(other.paths, Instance(info.uuid, 4, Role.STANDBY, "b", "x"),
                           Replica(other.paths, info.uuid, SETTINGS))) as standby:
        with pytest.raises(StreamBroken, match="a later one of term 4 is known here"):
            standby.take(Piece(PieceKind.FOLLOW, 3))
        with pytest.raises(StreamBroken, match="before it is agreed"):
            standby.take(Piece(PieceKind.BLOCK, 4))
        assert standby.take(Piece(PieceKind.FOLLOW, 6, durable=0)) is None
        assert open_spool(other.paths.root).instance.term == 6, "noted before anything counts"
        with pytest.raises(StreamBroken, match="term 6 is known here"):
            standby.take(Piece(PieceKind.DURABLE, 5))


@pytest.mark.parametrize("name", ["../../etc/passwd", "instance.json", "msgpool/lock", "/etc/x",
                                  "msgpool/100QP", "store/1.sto", "journal/synced", "conf/omq.conf",
                                  "msgpool/../run/x"])
def test_a_copy_writes_pool_and_store_files_alone(tmp_path: Path, name: str) -> None:
    info = create_spool(tmp_path / "spool")
    make_directories(info.paths)
    raw = name.encode()
    with pytest.raises(StreamBroken, match="a copy of"):
        BaseReceiving(info.paths).take(Piece(PieceKind.COPY, 0, len(raw), 0, 3,
                                             payload=raw + b"abc"))


def test_what_a_standby_needs_is_kept_within_bounds(info: SpoolInfo) -> None:
    assert standby_holds.needed(info.paths, 100, 10) == 101
    standby_holds.note(info.paths, "b", 95)
    standby_holds.note(info.paths, "c", 40)
    assert standby_holds.needed(info.paths, 100, 10) == 95, "c is too far behind"
    assert standby_holds.needed(info.paths, 100, 60) == 40
    assert not standby_holds.note(info.paths, "b", 95) and standby_holds.note(info.paths, "b", None)
    assert standby_holds.needed(info.paths, 100, 10) == 101
    for text in ("", "[]", '{"b": "x"}', '{"b": true}', "\xff"):
        (info.paths.root / standby_holds.NAME).write_text(text, encoding="latin-1")
        assert standby_holds.needed(info.paths, 100, 10) == 90, "what cannot be read keeps all"
