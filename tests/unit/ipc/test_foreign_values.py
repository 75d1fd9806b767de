"""Each type of AMQP as an application property: what it is in a message, and that it comes back."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    Message,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from omq.format import amqp_values, property_values
from omq.ipc.client.remote.foreign_values import said, texts_in, value_of, values_out
from omq.ipc.wire.outgoing import Outgoing

ID = UUID("12345678-1234-5678-1234-567812345678")
ROWS: list[tuple[Any, str, str, Any]] = [
    (None, "null", "", None), (True, "boolean", "true", True), (False, "boolean", "false", False),
    *[(kind(3), name, "3", 3) for kind, name in (
        (ubyte, "ubyte"), (ushort, "ushort"), (uint, "uint"), (ulong, "ulong"), (byte, "byte"),
        (short, "short"), (int32, "int"), (int, "long"))],
    (ulong((1 << 64) - 1), "ulong", "18446744073709551615", (1 << 64) - 1),
    (byte(-128), "byte", "-128", -128), (float32(0.5), "float", "0.5", 0.5),
    (0.1, "double", "0.1", 0.1), (float("inf"), "double", "inf", float("inf")),
    (timestamp(1_764_096_508_123), "timestamp", "2025-11-25T18:48:28.123000Z",
     datetime(2025, 11, 25, 18, 48, 28, 123000, tzinfo=UTC)),
    (timestamp(-1), "timestamp", "1969-12-31T23:59:59.999000Z",
     datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    (ID, "uuid", str(ID), str(ID)), (symbol("s"), "symbol", "s", "s"),
    (char("ü"), "char", "ü", "ü"),
    (b"\0\xff", "binary", "00ff", b"\0\xff"), ("3", "string", "3", "3"),
    (decimal32(0x32800003), "decimal32", "3", "3"),
    (decimal64(0x31C0000000000005), "decimal64", "5", "5"),
    (decimal64(0xB1A0000000000019), "decimal64", "-2.5", "-2.5"),
    (decimal128(bytes.fromhex("30400000000000000000000000000007")), "decimal128", "7", "7"),
    (decimal32(0x78000000), "decimal32", "Infinity", "Infinity"),
    (decimal64(0x7C00000000000000), "decimal64", "NaN", "NaN")]


def of(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


@pytest.mark.parametrize(("value", "kind", "text", "python"), ROWS)
def test_each_type_has_its_text_and_comes_back(value: Any, kind: str, text: str, python: Any
                                               ) -> None:
    assert said(value) == (kind, text)
    back = value_of(kind, text)
    assert (type(back), of(back)) == (type(value), of(value))
    came = Message()
    came.decode(Message(properties={"a": value}).encode())
    texts = texts_in(came.properties)
    assert texts["a"] == text
    assert property_values.values_of(texts.copy()).get("a") == python
    assert of(values_out(texts)["a"]) == of(value)
    if value is not None:  # and through a program of Python
        copied = Outgoing(properties=property_values.values_of(texts.copy())).properties
        assert of(values_out(copied)["a"]) == of(value)


@pytest.mark.parametrize("value", [
    timestamp(1 << 62), timestamp(-(1 << 62)), [1, "a"], {"a": 1}, Described(symbol("x"), 3),
    Array(UNDESCRIBED, Data.INT, 1, 2), decimal32(0x6CFFFFFF), decimal64(0x7C00000000000001)])
def test_what_no_text_says_comes_back_too(value: Any) -> None:
    kind, text = said(value)
    assert kind == "encoded"
    assert of(value_of(kind, text)) == of(value)


@pytest.mark.parametrize("value", [ubyte(3), ushort(300), uint(0), uint(3), uint(1 << 20), ulong(0),
                                   ulong(9), byte(-3), short(-3), int32(3), int32(1 << 20),
                                   float32(0.25), symbol("s"), b"x", None])
def test_what_older_servers_encoded_is_read(value: Any) -> None:
    """Without the library."""
    kind, text = property_values.simple("encoded", of(value).hex())
    assert (kind, text) == said(value)
    assert amqp_values.read(of(value), 0)[1] == len(of(value))


def test_decimals_are_numbers_of_ieee_754() -> None:
    chosen = random.Random(31)
    for size, made in ((4, decimal32), (8, decimal64), (16, decimal128)):
        for _ in range(2000):
            raw = chosen.randbytes(size)
            value = made(raw if size == 16 else int.from_bytes(raw, "big"))
            kind, text = said(value)
            assert of(value_of(kind, text)) == of(value), raw.hex()
            if kind != "encoded":
                Decimal(text)


def test_random_numbers_come_back() -> None:
    chosen = random.Random(31)
    for _ in range(2000):
        value = struct.unpack(">d", chosen.randbytes(8))[0]
        single = float32(struct.unpack(">f", chosen.randbytes(4))[0])
        for each in (value, single):
            assert of(value_of(*said(each))) == of(each)


def test_names_of_foreign_clients_come_back() -> None:
    given = {"a b": uint(3), "ü": "x", "": True, "k\n": b"x", "n" * 300: 1, "fine": short(2)}
    texts = texts_in(given)
    assert set(texts) == {"fine", "amqp.types", "amqp.named"}
    found = values_out(texts)
    assert found == given
    assert {name: of(value) for name, value in found.items()} == {
        name: of(value) for name, value in given.items()}


def test_a_text_that_is_none_of_its_kind_goes_out_as_a_text() -> None:
    assert values_out({"a": "x", "amqp.types": '{"a":"long"}'}) == {"a": "x"}
    for types in ("[[", "3"):
        with pytest.raises(ValueError, match="makes no sense"):
            values_out({"a": "x", "amqp.types": types})
