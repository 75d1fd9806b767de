"""The text dumps, letter by letter; and dumps of what is damaged or changes meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from omq.core.index.item_refs import ItemRefs
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.core.look import pool_dump
from omq.core.look.pool_dump import pool_lines
from omq.core.look.text_dump import memory_lines
from omq.format.findings import Finding, Kind
from omq.format.index import TABLES_AT, Counter
from omq.format.pool import (
    RECORD_BYTES,
    Message,
    PartState,
    QueuePart,
    RecordFlag,
    encode_message,
)
from omq.storage.pool import PoolFiles
from omq.storage.pool_scan import PoolChunk, Take
from omq.storage.spool import SpoolInfo
from tests.unit.omqdump import world
from tests.unit.omqdump.world import NOW_NS, QUEUES, add_message, golden, set_row

PERIOD_S = 5


def memory_text(tables: Tables, info: SpoolInfo) -> list[str]:
    with IndexView.of(tables, info.paths) as view:
        return list(memory_lines(view, NOW_NS, PERIOD_S))


def pool_text(pool: PoolFiles, info: SpoolInfo) -> list[str]:
    refs = ItemRefs(info.paths)
    try:
        return "\n".join(pool_lines(pool, QUEUES, refs)).split("\n")
    finally:
        refs.close()
        pool.close()


def spoil(info: SpoolInfo, record: int) -> None:
    fd = os.open(info.paths.msgpool / "21QP", os.O_RDWR)
    os.pwrite(fd, b"\x55" * 8, (record + 1) * RECORD_BYTES + 100)
    os.close(fd)


def test_memory(request: pytest.FixtureRequest, info: SpoolInfo) -> None:
    tables = Tables.private(*world.LAYOUT)
    world.fill(tables)
    golden(request, "memory.txt", "".join(f"{line}\n" for line in memory_text(tables, info)))


def test_empty_memory(request: pytest.FixtureRequest, info: SpoolInfo) -> None:
    lines = memory_text(Tables.private(*world.LAYOUT), info)
    golden(request, "memory_empty.txt", "".join(f"{line}\n" for line in lines))


def test_pool(request: pytest.FixtureRequest, info: SpoolInfo) -> None:
    lines = pool_text(PoolFiles(info.paths, info.uuid, write=False), info)
    golden(request, "pool.txt", "".join(f"{line}\n" for line in lines))


def test_plain_records_look_as_if_made_one_by_one(info: SpoolInfo,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand records, plain ones and others in a random order, free and damaged slots among
    them; several pieces of plain ones in a run."""
    random = np.random.default_rng(7)
    changes: dict[tuple[int, int], bytes | None] = {}
    for record in range(2000):  # a long run of plain ones first
        kind = int(random.integers(0, 12)) if record > 1200 else 11
        if not kind:
            continue  # a free slot
        state = PartState(int(random.integers(1, 5))) if kind < 3 else PartState.READY
        parts = [QueuePart(3 + record % 3, record % 10, state, 0, 0,
                           1_700_000_000 if state is PartState.DEFERRED else 0,
                           1_600_000_000 + record, record + 1)] * (0 if kind == 1 else
                                                                   2 if kind == 2 else 1)
        flags = RecordFlag.CONTAINER if kind == 3 else RecordFlag(record & 9)
        changes.update({(21, number): data for number, data in encode_message(Message(
            10_000 + record, 21, record, 5, 10**18 + record * 10**9, b"", b"", flags,
            1 + record // 100, record * 8, 10, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, b"", 0, parts))})
    pool = PoolFiles(info.paths, info.uuid)
    pool.write(changes)
    pool.close()
    spoil(info, 1500)
    fast = pool_text(PoolFiles(info.paths, info.uuid, write=False), info)
    monkeypatch.setattr(pool_dump, "is_plain", lambda chunk: np.zeros(len(chunk.records), bool))
    assert fast == pool_text(PoolFiles(info.paths, info.uuid, write=False), info)
    assert sum(line == "QPoolId=11500" for line in fast) == 0
    assert sum(line.startswith("QPoolId=") for line in fast) > 1800


def test_sections_are_those_of_the_original(info: SpoolInfo) -> None:
    tables = Tables.private(*world.LAYOUT)
    world.fill(tables)
    lines = memory_text(tables, info)
    assert [line for line in lines if line.startswith("====")] == [
        "====Active Messages====", "====End Active=====", "====Known messages====",
        "====END Messages====", "==== Queues =====", "====Queue Readers====",
        "=====End Readers====="]


@pytest.mark.parametrize("sampled", [0, NOW_NS + 10**12, -(1 << 63), (1 << 63) - 1])
def test_remaining_sample_period_is_bounded(info: SpoolInfo, sampled: int) -> None:
    tables = Tables.private(*world.LAYOUT)
    world.add_queue(tables, 3, "ROUTER")
    set_row(tables, 3, q_sampled=sampled, q_started=sampled)
    (first, *_) = (line for line in memory_text(tables, info) if line.startswith("Remaining"))
    assert 0 <= int(first.partition("=")[2]) <= PERIOD_S


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_in_the_tables(info: SpoolInfo, seed: int) -> None:
    tables = Tables.private(60, 80, 8, 8)
    tables.buffer[TABLES_AT:] = np.random.default_rng(seed).bytes(len(tables.buffer) - TABLES_AT)
    for counter in Counter:
        tables.counters[counter] = (1 << 64) - 1
    tables.v["e_state"][:] %= 6
    tables.v["e_message"][:] %= 60
    tables.v["e_queue"][:] %= 8
    tables.v["q_flags"][:] |= 1
    lines = memory_text(tables, info)
    assert lines[-1] == "=====End Readers====="
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_lines_are_made_one_at_a_time(info: SpoolInfo) -> None:
    tables = Tables.private(*world.LAYOUT)
    world.fill(tables)
    with IndexView.of(tables, info.paths) as view:
        lines = memory_lines(view, NOW_NS, PERIOD_S)
        assert next(lines) == "====Active Messages===="
        add_message(tables, 9, 4711, 40)
        assert "Message Pool Id=4711" in list(lines)


def test_a_damaged_record_is_said_where_it_stands(info: SpoolInfo) -> None:
    spoil(info, 1)
    lines = pool_text(PoolFiles(info.paths, info.uuid, write=False), info)
    at = lines.index("Record Num=1")
    assert lines[at - 1 : at + 4] == [
        "Pool File=21", "Record Num=1", "Offset=0x00000400",
        "Damage=corrupt: record fails its CRC", "-----"]
    assert [line for line in lines if line.startswith("QPoolId")] == [
        "QPoolId=956", "QPoolId=958", "QPoolId=958"], "the others are shown"


def test_a_pool_file_of_another_instance(info: SpoolInfo) -> None:
    lines = pool_text(PoolFiles(info.paths, bytes(16), write=False), info)
    assert lines[5:] == ["Pool File=21", "Record Num=NONE", "Offset=0x00000000",
                         "Damage=foreign: pool file of another instance"]


def test_a_cut_record(info: SpoolInfo) -> None:
    path = info.paths.msgpool / "21QP"
    os.truncate(path, path.stat().st_size - 100)
    lines = pool_text(PoolFiles(info.paths, info.uuid, write=False), info)
    assert lines[-4:] == ["Pool File=21", "Record Num=5", "Offset=0x00000C00",
                          "Damage=short: record cut by the end of the file"]


def test_a_write_seen_by_half_is_not_called_damage(info: SpoolInfo) -> None:
    """The scan meets half of a checkpoint's write; when it is read again it is whole."""

    class Changing(PoolFiles):
        def scan(self, file: int, take: Take | None = None) -> Iterator[PoolChunk]:
            for chunk in super().scan(file, take):
                torn = [Finding(Kind.CORRUPT, "record fails its CRC", record=record)
                        for record in (0, 2, 3)]
                none = np.zeros(len(chunk.live), dtype=bool)
                yield replace(chunk, live=none, more=none, findings=torn)

    lines = pool_text(Changing(info.paths, info.uuid, write=False), info)
    assert not any(line.startswith("Damage") for line in lines)
    assert [line for line in lines if line.startswith(("Record", "QPoolId", "NextRecord"))] == [
        "Record Num=0", "NextRecord=NONE", "QPoolId=956", "Record Num=3", "NextRecord=5",
        "QPoolId=958"]
