"""End, torn tail, damage, holes, void blocks: told apart by what lies behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omq.format.findings import Kind
from omq.format.journal import BLOCK, seal_block
from omq.storage import journal
from omq.storage.journal_follower import JournalFollower
from omq.storage.journal_reader import JournalScan, scan_journal
from omq.storage.journal_scan import FileScan, scan_file
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import PAGE, Journal

UUID = bytes(16)


def _path(info: SpoolInfo, number: int = 1) -> str:
    return str(info.paths.journal / journal.file_name(number))


def _spoil(info: SpoolInfo, offset: int, data: bytes = b"\x55" * 8, number: int = 1) -> None:
    with open(_path(info, number), "r+b") as file:
        file.seek(offset)
        file.write(data)


def _lsns(scan: JournalScan | FileScan) -> list[int]:
    return [int(lsn) for block in scan for lsn in block.frames["lsn"]]


def _kinds(scan: JournalScan) -> list[Kind]:
    return [finding.kind for finding in scan.findings]


def _page(block: int) -> int:
    """Offset of the n-th block of one page."""
    return PAGE * (block + 1)


def test_the_end_is_zeros(info: SpoolInfo) -> None:
    Journal(info).fill(3)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 3]
    assert scan.end is not None and scan.end.kind is Kind.END and not scan.findings
    assert (scan.last_number, scan.last_offset) == (1, _page(3))


def test_an_empty_journal(info: SpoolInfo) -> None:
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [] and scan.end is None and scan.last_lsn == 0


def test_a_torn_tail_is_the_end(info: SpoolInfo) -> None:
    Journal(info).fill(3)
    _spoil(info, _page(2) + 40)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2]
    assert scan.end is not None and scan.end.kind is Kind.TORN and not scan.findings
    assert scan.end.offset == _page(2) and scan.end.lsn == 3
    assert scan.durable_lsn == 1  # block 2 says so; it may itself be unacknowledged


def test_a_torn_first_block(info: SpoolInfo) -> None:
    Journal(info).fill(1)
    _spoil(info, _page(0))
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [] and scan.end is not None and scan.end.kind is Kind.TORN


@pytest.mark.parametrize("spoiled", [0, 1, 2])
def test_damage_below_a_known_durable_lsn(info: SpoolInfo, spoiled: int) -> None:
    Journal(info).fill(5)
    _spoil(info, _page(spoiled) + 40)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [lsn for lsn in (1, 2, 3, 4, 5) if lsn != spoiled + 1]
    assert _kinds(scan) == [Kind.CORRUPT]
    finding = scan.findings[0]
    assert (finding.offset, finding.length, finding.lsn) == (_page(spoiled), PAGE, spoiled + 1)
    assert finding.file == journal.file_name(1)
    assert scan.end is not None and scan.end.kind is Kind.END


def test_zeros_in_the_middle_are_damage_too(info: SpoolInfo) -> None:
    Journal(info).fill(5)
    _spoil(info, _page(1), bytes(2 * PAGE))
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 4, 5]
    assert _kinds(scan) == [Kind.CORRUPT]
    assert scan.findings[0].length == 2 * PAGE


def test_payload_damage_condemns_no_block(info: SpoolInfo) -> None:
    at = Journal(info).put(b"body" * 100)
    _spoil(info, at + 5)
    assert _lsns(scan_journal(info.paths, info.uuid)) == [1]


def test_an_unsynced_hole_before_a_synced_block(info: SpoolInfo) -> None:
    """The synced block may have been acknowledged: it is kept, and the hole reported."""
    writer = Journal(info)
    writer.fill(1)
    writer.put(b"2", sync=False)
    writer.put(b"3")
    _spoil(info, _page(1), bytes(PAGE))
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 3]
    assert _kinds(scan) == [Kind.TORN]


def test_an_unsynced_hole_before_unsynced_blocks(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.fill(1)
    for body in (b"2", b"3", b"4"):
        writer.put(body, sync=False)
    _spoil(info, _page(2))
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2]
    assert scan.end is not None and scan.end.kind is Kind.TORN and not scan.findings


def test_a_block_inside_a_payload_is_not_taken_for_one(info: SpoolInfo) -> None:
    """A client can put the bytes of a block into a body: a damaged header must not free them."""
    writer = Journal(info)
    writer.put(b"first")
    writer.put(b"second")
    with open(_path(info), "rb") as file:
        forged = bytearray(file.read()[_page(1) : _page(2)])
    # the second block again, placed where its page begins inside the third block's payload
    heads = 256
    writer.put(bytes(PAGE - heads) + bytes(forged))
    writer.put(b"fourth")
    writer.put(b"fifth")
    _spoil(info, _page(2) + 200)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 4, 5]


def test_a_copied_block_is_out_of_order(info: SpoolInfo) -> None:
    Journal(info).fill(4)
    with open(_path(info), "rb") as file:
        first = file.read()[_page(0) : _page(1)]
    _spoil(info, _page(2), first)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 4]
    assert _kinds(scan) == [Kind.CORRUPT]


def test_blocks_of_another_file_are_not_taken(info: SpoolInfo) -> None:
    """A recycled or copied region: right uuid and CRC, wrong file."""
    writer = Journal(info)
    writer.fill(2)
    writer.restart(follows_lsn=2)
    writer.fill(2)
    with open(_path(info, 2), "rb") as file:
        later = file.read()[_page(0) : _page(2)]
    _spoil(info, _page(2), later)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 3, 4] and not scan.findings


def test_blocks_above_the_next_files_start_are_void(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.fill(5)
    writer.restart(follows_lsn=3, next_lsn=10)  # recovery had accepted only 1 to 3
    writer.fill(2)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 3, 10, 11]
    assert not scan.findings


def test_a_file_that_lost_its_accepted_tail(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.fill(3)
    writer.restart(follows_lsn=3)
    writer.fill(2)
    _spoil(info, _page(2), bytes(PAGE))
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 4, 5]
    assert Kind.CORRUPT in _kinds(scan)


def test_a_missing_file_is_a_gap(info: SpoolInfo) -> None:
    writer = Journal(info)
    for _ in range(2):
        writer.fill(2)
        writer.restart(follows_lsn=writer.next_lsn - 1)
    writer.fill(2)
    (info.paths.journal / journal.file_name(2)).unlink()
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 5, 6]
    assert _kinds(scan) == [Kind.GAP]
    missing = scan_journal(info.paths, info.uuid, 2, PAGE, 2)
    assert _lsns(missing) == [5, 6]
    assert Kind.GAP in _kinds(missing)


def test_a_damaged_file_header(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.fill(2)
    writer.restart(follows_lsn=2)
    writer.fill(3)
    _spoil(info, 10, number=2)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2, 3, 4, 5]
    assert _kinds(scan) == [Kind.CORRUPT]


@pytest.mark.parametrize(("data", "kind"), [
    (b"", Kind.SHORT), (bytes(100), Kind.SHORT), (bytes(PAGE), Kind.END)])
def test_an_empty_newest_file(info: SpoolInfo, data: bytes, kind: Kind) -> None:
    Journal(info).fill(2)
    (info.paths.journal / journal.file_name(2)).write_bytes(data)
    scan = scan_journal(info.paths, info.uuid)
    assert _lsns(scan) == [1, 2]
    assert scan.end is not None and scan.end.kind is kind and not scan.findings


def test_foreign_and_newer_files_stop_the_scan(info: SpoolInfo) -> None:
    Journal(info).fill(2)
    foreign = scan_journal(info.paths, UUID)
    assert _lsns(foreign) == []
    assert foreign.end is not None and foreign.end.kind is Kind.FOREIGN
    _spoil(info, 8, b"\x63\0")
    newer = scan_journal(info.paths, info.uuid)
    assert _lsns(newer) == []
    assert newer.end is not None and newer.end.kind is Kind.NEWER


def test_a_scan_from_a_position(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.fill(100)
    whole = scan_journal(info.paths, info.uuid)
    blocks = list(whole)
    middle = blocks[70]
    scan = scan_journal(info.paths, info.uuid, middle.number, middle.offset,
                        middle.header.first_lsn - 1)
    assert _lsns(scan) == list(range(middle.header.first_lsn, 101))
    assert not scan.findings
    assert (scan.last_number, scan.last_offset) == (whole.last_number, whole.last_offset)


def test_settle_reads_the_same(info: SpoolInfo) -> None:
    Journal(info).fill(100)
    assert _lsns(scan_journal(info.paths, info.uuid, settle=True)) == list(range(1, 101))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_never_raises_and_never_invents(data: st.DataObject,
                                               tmp_path_factory: pytest.TempPathFactory) -> None:
    from omq.storage.spool import create_spool

    info = create_spool(tmp_path_factory.mktemp("scan") / "spool")
    writer = Journal(info)
    for size in data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=8)):
        writer.put(bytes(size), sync=data.draw(st.booleans()))
    writer.writer.close()
    with open(_path(info), "rb") as file:
        image = bytearray(file.read()[: writer.writer.offset + 2 * PAGE])
    pristine = bytes(image)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(image) - 1))
        chunk = data.draw(st.sampled_from([b"\0" * 512, b"\xff" * 512, b"OMQB", b"\1", pristine[
            PAGE : PAGE + 512]]))
        image[at : at + len(chunk)] = chunk[: len(image) - at]
    scan = scan_file(bytes(image), 1, info.uuid)
    last = 0
    for block in scan:
        assert block.header.first_lsn > last
        last = block.header.last_lsn
        assert last < writer.next_lsn
        heads = block.header.payload_at
        assert block.data[8:heads] == pristine[block.offset + 8 : block.offset + heads]
    assert scan.end is not None
    if bytes(image) == pristine:
        assert last == writer.next_lsn - 1 and not scan.findings


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=3000))
def test_random_bytes(data: bytes) -> None:
    assert list(scan_file(data, 1, UUID)) == []


@pytest.mark.parametrize("term", [0, 2])
def test_a_block_of_another_term_is_none_of_this_file(info: SpoolInfo, term: int) -> None:
    """Two primaries may both have written this file in this epoch: only the term tells them
    apart."""
    writer = Journal(info)
    writer.put(b"1")
    writer.put(b"2")
    first = next(iter(scan_journal(info.paths, info.uuid)))
    theirs = replace(first.header, first_lsn=2, durable=1, sequence=1, term=term)
    data = bytearray(first.data)
    data[BLOCK.size + 8 : BLOCK.size + 16] = (2).to_bytes(8, "little")
    seal_block(data, info.uuid, theirs)
    _spoil(info, _page(1), bytes(data))
    found = scan_journal(info.paths, info.uuid)
    follower = JournalFollower(info.paths, info.uuid)
    if term == 0:
        assert _lsns(found) == [1, 2]
        assert [b.header.last_lsn for b in follower.read(2, 1 << 20)] == [1, 2]
        return
    assert _lsns(found) == [1]
    assert [b.header.last_lsn for b in follower.read(2, 1 << 20)] == [1]
    follower.close()
