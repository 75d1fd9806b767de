"""Encoders and decoders are inverse, and each rule of a decoder has a case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omq.base import limits
from omq.base.errors import BadProperty
from omq.format import double_write, index, journal, location, message, pool, poolctrl, store
from omq.format.findings import Finding, Kind
from omq.format.journal import FRAME
from omq.format.layout import Layout
from omq.format.location import LocationKind
from omq.format.pool import NO_RECORD, RecordFlag, RecordKind
from tests.unit.format import samples
from tests.unit.format.samples import PAGE, UUID


def test_layout_agrees_with_numpy() -> None:
    layout = Layout("a:B b:4s c:Q", 13)
    data = layout.pack(1, b"wxyz", 2) * 3
    rows = layout.array(data, 3)
    assert rows["c"].tolist() == [2, 2, 2]
    assert rows["b"][1].tobytes() == b"wxyz"
    assert layout.offset("c") == 5
    assert layout.as_dict(data, 13) == {"a": 1, "b": b"wxyz", "c": 2}


def test_journal_header() -> None:
    header = journal.decode_file_header(samples.journal_file_header())
    assert isinstance(header, journal.FileHeader)
    assert (header.number, header.epoch, header.page, header.follows_lsn) == (42, 3, PAGE, 990)
    odd = replace(header, page=768).encode()
    found = journal.decode_file_header(odd)
    assert isinstance(found, Finding) and found.kind is Kind.CORRUPT


def test_block() -> None:
    data = samples.block()
    header = journal.decode_block(data, 0, UUID, PAGE)
    assert isinstance(header, journal.BlockHeader)
    assert (header.first_lsn, header.last_lsn, header.count, header.durable) == (1000, 1001, 2, 999)
    rows = journal.FRAME.array(data, 2, journal.BLOCK.size)
    assert rows["lsn"].tolist() == [1000, 1001]
    body = data[header.payload_at : header.payload_at + int(rows["length"][0])]
    assert body == samples.payload()
    foreign = journal.decode_block(data, 0, bytes(16), PAGE)
    assert isinstance(foreign, Finding) and foreign.kind is Kind.FOREIGN


def test_message() -> None:
    data = samples.payload()
    found = message.decode(data)
    assert isinstance(found, message.Payload)
    assert data[found.body_at : found.end] == b"the body"
    assert found.parts == (message.Part(7, 4), message.Part(8, 9, 1, 927_030_700))
    assert found.descriptor.application == b"omsend"
    properties = message.decode_properties(data[found.properties_at : found.body_at])
    assert properties == {"mail.from": "a@example.org", "größe": "ü"}


def test_message_ids() -> None:
    identifier = message.derived_id(UUID, 123)
    assert len(identifier) == limits.MESSAGE_ID_BYTES
    assert message.qpool_of(identifier, UUID) == 123
    assert message.qpool_of(identifier, bytes(16)) == 0
    assert message.id_hash(message.NO_ID) == 0
    assert message.id_hash(b"x") == message.id_hash(b"x".ljust(24, b"\0")) != 0


@pytest.mark.parametrize("properties", [
    {"": "x"}, {"n" * 65: "x"}, {"name": "v" * limits.PROPERTIES_BYTES_MAX}])
def test_properties_have_limits(properties: dict[str, str]) -> None:
    with pytest.raises(BadProperty):
        message.encode_properties(properties)


def test_pool_record_continues() -> None:
    data = samples.pool_file()
    first = pool.decode_record(data, 512, 11, 5)
    second = pool.decode_record(data, 1024, 11, 9)
    assert isinstance(first, pool.Record) and isinstance(second, pool.Record)
    assert (first.kind, first.next, len(first.message.parts)) == (RecordKind.LIVE, 9, 16)
    assert first.message.flags & RecordFlag.MORE_RECORDS
    assert (second.kind, second.next, len(second.message.parts)) == (RecordKind.MORE, NO_RECORD, 1)
    wanted = samples.pool_message().parts
    assert first.message.parts + second.message.parts == wanted


def test_pool_record_in_a_wrong_place() -> None:
    found = pool.decode_record(samples.pool_file(), 512, 11, 6)
    assert isinstance(found, Finding) and found.kind is Kind.FOREIGN
    header = pool.decode_file_header(samples.pool_file(), 12, UUID)
    assert header is not None and header.kind is Kind.FOREIGN


def test_idel_message_has_no_parts() -> None:
    (_, image), = pool.encode_message(samples.pool_message(parts=0))
    found = pool.decode_record(image, 0, 11, 5)
    assert isinstance(found, pool.Record) and found.message.parts == []


def test_pool_control_takes_the_newer_slot() -> None:
    found = poolctrl.decode(samples.control_slot())
    assert isinstance(found, poolctrl.PoolControl)
    assert found.queues == {7: "ROUTER", 8: "LOCAL"} and found.clients[1 << 63].qpool == 76
    older, newer = found.encode(), replace(found, generation=10, lsn=2000).encode()
    both = older.ljust(poolctrl.SLOT_BYTES, b"\0") + newer.ljust(poolctrl.SLOT_BYTES, b"\0")
    best, findings = poolctrl.newest(both)
    assert best is not None and best.lsn == 2000 and not findings
    torn = bytearray(both)
    torn[poolctrl.SLOT_BYTES + 100] ^= 1
    best, findings = poolctrl.newest(bytes(torn))
    assert best is not None and best.lsn == 1001
    assert [finding.kind for finding in findings] == [Kind.CORRUPT]


def test_pool_control_keeps_the_latest_clients() -> None:
    found = poolctrl.decode(samples.control_slot())
    assert isinstance(found, poolctrl.PoolControl)
    many = {token: poolctrl.Answered(token, 1, 0, 0, lsn=token)
            for token in range(1, poolctrl.CLIENTS_MAX + 10)}
    data = replace(found, clients=many).encode()
    assert len(data) <= poolctrl.SLOT_BYTES
    kept = poolctrl.decode(data)
    assert isinstance(kept, poolctrl.PoolControl)
    assert min(kept.clients) == 10 and len(kept.clients) == poolctrl.CLIENTS_MAX


def test_double_write() -> None:
    found = double_write.decode(samples.double_write_file() + b"left over", UUID)
    assert isinstance(found, double_write.DoubleWrite)
    assert [(file, record) for file, record, _ in found.images] == [(11, 5), (11, 9), (11, 12)]
    assert found.images.changes()[11, 12] is None
    cut = double_write.decode(samples.double_write_file()[:-1], UUID)
    assert isinstance(cut, Finding) and cut.kind is Kind.TORN
    foreign = double_write.decode(samples.double_write_file(), bytes(16))
    assert isinstance(foreign, Finding) and foreign.kind is Kind.FOREIGN


def test_store_entry() -> None:
    data = samples.store_file()
    header = store.decode_header(data)
    assert isinstance(header, store.StoreHeader) and header.number == 6
    entry = store.decode_entry(data, store.HEADER_BYTES)
    assert isinstance(entry, store.Entry)
    assert data[entry.offset : entry.offset + entry.length] == samples.payload()
    assert entry.end == len(data)


def test_location() -> None:
    for kind in LocationKind:
        word = location.location(kind, 12345)
        assert (location.kind_of(word), location.number_of(word)) == (kind, 12345)


def test_records_of_several_arrays_as_one() -> None:
    random = np.random.default_rng(5)
    arrays = [FRAME.array(random.bytes(FRAME.size * count), count) for count in (3, 1, 7)]
    plain = np.concatenate(arrays)
    assert FRAME.joined(arrays).tobytes() == plain.tobytes()
    assert len(FRAME.joined([])) == 0


@pytest.mark.parametrize("messages", [100_000, 1_000_000, 10_000_000])
def test_a_message_costs_the_index_200_bytes_at_most(messages: int) -> None:
    """On one queue, with hash chains, and all that queues and readers have."""
    layout = index.IndexLayout.of(messages, messages, 1000, 300)
    assert layout.bytes_per_message <= 200
    assert layout.size / messages <= 200
