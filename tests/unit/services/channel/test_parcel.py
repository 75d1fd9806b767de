"""A message of a channel as bytes, beside what Proton makes of the same; bytes that are none."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.process.amqp_world import needs_proton

needs_proton()

from proton import Message, symbol  # noqa: E402

from omq.format import amqp_values as values  # noqa: E402
from omq.services.channel import parcel as parcels  # noqa: E402
from omq.services.channel.parcel import (  # noqa: E402
    Address,
    NotAParcel,
    Spot,
    bundled,
    packed,
    spotted,
)

MOST = 300


def opened(data: bytes) -> list[parcels.Parcel]:
    return parcels.opened(data, MOST)


MARK = "0011223344556677"
REMOTE = {"omq.remote.manager": "EAST", "omq.remote.queue": "A"}


def native(**said: Any) -> Any:
    return SimpleNamespace(**{
        "body": b"x", "texts": dict(REMOTE), "persistent": True, "priority": 4,
        "attempts": 0, "message_id": "id", "correlation": "", "group_id": "",
        "group_sequence": 0, "last_in_group": False, "expiry_ns": 0, "said": 0,
        **said})


RICH: dict[str, Any] = {
    "body": bytes(range(256)) * 300, "priority": 9, "attempts": 300, "message_id": "ä" * 12,
    "correlation": "order-1", "group_id": "g" * 24, "group_sequence": 70_000,
    "last_in_group": True, "said": 21,
    "texts": {**REMOTE, "customer": "42", "long": "y" * 5000, "count": "3",
              "amqp.types": '{"count":"uint"}'}}


@pytest.mark.parametrize("said", [{}, RICH, {"persistent": False, "body": b""},
                                  {"texts": {**REMOTE, **{f"p{n}": "v" for n in range(99)}}}])
def test_the_library_reads_what_is_packed(said: dict[str, Any]) -> None:
    """The one that every client has; `opened` reads it, too."""
    message = native(**said)
    data = packed(message, "WEST", "REPLIES")
    spot = Spot(1 << 40, 2, 3, MARK)
    for each, told in ((data, None), (spotted(data, spot), spot)):
        found = Message()
        found.decode(each)
        assert (bytes(found.body), found.inferred, found.durable, found.priority) == (
            message.body, True, message.persistent, message.priority)
        assert (found.id, found.correlation_id, found.group_id or "", found.delivery_count) == (
            message.message_id, message.correlation or None, message.group_id, message.attempts)
        assert found.group_sequence == message.group_sequence
        assert (found.properties or {}) == {
            name: text for name, text in message.texts.items() if name not in REMOTE}
        notes = found.annotations
        assert notes[symbol("x-opt-omq-to")] == ["EAST", "A"]
        assert notes[symbol("x-opt-omq-from")] == ["WEST", "A"]
        assert notes[symbol("x-opt-omq-reply")] == ["WEST", "REPLIES"]
        assert notes[symbol("x-opt-omq-hops")] == 1
        assert notes.get(symbol("x-opt-omq-open"), 0) == message.said
        if told is not None:
            assert found.instructions == {symbol("x-opt-omq-batch"): [1 << 40, 2, 3],
                                          symbol("x-opt-omq-mark"): MARK}
        (parcel,) = opened(each)
        assert parcel.spot == (told or Spot())
        _same(parcel, message)


def _same(parcel: Any, message: Any) -> None:
    out = parcel.message
    assert (out.body, out.persistent, out.priority, out.message_id, out.correlation_id) == (
        message.body, message.persistent, message.priority, message.message_id,
        message.correlation)
    assert (out.group_id, out.group_sequence, out.last_in_group) == (
        message.group_id, message.group_sequence, message.last_in_group)
    assert out.said == message.said
    assert parcel.to == Address("EAST", "A") and parcel.hops == 1


def test_what_the_library_encodes_is_read() -> None:
    """As an older omq sends it, one by itself."""
    out = Message(body=b"body", inferred=True, durable=True, priority=7, id="one", ttl=12.5,
                  correlation_id="two", group_id="g", group_sequence=5, properties={"a": "b"})
    out.annotations = {symbol("x-opt-omq-to"): ["EAST", "A"], symbol("x-opt-omq-hops"): 3,
                       symbol("x-opt-omq-last"): True}
    out.instructions = {symbol("x-opt-omq-batch"): [7, 1, 9], symbol("x-opt-omq-mark"): MARK}
    (parcel,) = opened(bytes(out.encode()))
    assert parcel.spot == Spot(7, 1, 9, MARK) and parcel.to == Address("EAST", "A")
    assert (parcel.message.body, parcel.message.expiry_s, parcel.message.priority) == (
        b"body", 12.5, 7)
    assert parcel.message.properties == {"a": "b"} and parcel.message.last_in_group
    assert parcel.hops == 3 and parcel.message.group_sequence == 5


def test_what_is_left_of_the_expiry() -> None:
    data = packed(native(expiry_ns=time.time_ns() + 3600 * 10**9), "WEST", "")
    (parcel,) = opened(data)
    assert parcel.message.expiry_s is not None and 0 < parcel.message.expiry_s <= 3600
    (gone,) = opened(packed(native(expiry_ns=1), "WEST", ""))
    assert gone.message.expiry_s == 0.001


def test_messages_of_a_batch_go_together() -> None:
    some = [packed(native(body=b"%d" % n, **({} if n % 2 else {"group_id": "g"})), "WEST", "")
            for n in range(300)]
    found = opened(bundled(some, Spot(7, 11, 400, MARK)))
    assert [each.message.body for each in found] == [b"%d" % n for n in range(300)]
    assert [each.spot for each in found] == [Spot(7, 11 + n, 400, MARK) for n in range(300)]
    assert [each.spot for each in opened(bundled(some, Spot()))] == [Spot()] * 300


def _annotated(numbers: list[int]) -> bytes:
    return values.section(values.DELIVERY_ANNOTATIONS, values.annotation_map({
        "x-opt-omq-batch": values.items(map(values.long, numbers)),
        "x-opt-omq-mark": values.text(MARK)}))


ONE = packed(native(), "WEST", "")


@pytest.mark.parametrize("data", [
    b"", b"\x00", b"\x00\x53\x75", ONE[:-1], ONE + b"\x00", ONE + ONE,
    bundled([ONE, ONE], Spot(1, 1, 1, MARK)), bundled([ONE], Spot(1, 2, 1, MARK)),
    bundled([ONE, ONE[:-1]], Spot(1, 1, 2, MARK)),
    _annotated([1, 1, 9, 3]) + values.data_section(ONE) * 2,
    _annotated([1, 1, 9, 1]) + values.data_section(ONE) * 2,
    _annotated([1, 1, 9, 2]) + values.data_section(ONE) + ONE,
    _annotated([1, 1, 9, 1]) + values.section(values.APPLICATION, values.text("x")),
    _annotated([1, 1, 9, 1]), _annotated([1 << 62, 1, 1, 1]) + values.data_section(ONE),
    _annotated([1, 1, 1, -1]) + values.data_section(ONE),
    packed(native(said=1 << 16), "WEST", ""), packed(native(said=-1), "WEST", ""),
    _annotated([1, 1]) + ONE, _annotated([1, 1, 1, 1, 1]) + ONE,
    bundled([ONE], Spot(1, 1, 1, "no mark")), bundled([ONE] * (MOST + 1), Spot()),
    bundled([ONE] * (MOST + 1), Spot(1, 1, 1000, MARK)), values.section(0x77, values.TRUE) + ONE,
    bundled([spotted(ONE, Spot(1, 1, 1, MARK))], Spot(1, 1, 1, MARK)),
    bundled([bundled([ONE], Spot(1, 1, 1, MARK))], Spot(1, 1, 1, MARK)),
    values.section(values.PROPERTIES, b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff") + ONE,
    b"\x00\x53\x74" + b"\xc0\x03\x01" * 99 + b"\x40",
    values.section(values.APPLICATION, values.pairs({values.text("a"): b"\x41"})) + ONE])
def test_what_is_none(data: bytes) -> None:
    with pytest.raises(NotAParcel):
        opened(data)


def test_mutated_bytes_are_a_parcel_or_none() -> None:
    """And no other error, whatever is in them."""
    chosen = random.Random(20)
    stream = bundled([packed(native(**RICH | {"body": b"x" * 20}), "WEST", "R"), ONE],
                     Spot(3, 1, 5, MARK))
    refused = 0
    for _ in range(3000):
        data = bytearray(stream if chosen.random() < 0.5 else spotted(ONE, Spot(1, 1, 1, MARK)))
        for _ in range(chosen.choice((1, 1, 3))):
            at = chosen.randrange(len(data))
            data[at] = chosen.choice((0, 0xFF, 0x80, chosen.randrange(256)))
        try:
            opened(bytes(data[: chosen.randrange(len(data) // 2, 2 * len(data))]))
        except NotAParcel:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("value", [None, True, False, 0, 1, 255, 256, 2**31, 2**63, "", "x" * 300,
                                   b"", b"y" * 300, [], [1, ["a"]], {}, {"k": [b"v"]}, 1.5])
def test_values_that_the_library_writes_are_read(value: Any) -> None:
    from proton import Data

    data = Data()
    data.put_object(value if not isinstance(value, int) or value < 2**63 else 0)
    raw = bytes(data.encode())
    expected = value if not isinstance(value, int) or value < 2**63 else 0
    assert values.read(raw, 0) == (expected, len(raw))
