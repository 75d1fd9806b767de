"""Decoders given hostile bytes: a typed finding or bounded data, never an exception.

Three kinds: random bytes; a valid sample with bytes changed; a valid sample with fields changed and
its CRC made right again, because a CRC is no signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omq.base.checksum import crc32c
from omq.base.names import is_property_name
from omq.format import (
    double_write,
    index,
    journal,
    message,
    pool,
    poolctrl,
    property_values,
    standby,
    store,
)
from omq.format.findings import Finding, Kind
from tests.unit.format import samples
from tests.unit.format.samples import PAGE, UUID

Decoder = Callable[[bytes], Any]


def _pool(data: bytes) -> Any:
    return pool.decode_record(data, 0, 11, 5)


def _store_entry(data: bytes) -> Any:
    found = store.decode_entry(data, 0)
    assert isinstance(found, Finding) or found.offset + found.length <= len(data)
    return found


def _message(data: bytes) -> Any:
    found = message.decode(data)
    if isinstance(found, message.Payload):
        assert found.properties_at <= found.body_at <= found.end == len(data)
        message.decode_properties(data[found.properties_at : found.body_at])
    return found


def _block(data: bytes) -> Any:
    found = journal.decode_block(data, 0, UUID, PAGE)
    if not isinstance(found, Finding):
        assert found.payload_at + found.payload <= found.length <= len(data)
    return found


def _index(data: bytes) -> Any:
    return index.read_header(memoryview(data.ljust(1 << 17, b"\0")))


def _piece(data: bytes) -> Any:
    head = data[: standby.HEAD.size].ljust(standby.HEAD.size, b"\0")
    return standby.decode_piece(head, data[standby.HEAD.size :], 5)


CASES: dict[str, tuple[Decoder, bytes, int, int]] = {
    # decoder, valid bytes, the CRC covers from .. to
    "journal file": (journal.decode_file_header, samples.journal_file_header(), 8, 128),
    "journal block": (_block, samples.block(), 8, 128 + 2 * 128),
    "pool header": (lambda data: pool.decode_file_header(data, 11, UUID),
                    samples.pool_file()[:512], 8, 64),
    "pool record": (_pool, samples.pool_file()[512:1024], 8, 512),
    "pool record, noted": (_pool, samples.noted_record(), 8, 197),
    "poolctrl": (poolctrl.decode, samples.control_slot(), 8, len(samples.control_slot())),
    "double write": (lambda data: double_write.decode(data, UUID), samples.double_write_file(), 8,
                     64),
    "double write, chunk": (lambda data: double_write.decode(data, UUID),
                            samples.double_write_file(), double_write.CHUNK_AT,
                            len(samples.double_write_file())),
    "store header": (store.decode_header, samples.store_file()[:512], 8, 64),
    "store entry": (_store_entry, samples.store_file()[512:], 8, 32),
    "synced mark": (standby.decode_synced, samples.synced_mark(), 8, 96),
    "stream piece": (_piece, samples.stream_piece(), 8, len(samples.stream_piece())),
    "message": (_message, samples.payload(), 0, 0),
    "index": (_index, samples.index_header(), 512 + 8, 512 + 152),
}
EACH = pytest.mark.parametrize("name", CASES)


@EACH
def test_valid_samples_decode(name: str) -> None:
    decode, sample, _, _ = CASES[name]
    assert not isinstance(decode(sample), Finding)


@EACH
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=1200))
def test_random_bytes(name: str, data: bytes) -> None:
    decode, sample, _, _ = CASES[name]
    magic = sample[:4]
    for candidate in (data, magic + data):
        found = decode(candidate)
        assert name == "message" or found is None or isinstance(found, Finding)


@EACH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_changed_bytes_are_noticed(name: str, data: st.DataObject) -> None:
    decode, sample, begin, end = CASES[name]
    changed = bytearray(sample)
    at = data.draw(st.integers(begin, (end or len(sample)) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    found = decode(bytes(changed))
    if end:
        assert isinstance(found, Finding)


@EACH
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_forged_fields_are_bounded(name: str, data: st.DataObject) -> None:
    decode, sample, begin, end = CASES[name]
    forged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(begin, min(len(sample), (end or len(sample)), begin + 200) - 4))
        forged[at : at + 4] = data.draw(st.sampled_from(
            [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\0\0", b"\1\0\0\0", b"\0\0\0\x80"]))
    if end:
        forged[begin - 4 : begin] = crc32c(bytes(forged[begin:end])).to_bytes(4, "little")
    decode(bytes(forged))
    for cut in (0, 3, 63, 127, len(forged) - 1):
        decode(bytes(forged[:cut]))


@EACH
def test_newer_version_is_no_damage(name: str) -> None:
    decode, sample, begin, _ = CASES[name]
    newer = bytearray(sample)
    version_at = begin if begin else 2
    if name in ("store entry", "double write, chunk"):
        return  # its file's header has the version
    newer[version_at] = 99
    found = decode(bytes(newer))
    assert isinstance(found, Finding) and found.kind is Kind.NEWER


@pytest.mark.parametrize("name", ["journal block", "poolctrl", "double write", "store entry"])
def test_zeros_are_the_end(name: str) -> None:
    decode, sample, _, _ = CASES[name]
    found = decode(bytes(len(sample)))
    assert isinstance(found, Finding) and found.kind is Kind.END


def test_a_free_slot_is_nothing() -> None:
    assert _pool(bytes(512)) is None


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_properties_never_raise(data: bytes) -> None:
    found = message.decode_properties(data)
    assert isinstance(found, (dict, Finding))


_NAMES = st.sampled_from(("a", "mail.to", "amqp.types", "a b", "ü", "\n", ""))
_KINDS = st.sampled_from((*property_values.WHOLE, "boolean", "float", "double", "decimal64",
                          "binary", "timestamp", "uuid", "symbol", "null", "encoded", "string",
                          "?"))


@settings(max_examples=500, deadline=None)
@given(texts=st.dictionaries(_NAMES, st.text(max_size=20)),
       types=st.dictionaries(_NAMES, _KINDS) | st.text(max_size=20))
def test_values_of_properties_never_raise(texts: dict[str, str], types: dict[str, str] | str
                                          ) -> None:
    """And what a program reads of them, it can put, but for names that no property has."""
    texts["amqp.types"] = types if isinstance(types, str) else json.dumps(types)
    carried = dict(property_values.carried(texts))
    assert all(map(is_property_name, carried))
    for name in carried:
        property_values.asked(carried, name)
    found = property_values.values_of(carried.copy())
    if "amqp.types" not in found:
        again = property_values.texts_of(found)
        assert property_values.values_of(dict(again)) == found or any(
            value != value for value in found.values())  # NaN
