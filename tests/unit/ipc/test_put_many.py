"""put_many over a manager that may be another one between two of its requests; and how messages
are packed that differ in their bodies alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.errors import BadArgument, MessageTooLong
from omq.base.paths import SpoolPaths
from omq.fast.batch import Batch, alike_bodies, bodies_of, head_of, marks_of
from omq.format.findings import Finding
from omq.format.journal import FRAME, FrameType
from omq.format.message import Descriptor, decode, said_of
from omq.ipc.client.connection_parts import QueueFacts, Wire
from omq.ipc.wire.arguments import NOTHING_SAID
from omq.ipc.wire.outgoing import Encoded, Outgoing, alike_head, encode_outgoing


def test_a_body_that_fits_no_request_is_an_error_and_no_turn_in_vain() -> None:
    """The next manager may have a smaller channel than the one that the bodies were chosen for."""
    wire = cast(Any, object.__new__(Wire))
    wire._batch, wire._names = Batch(), {3: "A"}
    wire.link = SimpleNamespace(room=1000)
    with pytest.raises(MessageTooLong, match="A"):
        wire.put_plain_batch(3, [b"x", b"y" * 5000], 1)


@pytest.mark.parametrize("more", [
    {}, {"priority": 0}, {"priority": 9, "persistent": False}, {"persistent": True},
    {"queues": ("A",)}, {"said": 1}, {"said": 0xFFFF}, {"said": 21, "properties": {}},
    {"said": 0x100, "properties": {}, "persistent": False}])
def test_what_differs_in_bodies_alone_has_the_bytes_of_each_by_itself(more: dict[str, Any]
                                                                      ) -> None:
    first = Outgoing(body=b"", **{"properties": {"a": "b", "long": "\u00e4" * 300}, **more})
    messages = [first, *(first.with_body(body) for body in (b"x", b"y" * 900, b"x", bytes(200),
                                                         b"z" * 999, b"z" * 999))]
    bodies = alike_bodies(messages, Outgoing, "A", 1000)
    assert bodies == [each.body for each in messages]
    assert len(packed(messages)) > 1, "several requests"


def packed(messages: list[Outgoing], room: int = 3000, threshold: int = 1000) -> list[int]:
    """How many are in each request; they have the bytes that each has by itself."""
    bodies, batch, start, counts = [each.body for each in messages], Batch(), 0, list[int]()
    while start < len(messages):
        count = batch.take(7, bodies, start, room, *alike_head(messages[0], "a program"),
                           marks_of(messages))
        assert count > 0
        heads, payloads, at = [], [], 0
        for each in messages[start : start + count]:
            said = encode_outgoing(each, [7], 0, SpoolPaths(Path("/none")), threshold, "a program")
            heads.append(said.head(at))
            payloads.append(said.payload)
            at += len(said.payload)
        assert batch.data == b"".join(heads + payloads)
        assert (batch.count, batch.length) == (count, at)
        start += count
        counts.append(count)
    return counts


@pytest.mark.parametrize("properties", [{}, {"a": "b"}])
@pytest.mark.parametrize("left_open", [0, 5])
def test_members_of_groups_have_the_bytes_of_each_by_itself(properties: dict[str, Any],
                                                            left_open: int) -> None:
    """With numbers in their group, and one that has none; whatever form its id has."""
    groups: tuple[dict[str, Any], ...] = (
        {"group_id": b"g"}, {"group_id": "a text"}, {"group_id": "0" * 46 + "1f"},
        {"group_id": b"g", "group_sequence": 7}, {}, {"group_id": b"\0\xff" + b"x" * 22},
        {"group_id": "a text", "group_sequence": (1 << 31) - 1, "last_in_group": True})
    first = Outgoing(body=b"", properties=properties, said=left_open)
    messages = [first]
    for number in range(60):
        made = replace(first, body=b"b" * (number % 5), **groups[number % len(groups)])
        object.__setattr__(made, "properties", first.properties if properties else {})
        messages.append(made)
    assert alike_bodies(messages, Outgoing, "A", 1000) == [each.body for each in messages]
    assert len(packed(messages)) > 1
    assert marks_of([first, first]) is None


def test_the_id_of_a_group_may_be_more_than_bytes() -> None:
    """Of a class of the program's own."""

    class Key(bytes):
        pass

    assert packed([Outgoing(b"x", group_id=Key(b"k")), Outgoing(b"y", group_id=b"k")]) == [2]


@pytest.mark.parametrize("group", [b"", b"g"])
@pytest.mark.parametrize("more", [{}, {"said": 1}, {"properties": {"long": "p" * 4500}}])
@pytest.mark.parametrize("length", [0, 7, 8, 4095, 4096, 4097, 20_000])
def test_bodies_of_any_length_have_their_checksum(length: int, more: dict[str, Any], group: bytes
                                                  ) -> None:
    """Short ones are summed in place, long ones by the library."""
    first = Outgoing(body=bytes(range(256)) * 80, group_id=b"g", **more)
    other = replace(first.with_body(first.body[:length]), group_id=group)
    object.__setattr__(other, "properties", first.properties)
    assert packed([first, other, first], 1 << 17, 1 << 16) == [3]


@pytest.mark.parametrize(("said", "short"), [
    ({}, True), ({"group_id": b"g"}, True), ({"group_id": b"\0\xff" + b"x" * 22}, True),
    ({"priority": 9, "persistent": False, "group_id": b"g"}, True), ({"group_id": "g"}, False),
    ({"group_id": b""}, True), ({"group_id": b"\0"}, False), ({"group_id": b"x" * 25}, False),
    ({"group_id": b"g", "group_sequence": 1}, False), ({"message_id": b"m"}, False),
    ({"expiry_s": 1.0}, False), ({"priority": True}, False), ({"body": "text"}, False)])
def test_a_body_and_its_group_go_the_short_way(said: dict[str, Any], short: bool) -> None:  # noqa: FBT001
    """With the bytes of the long one; what is more, or wrong, goes the long one."""
    wire = cast(Any, object.__new__(Wire))
    wire._pattern = Descriptor(application=b"a program").encode()
    wire.direct = {"A": QueueFacts(7, 4, persistent=True, length_max=1000)}
    wire.link = SimpleNamespace(threshold=1000)
    more = {"body": b"text", "priority": None, "persistent": None, "group_id": b"", **said}
    rest = [more.get(name, value) for name, value in zip(
        ("correlation_id", "message_id", "expiry_s", "reply_to", "delay_s", "at",
         "group_sequence", "last_in_group", "unique_key"), NOTHING_SAID, strict=True)]
    found = wire.body_alone("A", more["body"], more["priority"], more["persistent"],
                       more["group_id"], tuple(rest))
    assert (found is not None) == short
    if found is not None:
        assert found == encode_outgoing(Outgoing(**more), [7], 0, SpoolPaths(Path("/none")), 1000,
                                        "a program")


def test_the_header_of_a_frame_has_all_that_was_encoded() -> None:
    said = Encoded(1, 9, 0x8001, 1 << 40, 0xFFFFFFFE, (1 << 64) - 2, (1 << 64) - 3, -4, 999,
                   b"some bytes")
    assert head_of(said, 0xFFFFFFFD) == FRAME.pack(
        FrameType.PUT, 9, 0x8001, 1, 0, 0, 0, 0, 1 << 40, 10, 0xFFFFFFFE, 0xFFFFFFFD, 0, 0, 0, 0,
        999, 0, 0, (1 << 64) - 3, 0, 0, (1 << 64) - 2, -4, 0, 0, 0, 0)
    plain = Encoded(2, 0, 0, 0, 0, 0, 0, 0, 0, b"")
    assert head_of(plain, 0) == FRAME.pack(FrameType.PUT, 0, 0, 2, *[0] * 24), "nothing is left"


@pytest.mark.parametrize("other", [
    {"properties": {"a": "b"}}, {"priority": 5}, {"persistent": False}, {"message_id": b"m"},
    {"correlation_id": b"c"}, {"expiry_s": 0.0}, {"delay_s": 1.0}, {"reply_to": "A"},
    {"queues": ("B",)}, {"queues": ("A", "B")}, {"body": b"y" * 1001}, {"said": 1}])
def test_what_differs_in_more_is_packed_by_itself(other: dict[str, Any]) -> None:
    first = Outgoing(body=b"x", properties={"a": "b"})
    assert alike_bodies([first, first.with_body(b"z")], Outgoing, "A", 1000) == [b"x", b"z"]
    more = replace(first, **other)
    if "properties" not in other:
        object.__setattr__(more, "properties", first.properties)
    assert alike_bodies([first, more], Outgoing, "A", 1000) is None
    assert alike_bodies([more], Outgoing, "A", 1000) is None or "properties" in other or (
        {"priority", "persistent", "said"} & set(other))
    assert alike_bodies([first, b"x"], Outgoing, "A", 1000) is None
    assert alike_bodies([], Outgoing, "A", 1000) is None


def test_who_leaves_something_open_says_more_than_a_body() -> None:
    """It is encoded with what it says, alone and with others; nonsense is refused."""
    first = Outgoing(body=b"x", said=5)
    assert bodies_of([first], Outgoing, "A", 1000) is None
    assert bodies_of([replace(first, said=0)], Outgoing, "A", 1000) == [b"x"]
    for each, wanted in ((first, 5), (replace(first, said=0), 0), (first.with_body(b"y"), 5),
                         (replace(first, said=0xFFFF, message_id=b"m"), 0xFFFF)):
        made = encode_outgoing(each, [7], 0, SpoolPaths(Path("/none")), 1000, "a program")
        assert said_of(made.payload) == wanted
        found = decode(made.payload)
        assert not isinstance(found, Finding) and found.descriptor.flags == wanted
    for wrong in (-1, 1 << 16, "1", 1.0, True, None):
        with pytest.raises(BadArgument, match="said"):
            Outgoing(said=wrong)  # type: ignore[arg-type]


def test_the_same_with_another_body_is_the_same() -> None:
    made = Outgoing(body=b"x", properties={"a": "b"}, priority=3, message_id=b"m", expiry_s=1.5,
                    group_id=b"g", group_sequence=2, queues=("A",), said=3)
    assert made.with_body(b"y") == replace(made, body=b"y")
