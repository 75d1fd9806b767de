"""Values of AMQP: Proton's C library reads what we write as the same, and the other way round;
whatever the bytes are, they are a value or Malformed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.amqp.whole_values import decoded
from omq.fast.amqp_decoding import Decoder
from omq.fast.amqp_encoding import encoded
from omq.format.amqp_types import (
    DEPTH_MAX,
    Array,
    Char,
    Decimal32,
    Float,
    Malformed,
    Symbol,
    Ubyte,
    Uint,
)
from tests.unit.amqp.values import VALUES, read_by_them, their_bytes


def alike(one: Any, other: Any) -> bool:
    """Of the same types, too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return alike([*one.items()], [*other.items()])
    if isinstance(one, tuple):
        return all(map(alike, one, other))
    return bool(one == other)


@given(VALUES)
def test_what_is_encoded_comes_back_as_the_same(value: Any) -> None:
    assert alike(decoded(encoded(value)), value)


@given(VALUES)
def test_the_library_reads_what_we_write(value: Any) -> None:
    assert read_by_them(encoded(value)) == read_by_them(their_bytes(value))


@given(VALUES)
def test_we_read_what_the_library_writes(value: Any) -> None:
    found = decoded(their_bytes(value))
    assert alike(found, value)


@given(VALUES, st.data())
def test_what_is_cut_or_changed_is_a_value_or_malformed(value: Any, chosen: st.DataObject) -> None:
    raw = bytearray(encoded(value))
    for _ in range(chosen.draw(st.integers(0, 3))):
        raw[chosen.draw(st.integers(0, len(raw) - 1))] = chosen.draw(st.integers(0, 255))
    end = chosen.draw(st.integers(0, len(raw)))
    check(bytes(raw[:end]))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(raw: bytes) -> None:
    check(raw)


def check(raw: bytes) -> None:
    """`skip` passes what `value` reads; what is read can be written, and reads as the same."""
    decoder = Decoder()
    decoder.over(raw, 0, len(raw))
    try:
        found = decoder.value()
    except Malformed:
        return
    passed = Decoder()
    passed.over(raw, 0, len(raw))
    passed.skip()
    assert passed.at == decoder.at <= len(raw)
    try:
        again = encoded(found)
    except Malformed:  # a surrogate that a character may be, a value as deep as may be
        return
    assert repr(decoded(again)) == repr(found)


@pytest.mark.parametrize("raw", [
    b"", b"\x00", b"\x00\x53\x24", b"\x46", b"\x57\x00", b"\x62\x00\x00", b"\x56\x02",
    b"\xa1\x01", b"\xa1\x01\xff", b"\xa3\x01\xff", b"\xa2\x00", b"\xb1\xff\xff\xff\xff",
    b"\x73\x00\x11\x00\x00", b"\x70\x00\x00", b"\xc0\x00", b"\xc0\x01\x01", b"\xc0\x02\x01",
    b"\xc0\x03\x01\x40\x40", b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff", b"\xd0\x00\x00\x00\x04\x7f",
    b"\xc1\x02\x01\x40", b"\xc1\x03\x02\x45\x40", b"\xc2\x01\x00", b"\xe0\x02\x01\x70",
    b"\xe0\x02\xff\x41", b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", b"\xe1\x02\x00\x70",
    b"\xe0\x03\x01\x00\x40", b"\xc0\x06\x02\xc0\x03\x01\x40\x40",
    b"\x90" + bytes(16), b"\x40\x40", b"\x01", b"\x30\x00"])
def test_what_is_none_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(raw)


@pytest.mark.parametrize("nest", [
    lambda inner: b"\x00\x53\x01" + inner,
    lambda inner: b"\xd0" + (len(inner) + 4).to_bytes(4, "big") + b"\0\0\0\1" + inner,
    lambda inner: b"\xd1" + (len(inner) + 5).to_bytes(4, "big") + b"\0\0\0\2\x40" + inner,
    lambda inner: b"\xf0" + (len(inner) + 4).to_bytes(4, "big") + b"\0\0\0\1" + inner])
def test_what_nests_without_end_is_malformed(nest: Any) -> None:
    raw = b"\x40" if nest(b"")[0] != 0xF0 else b"\x70\0\0\0\1"
    for _ in range(DEPTH_MAX - 1):
        raw = nest(raw)
    decoded(raw)
    for _ in range(2000):
        raw = nest(raw)
    with pytest.raises(Malformed):
        decoded(raw)
    decoder = Decoder()
    decoder.over(raw, 0, len(raw))
    with pytest.raises(Malformed):
        decoder.skip()


@pytest.mark.parametrize("value", [
    1 << 63, Uint(1 << 32), Ubyte(-1), object(), 1j, Char("ab"), Symbol("ü"), "\ud800",
    Decimal32(b"123"), Float(1e300), Array(0x70, [Uint(1), "x"]), {1: object()}])
def test_what_is_no_value_is_not_written(value: Any) -> None:
    with pytest.raises(Malformed):
        encoded(value)


def test_a_deep_value_is_not_written() -> None:
    value: Any = 1
    for _ in range(DEPTH_MAX + 2):
        value = [value]
    with pytest.raises(Malformed):
        encoded(value)


def test_nothing_beyond_the_end_is_read() -> None:
    decoder = Decoder()
    decoder.over(b"\xa1\x05hello", 0, 6)
    with pytest.raises(Malformed):
        decoder.value()
    for at, end in ((-1, 2), (0, 9), (3, 2)):
        with pytest.raises(Malformed):
            decoder.over(b"12345678", at, end)


@pytest.mark.parametrize("count", [8, 9])
def test_values_without_bytes_are_few_in_all_arrays_together(count: int) -> None:
    """An array of four bytes says 64 empty lists; many of them in a frame were 1,000 times its
    bytes of memory."""
    inner = b"\xe0\x02\x08\x45" * count  # each an array of 8 empty lists
    raw = b"\xd0" + (len(inner) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + inner
    if count * 8 <= 64:
        assert [len(each.values) for each in decoded(raw)] == [8] * count
        assert decoded(raw) == decoded(raw), "each that is read has as many"
    else:
        with pytest.raises(Malformed):
            decoded(raw)
