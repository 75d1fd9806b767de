"""The journal of a standby: what follows is taken, what does not is refused before it is written,
and the position is found again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from omq.base.errors import NewerFormat, SpoolFull, StandbyDiverged, StreamBroken
from omq.format.journal import (
    BLOCK,
    BlockHeader,
    FileHeader,
    FrameFlag,
    decode_block,
    seal_block,
)
from omq.format.standby import Piece, PieceKind, Synced, decode_synced
from omq.storage import durable, journal_newest, journal_synced
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_mirror import JournalMirror
from omq.storage.journal_reader import load_file, read_entry, scan_journal
from omq.storage.journal_source import JournalSource
from omq.storage.mirror_start import adopt, settle
from omq.storage.spool import SpoolInfo, create_spool
from tests.unit.storage.world import FULL, PAGE, Journal, use_faulty


@dataclass
class Both:
    """A primary's journal, and a standby that has its first file without a block."""

    writer: Journal
    source: JournalSource
    mirror: JournalMirror
    info: SpoolInfo

    def pieces(self, up_to: int = 0) -> list[Piece]:
        return self.source.read(up_to or self.writer.writer.durable_lsn, 1 << 20)

    def take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.kind is PieceKind.FILE:
                self.mirror.begin_file(piece.payload)
            elif piece.kind is PieceKind.HOLE:
                self.mirror.skip(piece.number, piece.offset, piece.lsn)
            else:
                self.mirror.write_block(piece.number, piece.offset, piece.payload)
        self.mirror.sync()

    def same(self) -> bool:
        """Do both journals hold the same, up to the mark?"""
        uuid, limit = self.info.uuid, self.mirror.mark.lsn
        mine, theirs = ([(b.number, b.offset, bytes(b.data)) for b in scan_journal(paths, uuid)
                         if b.header.last_lsn <= limit]
                        for paths in (self.info.paths, self.writer.info.paths))
        return mine == theirs


@pytest.fixture
def both(info: SpoolInfo, tmp_path: Path) -> Both:
    writer = Journal(info)
    other = create_spool(tmp_path / "standby", info.uuid)
    page = load_file(info.paths.journal / file_name(1))
    (other.paths.journal / file_name(1)).write_bytes(page)
    header = read_entry(info.paths, 1, info.uuid).header
    assert header is not None
    adopt(other.paths, info.uuid, Synced(info.uuid, 1, 1, 0, header.epoch, PAGE, 0))
    mirror = JournalMirror(other.paths, info.uuid)
    source = JournalSource(info.paths, info.uuid, 0)
    assert source.agree(mirror.mark).kind is PieceKind.FOLLOW
    return Both(writer, source, mirror, other)


def test_everything_arrives_over_files(both: Both) -> None:
    both.writer.put(b"one")
    both.writer.put(b"two", b"x" * 9000)
    both.writer.fill(100)
    both.take(both.pieces())
    assert both.mirror.number > 1 and both.mirror.mark.lsn == both.writer.writer.durable_lsn
    assert both.same() and numbers_in(both.info.paths.journal)[0] == 1
    newest = journal_newest.load(both.info.paths)
    assert newest is not None and newest.number == both.mirror.number


def test_one_sync_for_what_came_together_and_the_mark_later(both: Both) -> None:
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
    pieces = both.pieces()
    _begun(both)
    disk = use_faulty()
    both.take(pieces)
    name = file_name(1)
    assert disk.calls == [*[f"write {name}"] * 3, f"fdatasync {name}"]
    disk.calls.clear()
    both.mirror.sync()
    assert disk.calls == [], "nothing new, nothing written"
    both.mirror.note_soon()
    assert disk.calls == ["write synced"]
    disk.calls.clear()
    both.mirror.note_soon()
    assert disk.calls == [], "once"
    both.mirror.note()
    assert disk.calls == ["write synced", "fdatasync synced"], "before a checkpoint"
    disk.calls.clear()
    both.mirror.note()
    assert disk.calls == []


def test_what_was_acknowledged_is_there_though_no_mark_says_so(both: Both) -> None:
    """A kill comes between the sync and the note: the blocks show by themselves that they count."""
    _begun(both)
    noted = journal_synced.load(both.info.paths)
    for body in (b"1", b"2"):
        both.writer.put(body)
        both.take(both.pieces())
    acknowledged = both.mirror.mark
    assert journal_synced.load(both.info.paths) == noted
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert again.mark.lsn == acknowledged.lsn > 0 and again.mark.offset == acknowledged.offset
    again.close()


def test_a_line_that_is_closed_has_noted_its_mark(both: Both) -> None:
    _begun(both)
    both.writer.put(b"1")
    both.take(both.pieces())
    wanted = both.mirror.mark.lsn
    both.mirror.close()
    found = journal_synced.load(both.info.paths)
    assert isinstance(found, Synced) and found.lsn == wanted > 0


def _begun(both: Both) -> None:
    """The standby is at work: its mark is no more that of the copy, above which nothing counts."""
    both.mirror._note(replace(both.mirror.mark, exact=False))


def test_the_first_group_behind_a_copy_has_a_mark_that_is_synced(both: Both) -> None:
    """What the copy says of what is above it would else count, and take away the group."""
    both.writer.put(b"1")
    pieces = both.pieces()
    disk = use_faulty()
    both.take(pieces)
    assert disk.calls[-2:] == ["write synced", "fdatasync synced"]


def _harmed_payload(piece: Piece) -> Piece:
    """Its submitter has sent a payload with a wrong CRC: the block itself is right."""
    found = decode_block(piece.payload, 0, bytes(piece.payload[16:32]), PAGE)
    assert isinstance(found, BlockHeader)
    data = bytearray(piece.payload)
    data[found.payload_at] ^= 1
    return replace(piece, payload=bytes(data))


def _with_container(piece: Piece, uuid: bytes) -> Piece:
    """Its message is born with a container."""
    found = decode_block(piece.payload, 0, uuid, PAGE)
    assert isinstance(found, BlockHeader)
    data = bytearray(piece.payload)
    data[BLOCK.size + 2] |= int(FrameFlag.CONTAINER)
    seal_block(data, uuid, found)
    return replace(piece, payload=bytes(data))


@pytest.mark.parametrize("how", ["payload", "container"])
def test_what_does_not_show_that_it_is_whole_has_a_mark_that_is_synced(both: Both, how: str
                                                                       ) -> None:
    """And a start takes nothing of the kind behind a mark."""
    both.writer.put(b"1")
    both.writer.put(b"2")
    first, second = both.pieces()
    second = _harmed_payload(second) if how == "payload" else _with_container(
        second, both.info.uuid)
    both.take([first])
    both.mirror.note()
    disk = use_faulty()
    both.take([second])
    assert disk.calls[-2:] == ["write synced", "fdatasync synced"]
    mark = both.mirror.mark
    path = both.info.paths.journal / journal_synced.NAME
    data = bytearray(path.read_bytes())
    data[mark.generation % 2 * 4096 + 20] ^= 1
    path.write_bytes(data)
    both.mirror.close()
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert again.mark.lsn == first.lsn, "the mark was all that said so"


def test_the_slot_of_a_mark_that_was_not_synced_is_written_over(both: Both) -> None:
    """So the other one holds a mark that is on the disk, at any instant."""
    _begun(both)
    first = both.mirror.mark.generation
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
        both.take(both.pieces())
        both.mirror.note_soon()
        assert both.mirror.mark.generation % 2 != first % 2
    both.mirror.note()
    kept = both.mirror.mark.generation
    assert kept % 2 != first % 2
    both.writer.put(b"4")
    both.take(both.pieces())
    both.mirror.note_soon()
    assert both.mirror.mark.generation % 2 != kept % 2


def test_the_limit_is_what_both_disks_have(both: Both) -> None:
    both.writer.put(b"1")
    both.writer.put(b"2")
    for piece in both.pieces():
        both.mirror.write_block(piece.number, piece.offset, piece.payload)
    assert both.mirror.redo_limit == 0, "nothing is synced here"
    both.mirror.sync()
    assert both.mirror.redo_limit == 1, "block 2 says that LSN 1 was durable at the primary"
    both.mirror.note_durable(7)
    assert both.mirror.redo_limit == 2


def _changed(piece: Piece, uuid: bytes, **fields: int) -> Piece:
    """The block with another header, sealed anew."""
    found = decode_block(piece.payload, 0, uuid, PAGE)
    assert isinstance(found, BlockHeader)
    data = bytearray(piece.payload)
    seal_block(data, uuid, replace(found, **fields))
    return replace(piece, payload=bytes(data))


@pytest.mark.parametrize(("fields", "reason"), [
    ({"term": 1}, "block of file 1, term 1"), ({"epoch": 9}, "epoch 9"),
    ({"number": 2}, "block of file 2"), ({"first_lsn": 9}, "LSN 9 follows LSN 1"),
    ({"first_lsn": 1}, "LSN 1 follows LSN 1"), ({"sequence": 5}, "block 5 of its file"),
    ({"sequence": 0}, "block 0 of its file"), ({"durable": 2}, "LSN 2 was durable before it"),
])
def test_a_block_that_does_not_follow_is_refused(both: Both, fields: dict[str, int], reason: str
                                                 ) -> None:
    both.writer.put(b"1")
    both.writer.put(b"2")
    first, second = both.pieces()
    both.take([first])
    before = load_file(both.info.paths.journal / file_name(1))
    with pytest.raises(StreamBroken, match=reason):
        both.take([_changed(second, both.info.uuid, **fields)])
    assert load_file(both.info.paths.journal / file_name(1)) == before
    both.take([second])
    assert both.same()


def test_pieces_that_are_doubled_exchanged_or_missing(both: Both) -> None:
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
    first, second, third = both.pieces()
    both.take([first])
    for wrong in (first, third, replace(second, offset=second.offset + PAGE),
                  replace(second, number=2), replace(second, payload=second.payload[:-1]),
                  replace(second, payload=bytes(second.payload[:-BLOCK.size])),
                  replace(second, payload=b""), replace(second, payload=bytes(PAGE))):
        with pytest.raises(StreamBroken):
            both.take([wrong])
    both.take([second, third])
    assert both.same()


@pytest.mark.parametrize(("fields", "reason"), [
    ({"uuid": bytes(16)}, "it is of the instance"), ({"follows_number": 7}, "it follows file 7"),
    ({"number": 1}, "it follows file 1"), ({"epoch": 0}, "behind term 0, epoch 1"),
    ({"follows_lsn": 99}, "it follows LSN 99, here is LSN 1"),
    ({"first_lsn": 1}, "it begins with LSN 1"), ({"size": 1 << 40}, "bytes in pages"),
    ({"page": 512}, "bytes in pages"),
])
def test_a_file_that_does_not_follow_is_refused(both: Both, fields: dict[str, object], reason: str
                                                ) -> None:
    both.writer.put(b"1")
    both.writer.restart(1)
    both.writer.put(b"2")
    block, file, _ = both.pieces()
    both.take([block])
    header = read_entry(both.writer.info.paths, 2, both.info.uuid).header
    assert isinstance(header, FileHeader)
    page = replace(header, **fields).encode()  # type: ignore[arg-type]
    with pytest.raises(StreamBroken, match=reason):
        both.take([replace(file, payload=page.ljust(PAGE, b"\0"))])
    assert numbers_in(both.info.paths.journal) == [1]


def test_what_the_primary_lost_is_taken_away(both: Both) -> None:
    """It was sent before it was synced, and a power cut took it: the next file follows what is
    left."""
    for body in (b"1", b"2", b"lost", b"lost, too"):
        both.writer.put(body)
    pieces = both.pieces()
    for piece in pieces:
        both.mirror.write_block(piece.number, piece.offset, piece.payload)
    both.mirror.sync()
    both.mirror.durable = 2
    both.writer.restart(2, next_lsn=100)
    both.writer.put(b"3")
    file = both.writer.info.paths.journal / file_name(1)
    with open(file, "r+b") as raw:
        raw.seek(pieces[2].offset)
        raw.write(bytes(2 * PAGE))
    source = JournalSource(both.writer.info.paths, both.info.uuid, 0)
    said = source.agree(both.mirror.mark)
    assert (said.kind, said.number, said.lsn) == (PieceKind.BACK, 1, 2)
    both.mirror.cut(said.lsn)
    assert source.agree(both.mirror.mark).kind is PieceKind.FOLLOW
    both.source = source
    both.take(both.pieces())
    assert both.same() and both.mirror.lsn == 100
    rest = load_file(both.info.paths.journal / file_name(1))[pieces[2].offset :]
    assert not any(rest)


def test_a_primary_that_lost_what_it_had_synced_is_not_followed(both: Both) -> None:
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
    both.take(both.pieces())
    before = both.mirror.mark
    assert both.mirror.redo_limit == 2
    with pytest.raises(StandbyDiverged, match="goes up to LSN 1, and LSN 2 was on its disk"):
        both.mirror.cut(1)
    assert both.mirror.mark == before and decode_synced(
        (both.info.paths.journal / journal_synced.NAME).read_bytes()) == before


def test_a_file_that_the_primary_lost(both: Both) -> None:
    """Its name was not synced when the power failed: it makes another file of that number."""
    both.writer.put(b"1")
    both.take(both.pieces())
    other = FileHeader(both.info.uuid, 2, 2, PAGE, 64 * PAGE, 50, 1, 1, 1, 1)
    both.mirror.begin_file(other.encode())
    assert both.mirror.number == 2
    both.writer.restart(1, next_lsn=60)
    both.writer.epoch += 1
    both.writer.restart(59, next_lsn=70)
    both.writer.put(b"2")
    (both.writer.info.paths.journal / file_name(2)).rename(
        both.writer.info.paths.journal / "gone")
    (both.writer.info.paths.journal / file_name(3)).unlink()
    source = JournalSource(both.writer.info.paths, both.info.uuid, 0)
    said = source.agree(both.mirror.mark)
    assert (said.kind, said.number) == (PieceKind.BACK, 1)
    both.mirror.back(said.number)
    assert numbers_in(both.info.paths.journal) == [1] and both.mirror.lsn == 1
    newest = journal_newest.load(both.info.paths)
    assert newest is not None and newest.number == 1
    assert source.agree(both.mirror.mark).kind is PieceKind.FOLLOW


def test_a_hole_that_is_no_damage_is_passed_on(both: Both) -> None:
    """A block without a sync of its own was lost in a power cut, the synced one behind it not."""
    both.writer.put(b"1")
    both.writer.put(b"not persistent", sync=False)
    both.writer.put(b"3")
    second = list(scan_journal(both.writer.info.paths, both.info.uuid))[1]
    with open(both.writer.info.paths.journal / file_name(1), "r+b") as raw:
        raw.seek(second.offset)
        raw.write(bytes(second.header.length))
    both.writer.restart(3)
    both.writer.put(b"4")
    pieces = both.pieces()
    assert [p.kind.name for p in pieces] == ["BLOCK", "HOLE", "BLOCK", "FILE", "BLOCK"]
    both.take(pieces[:2])
    assert both.mirror.mark.lsn == 1, "a hole alone counts for nothing"
    for wrong in ((1, pieces[1].offset + 1, 2), (2, pieces[1].offset, 2), (1, 0, 2),
                  (1, pieces[1].offset, 1)):
        with pytest.raises(StreamBroken, match="a hole of file"):
            both.mirror.skip(*wrong)
    both.take(pieces[2:])
    assert both.mirror.lsn == 4 and both.same()
    both.mirror.close()
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert again.mark == both.mirror.mark


def test_damage_of_the_primary_is_not_passed_on(both: Both) -> None:
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
    second = list(scan_journal(both.writer.info.paths, both.info.uuid))[1]
    with open(both.writer.info.paths.journal / file_name(1), "r+b") as raw:
        raw.seek(second.offset + 200)
        raw.write(b"\x55" * 8)
    with pytest.raises(StandbyDiverged, match="goes on in this file of its primary"):
        both.pieces()


def _lost_marks(both: Both, since: Synced) -> None:
    """A power cut took what was noted and not synced since then."""
    path = both.info.paths.journal / journal_synced.NAME
    path.write_bytes(bytes(8192))
    file = journal_synced.open_synced(both.info.paths)
    journal_synced.note(file, since)
    file.close()


def test_a_start_finds_what_was_acknowledged_behind_the_mark(both: Both) -> None:
    _begun(both)
    before = both.mirror.mark
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
        both.take(both.pieces())
    acknowledged = both.mirror.mark
    both.mirror.close()
    _lost_marks(both, before)
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert (again.lsn, again.offset, again.mark.last_crc) == (
        acknowledged.lsn, acknowledged.offset, acknowledged.last_crc)
    found = journal_synced.load(both.info.paths)
    assert isinstance(found, Synced) and found.lsn == acknowledged.lsn, "and notes it"
    assert again.durable == 2, "as its blocks say"


@pytest.mark.parametrize("torn", ["header", "payload", "missing"])
def test_a_start_takes_away_what_is_not_whole_and_all_behind_it(both: Both, torn: str) -> None:
    _begun(both)
    before = both.mirror.mark
    for body in (b"1", b"2" * 600, b"3"):
        both.writer.put(body)
    first, second, third = both.pieces()
    both.take([first, second, third])
    both.mirror.close()
    file = both.info.paths.journal / file_name(1)
    data = bytearray(file.read_bytes())
    at = second.offset + {"header": 40, "payload": 300 + 512, "missing": 0}[torn]
    if torn == "missing":
        data[at : at + len(second.payload)] = bytes(len(second.payload))
    else:
        data[at] ^= 1
    file.write_bytes(data)
    _lost_marks(both, before)
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert (again.lsn, again.offset) == (1, second.offset)
    assert not any(load_file(file)[second.offset :])
    assert both.source.agree(again.mark).kind is PieceKind.FOLLOW
    both.mirror = again
    both.take(both.pieces())
    assert both.same() and again.lsn == 3


def test_what_was_given_up_does_not_come_back(both: Both) -> None:
    """The mark went down, and what was above it was not taken away yet: whole blocks."""
    for body in (b"1", b"2", b"3"):
        both.writer.put(body)
    pieces = both.pieces()
    both.take(pieces)
    whole = load_file(both.info.paths.journal / file_name(1))
    both.mirror.note_durable(0)
    both.mirror.durable = 1
    both.mirror.cut(1)
    assert both.mirror.mark.exact
    both.mirror.close()
    (both.info.paths.journal / file_name(1)).write_bytes(whole)
    again = JournalMirror(both.info.paths, both.info.uuid)
    assert again.lsn == 1
    both.mirror = again
    both.take(pieces[1:])
    assert not again.mark.exact and again.lsn == 3


def test_a_mark_of_a_newer_omq_is_left_to_it(both: Both) -> None:
    both.mirror.close()
    path = both.info.paths.journal / journal_synced.NAME
    data = bytearray(path.read_bytes())
    data[both.mirror.mark.generation % 2 * 4096 + 8] = 9
    path.write_bytes(data)
    with pytest.raises(NewerFormat, match="format version 9, but this omq reads versions up to 1"):
        JournalMirror(both.info.paths, both.info.uuid)
    assert path.read_bytes() == data


@pytest.mark.parametrize("damage", ["mark", "both slots", "file", "block", "header", "foreign"])
def test_a_standby_that_is_damaged_says_so(both: Both, damage: str) -> None:
    both.writer.put(b"1")
    both.take(both.pieces())
    both.writer.put(b"2")
    both.take(both.pieces())
    both.mirror.close()
    journal = both.info.paths.journal
    file, mark = journal / file_name(1), journal / journal_synced.NAME
    data = bytearray(file.read_bytes())
    uuid = both.info.uuid
    if damage == "mark":
        mark.unlink()
    elif damage == "both slots":
        mark.write_bytes(bytes(8192))
    elif damage == "file":
        file.unlink()
    elif damage == "block":
        data[PAGE + 200] ^= 1
        file.write_bytes(data)
    elif damage == "header":
        data[40] ^= 1
        file.write_bytes(data)
    else:
        uuid = bytes(16)
    with pytest.raises(StandbyDiverged):
        JournalMirror(both.info.paths, uuid)
    if damage in ("block",):
        settle(both.info.paths, uuid)  # a promotion goes on, and the start tells the damage


def test_a_torn_mark_leaves_the_one_before(both: Both) -> None:
    both.writer.put(b"1")
    both.take(both.pieces())
    both.mirror.note()
    before = both.mirror.mark
    both.writer.put(b"2")
    both.take(both.pieces())
    both.mirror.note_soon()
    after = both.mirror.mark
    path = both.info.paths.journal / journal_synced.NAME
    data = bytearray(path.read_bytes())
    data[after.generation % 2 * 4096 + 20] ^= 1
    both.mirror.close()
    path.write_bytes(data)
    found = journal_synced.load(both.info.paths)
    assert found == before
    assert JournalMirror(both.info.paths, both.info.uuid).mark.lsn == after.lsn


def test_a_full_disk_refuses_the_next_file(both: Both) -> None:
    both.writer.put(b"1")
    both.writer.restart(1)
    both.writer.put(b"2")
    block, file, second = both.pieces()
    both.take([block])
    (both.info.paths.journal / "next.jnl").unlink(missing_ok=True)
    disk = use_faulty(create=FULL)
    with pytest.raises(SpoolFull):
        both.mirror.begin_file(file.payload)
    assert durable.latched() is None
    disk.failures.clear()
    both.take([file, second])
    assert both.same()
