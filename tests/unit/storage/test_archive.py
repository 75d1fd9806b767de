"""Archive files: every byte of a journal file comes back, and damage is named, not raised."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omq.format import archive, journal
from omq.format.archive import (
    BODIES_MAGIC,
    MAGIC,
    ArchiveFlag,
    NameKind,
    Section,
    decode_header,
)
from omq.format.archive_block import Block, open_block, seal_rows
from omq.format.findings import Finding, Kind
from omq.format.journal import BLOCK, FRAME, FrameFlag, FrameType
from omq.format.message import NO_ID, Descriptor, Part, encode, pack_parts
from omq.storage.archive import Pieces, cut
from omq.storage.archive import encode as encode_archive
from omq.storage.archive_file import (
    ArchiveFile,
    open_archive,
    rebuild,
    rebuild_without_bodies,
)
from omq.storage.archive_names import texts
from omq.storage.journal import file_name
from omq.storage.journal_scan import FileScan
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import TIME_NS, Journal

GOLDEN = Path(__file__).parents[2] / "golden" / "archive"
LEVEL = 3


class Bytes:
    """An archive file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def read(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]


def opened(data: bytes, magic: bytes = MAGIC) -> ArchiveFile:
    found = open_archive(Bytes(data), "0000000001", magic)
    assert isinstance(found, ArchiveFile), found
    return found


def both(pieces: Pieces) -> tuple[bytes, bytes]:
    _, oma, omb = encode_archive(pieces, LEVEL)
    return b"".join(oma), b"".join(omb)


def again(pieces: Pieces) -> bytes | Finding:
    oma, omb = both(pieces)
    return copied(rebuild(opened(oma), opened(omb, BODIES_MAGIC)))


def copied(found: memoryview | Finding) -> bytes | Finding:
    return found if isinstance(found, Finding) else bytes(found)


def frame(writer: Journal, payload: bytes = b"", **values: int) -> None:
    """One block of one frame."""
    from omq.base.checksum import crc32c

    values |= {"lsn": writer.next_lsn, "length": len(payload), "time": TIME_NS + writer.next_lsn}
    if payload:
        values.setdefault("crc", crc32c(payload))
    FRAME.pack_into(writer.writer.buffer, BLOCK.size,
                    *(int(values.get(name, 0)) for name in FRAME.names))
    writer.writer.append(1, [payload], len(payload), writer.next_lsn, sync=True, next_qpool=1,
                         time_ns=TIME_NS)
    writer.next_lsn += 1


@pytest.fixture
def world(info: SpoolInfo) -> Journal:
    writer = Journal(info)
    frame(writer, b"ROUTER", type=FrameType.QUEUE, queue=7, flags=FrameFlag.REPEATED)
    frame(writer, b"router 1", type=FrameType.READER_UP, client=5, queue=7)
    writer.put(b"one", b"two" * 500)
    frame(writer, pack_parts([Part(8, 4), Part(9, 5, 0, 77)]), type=FrameType.MOVE, queue=7,
          qpool=1, parts=2)
    frame(writer, b"x" * 300, type=FrameType.DEFER, queue=7, qpool=2)
    return writer


def bytes_of(world: Journal, number: int = 1) -> bytes:
    return (world.info.paths.journal / file_name(number)).read_bytes()


def test_every_byte_comes_back(world: Journal) -> None:
    data = bytes_of(world)
    assert again(cut(data, 1, world.info.uuid)) == data


def test_many_blocks_and_sections_of_several_blocks(info: SpoolInfo) -> None:
    writer = Journal(info)
    while writer.writer.file_number == 1:
        writer.put(*[bytes([writer.next_lsn % 251]) * 20] * 40)
    data = bytes_of(writer)
    pieces = cut(data, 1, info.uuid)
    oma, omb = both(pieces)
    file = opened(oma)
    assert file.header.blocks[Section.FRAMES] > 1
    assert copied(rebuild(file, opened(omb, BODIES_MAGIC))) == data
    rows = file.rows(Section.FRAMES)
    assert rows["lsn"].tolist() == list(range(1, len(rows) + 1))
    seals = file.seals()
    assert not isinstance(seals, Finding)
    frames = seals[seals["section"] == Section.FRAMES]
    assert int(frames["count"].sum()) == len(rows)
    assert int(frames["last_lsn"].max()) == len(rows)


@pytest.mark.parametrize("where", ["inside", "tail", "header", "padding"])
def test_damaged_bytes_come_back_too(world: Journal, where: str) -> None:
    data = bytearray(bytes_of(world))
    page = world.settings.journal_page_bytes
    at = {"inside": 2 * page + 200, "tail": 7 * page + 9, "header": 20,
          "padding": 2 * page - 1}[where]
    data[at] ^= 0xFF
    pieces = cut(bytes(data), 1, world.info.uuid)
    assert again(pieces) == bytes(data)
    assert bool(pieces.findings) == (where in ("inside", "header"))


def test_void_blocks_are_no_frames_but_stay(world: Journal) -> None:
    data = bytes_of(world)
    pieces = cut(data, 1, world.info.uuid, limit=4)
    assert pieces.sections[Section.FRAMES]["lsn"].tolist() == [1, 2, 3, 4]
    assert again(pieces) == data


@pytest.mark.parametrize("data", [b"", bytes(4096), b"garbage" * 1000])
def test_any_bytes_come_back(data: bytes, info: SpoolInfo) -> None:
    assert again(cut(data, 1, info.uuid)) == data


def test_names_and_queues_are_read_without_bodies(world: Journal) -> None:
    file = opened(both(cut(bytes_of(world), 1, world.info.uuid))[0])
    names = file.rows(Section.NAMES)
    assert texts(names, NameKind.QUEUE) == {(1, 7): "ROUTER"}
    assert texts(names, NameKind.READER) == {(2, 5): "router 1"}
    assert texts(names, NameKind.TEXT) == {(6, FrameType.DEFER): "x" * 300}
    parts = file.rows(Section.PARTS)
    assert parts[["queue", "priority", "until"]].tolist() == [(8, 4, 0), (9, 5, 77)]


def test_groups_are_read_without_bodies(info: SpoolInfo) -> None:
    """Of births that have one alone, wherever other payloads have something in that place."""
    writer = Journal(info)
    for group, number, parts in ((NO_ID, 0, ()), (b"g".ljust(24, b"\0"), 1 << 31 | 7, ()),
                                 (b"\1" * 24, 0, (Part(8, 4), Part(9, 4)))):
        payload = encode(Descriptor(group_id=group, group_sequence=number), parts, b"", b"body")
        frame(writer, payload, type=FrameType.PUT, queue=7, qpool=1, parts=len(parts))
    many = pack_parts([Part(queue, 4) for queue in range(3, 60)])
    frame(writer, many, type=FrameType.PUT, flags=FrameFlag.QUEUES, qpool=2, parts=57)
    names = opened(both(cut(bytes_of(writer), 1, info.uuid))[0]).rows(Section.NAMES)
    assert texts(names, NameKind.GROUP) == {(2, 1 << 31 | 7): "g", (3, 0): "01" * 24}


def test_a_payload_that_fails_its_crc_names_nothing(info: SpoolInfo) -> None:
    writer = Journal(info)
    frame(writer, b"ROUTER", type=FrameType.QUEUE, queue=7, crc=1)
    pieces = cut(bytes_of(writer), 1, info.uuid)
    assert len(pieces.sections[Section.NAMES]) == 0
    assert [finding.kind for finding in pieces.findings] == [Kind.CORRUPT]
    assert opened(both(pieces)[0]).header.flags & ArchiveFlag.DAMAGED


def test_without_bodies_the_journal_is_not_whole(world: Journal) -> None:
    oma, _ = both(cut(bytes_of(world), 1, world.info.uuid))
    found = rebuild(opened(oma), None)
    assert isinstance(found, Finding)
    assert "bodies" in found.reason


def test_a_cut_file_gives_what_stands_before_the_cut(info: SpoolInfo) -> None:
    pieces = big(info)
    oma, _ = both(pieces)
    file = opened(oma[: len(oma) // 2])
    assert [finding.kind for finding in file.findings] == [Kind.TORN]
    rows = file.rows(Section.FRAMES)
    assert 0 < len(rows) < len(pieces.sections[Section.FRAMES])
    assert rows["lsn"].tolist() == list(range(1, len(rows) + 1))
    assert isinstance(file.seals(), Finding)
    assert file.findings[1].kind is Kind.GAP


def big(info: SpoolInfo, frames: int = 20_000) -> Pieces:
    """Pieces of several zstd frames, with rows that do not compress away."""
    rows = np.zeros(frames, FRAME.dtype)
    rows["lsn"] = np.arange(1, frames + 1)
    rows["type"] = FrameType.GIVE
    rows["token"] = np.random.default_rng(1).integers(0, 1 << 62, frames)
    empty = cut(b"", 1, info.uuid).sections
    return Pieces(info.uuid, 1, {**empty, Section.FRAMES: rows}, [], journal_bytes=4 << 20)


def test_a_forged_head_makes_nobody_work(info: SpoolInfo) -> None:
    """Its CRC is right; it counts thousands of millions of blocks, or bytes."""
    header = encode_archive(big(info), LEVEL)[0]
    for forged in (replace(header, blocks=((1 << 32) - 1,) * 6),
                   replace(header, journal_bytes=1 << 60), replace(header, payload=1 << 40)):
        found = archive.decode_header(forged.encode(archive.MAGIC))
        assert isinstance(found, Finding) and found.kind is Kind.CORRUPT


def test_one_flipped_byte_costs_one_frame_of_zstd_at_most(info: SpoolInfo) -> None:
    oma = bytearray(both(big(info))[0])
    oma[len(oma) // 2] ^= 1
    file = opened(bytes(oma))
    rows = file.rows(Section.FRAMES)
    assert len(file.findings) == 1
    lost = archive.FRAME_BLOCKS * archive.rows_per_block(Section.FRAMES)
    assert 20_000 - lost <= len(rows) < 20_000


def test_a_bad_block_condemns_only_itself(info: SpoolInfo) -> None:
    header, _, _ = encode_archive(big(info), LEVEL)
    rows = big(info).sections[Section.FRAMES][:5]
    data = bytearray(seal_rows(info.uuid, 1, 0, Section.FRAMES, rows))
    good = open_block(bytes(data), 0, header, 0, Section.FRAMES)
    assert isinstance(good, Block)
    assert good.rows().tobytes() == rows.tobytes()
    data[200] ^= 1
    assert isinstance(open_block(bytes(data), 0, header, 0, Section.FRAMES), Finding)
    data[200] ^= 1
    assert isinstance(open_block(bytes(data), 0, header, 1, Section.FRAMES), Finding)
    assert isinstance(open_block(bytes(data), 0, header, 0, Section.HEADS), Finding)
    assert isinstance(open_block(bytes(data[:-1]), 0, header, 0, Section.FRAMES), Finding)


@pytest.mark.parametrize(("change", "kind"), [
    (lambda data: data[:100], Kind.SHORT),
    (lambda data: b"PK" + bytes(400), Kind.FOREIGN),
    (lambda data: data[:16] + b"\x03" + data[17:], Kind.NEWER),
    (lambda data: data[:16] + b"\x01" + data[17:], Kind.FOREIGN),
    (lambda data: data[:60] + b"\xff" + data[61:], Kind.CORRUPT),
])  # fmt: skip
def test_a_head_that_is_none(world: Journal, change: object, kind: Kind) -> None:
    oma, _ = both(cut(bytes_of(world), 1, world.info.uuid))
    assert callable(change)
    found = decode_header(change(oma))
    assert isinstance(found, Finding)
    assert found.kind is kind


def test_hostile_bytes_give_findings(world: Journal) -> None:
    """Random damage anywhere: never an exception, never a journal file that differs."""
    data = bytes_of(world)
    oma, omb = both(cut(data, 1, world.info.uuid))
    chance = random.Random(7)
    for _ in range(300):
        bad = bytearray(oma)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        bad = bad[: chance.choice([len(bad), chance.randrange(len(bad))])]
        file = open_archive(Bytes(bytes(bad)), "x")
        if isinstance(file, Finding):
            continue
        found = rebuild(file, opened(omb, BODIES_MAGIC))
        assert isinstance(found, Finding) or bytes(found) == data


@pytest.mark.parametrize("forged", [
    (Section.PLACES, "offset", (1 << 64) - 1), (Section.PLACES, "offset", (1 << 64) - 200),
    (Section.PLACES, "offset", 4 << 20), (Section.PLACES, "count", (1 << 32) - 1),
    (Section.PLACES, "count", 3), (Section.PLACES, "payload", (1 << 32) - 1),
    (Section.PLACES, "payload_at", (1 << 64) - 1), (Section.EXTENTS, "offset", (1 << 64) - 1),
    (Section.EXTENTS, "length", (1 << 64) - 1), (Section.EXTENTS, "length", 100)])
def test_parts_that_do_not_fit_are_a_finding(world: Journal, forged: tuple[Section, str, int]
                                             ) -> None:
    """Their seals are right, and they name bytes that are not there."""
    data = bytearray(bytes_of(world))
    data[-900:-891] = b"something"
    pieces = cut(bytes(data), 1, world.info.uuid)
    assert again(pieces) == bytes(data)
    section, name, value = forged
    rows = pieces.sections[section].copy()
    rows[name][-1] = value
    pieces.sections[section] = rows
    found = again(pieces)
    assert isinstance(found, Finding) and "do not fit" in found.reason
    named = section is Section.PLACES and name in ("offset", "count")
    assert isinstance(rebuild_without_bodies(opened(both(pieces)[0])), Finding) == named


def test_without_bodies_the_frames_are_in_their_places(world: Journal) -> None:
    """And nothing else; a section that is not needed may be damaged."""
    data = bytearray(bytes_of(world))
    expected = bytearray(len(data))
    expected[: journal.FILE_HEADER.size] = data[: journal.FILE_HEADER.size]
    for block in FileScan(bytes(data), 1, world.info.uuid):
        heads = slice(block.offset, block.payload_at)
        expected[heads] = data[heads]
    data[-900:-891] = b"something"
    oma = both(cut(bytes(data), 1, world.info.uuid))[0]
    header = opened(oma).header
    assert copied(rebuild_without_bodies(opened(oma))) == bytes(expected)
    first = opened(oma).frame(0)
    assert isinstance(first, bytes)
    raw = bytearray(first)
    raw[header.first_block(Section.EXTENTS) * archive.BLOCK_BYTES] ^= 1
    file = opened(oma)
    file.frame = lambda index: bytes(raw)  # type: ignore[method-assign]
    assert copied(rebuild_without_bodies(file)) == bytes(expected)
    assert isinstance(rebuild(file, opened(both(cut(bytes(data), 1, world.info.uuid))[1],
                                           BODIES_MAGIC)), Finding)


def test_golden_archive(request: pytest.FixtureRequest) -> None:
    """Files written once are read for ever; zstd may compress otherwise one day."""
    uuid = bytes(range(16))
    from tests.unit.format import samples

    page = 512
    block = samples.block()
    data = journal.FileHeader(uuid, 3, 42, page, 64 * page, 1000, 990, 41, TIME_NS, 77).encode()
    data += block
    data = data.ljust(64 * page, b"\0")
    files = both(cut(data, 42, uuid))
    if request.config.getoption("--regenerate-golden"):
        GOLDEN.mkdir(exist_ok=True)
        for name, content in zip(("0000000042.oma", "0000000042.omb"), files, strict=True):
            (GOLDEN / name).write_bytes(content)
    oma = opened((GOLDEN / "0000000042.oma").read_bytes())
    omb = opened((GOLDEN / "0000000042.omb").read_bytes(), BODIES_MAGIC)
    assert copied(rebuild(oma, omb)) == data
    assert oma.header.encode(MAGIC) == (GOLDEN / "0000000042.oma").read_bytes()[:256]
    assert oma.rows(Section.PARTS)["queue"].tolist() == [7, 8]
