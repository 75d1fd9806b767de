"""The flat codec of AMQP 0-9-1: pamqp reads what we write as the same, and the other way round;
whatever the bytes are, they are frames, or they are malformed and pamqp's are none either."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")
from pamqp import base, body, commands, encode, frame, header

from omq.fast import amqp091_properties, amqp091_sending
from omq.fast.amqp091_frames import ACK, BODY, FRAMING, HEADER, HEARTBEAT, METHOD, PUBLISH, Frames
from omq.format.amqp_types import Malformed

CHANNELS = st.integers(1, 65535)
SHORT = st.text(max_size=60)
NAMES = st.text("abcXYZ019-_.:", max_size=60)
TAGS = st.integers(0, (1 << 63) - 1)
TABLES = st.dictionaries(st.text(min_size=1, max_size=20), st.one_of(
    st.text(max_size=30), st.integers(-(1 << 31), (1 << 31) - 1), st.booleans(), st.none(),
    st.lists(st.text(max_size=5), max_size=3)), min_size=1, max_size=5)
WORDS = st.text(min_size=1, max_size=60)
PROPERTIES: Any = st.fixed_dictionaries({}, optional={
    "content_type": WORDS, "content_encoding": WORDS, "headers": TABLES,
    "delivery_mode": st.sampled_from((1, 2)), "priority": st.integers(0, 255),
    "correlation_id": WORDS, "reply_to": WORDS, "expiration": WORDS, "message_id": WORDS,
    "timestamp": st.integers(0, (1 << 32) - 1),  # beyond it the library writes others
    "message_type": WORDS,
    "user_id": WORDS, "app_id": WORDS})
NO_FRAMES = (
    b"\x01\x00\x01\xff\xff\xff\xff", b"\x03\x00\x01\x00\x00\x00\x01xy",
    b"\x07\x00\x01\x00\x00\x00\x00\xce", b"\x01\x00\x01\x00\x00\x00\x00\xce",
    b"\x02\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x00\xce",
    b"\x02\x00\x01\x00\x00\x00\x0e\x00\x0a" + bytes(12) + b"\xce",
    b"\x01\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x50" + bytes(10) + b"\xce",
    b"\x01\x00\x01\x00\x00\x00\x0a\x00\x3c\x00\x28\x00\x00\xff\x00\x00\x00\xce",
    b"\x01\x00\x01\x00\x00\x00\x0a\x00\x3c\x00\x28\x00\x00\x00\x00\x00\x00\xce",
    b"\x01\x00\x01\x00\x00\x00\x0a\x00\x3c\x00\x28\x00\x00\x01\xff\x00\x00\xce")


def theirs(said: dict[str, Any]) -> commands.Basic.Properties:
    """As pamqp has them."""
    given = dict(said)
    if "timestamp" in given:
        given["timestamp"] = datetime.fromtimestamp(given["timestamp"], UTC)
    return commands.Basic.Properties(**given)


def frames_of(data: bytes, most: int = 1 << 17) -> Frames:
    frames = Frames(most)
    frames.feed(data)
    return frames


def all_of(data: bytes) -> list[tuple[int, Any]]:
    """What pamqp reads, frame after frame."""
    found: list[tuple[int, Any]] = []
    while data:
        used, channel, what = frame.unmarshal(data)
        found.append((channel, what))
        data = data[used:]
    return found


@given(CHANNELS, NAMES, SHORT, st.booleans(), st.booleans())
def test_publish(channel: int, exchange: str, key: str, mandatory: bool,  # noqa: FBT001
                 immediate: bool) -> None:  # noqa: FBT001
    said = commands.Basic.Publish(0, exchange, key, mandatory, immediate)
    frames = frames_of(frame.marshal(said, channel))
    assert frames.next()
    assert (frames.kind, frames.channel) == (PUBLISH, channel)
    assert (frames.exchange, frames.key) == (exchange, key)
    assert (frames.mandatory, frames.immediate) == (mandatory, immediate)
    assert not frames.next()


@given(CHANNELS, TAGS, st.booleans())
def test_ack_both_ways(channel: int, tag: int, multiple: bool) -> None:  # noqa: FBT001
    data = frame.marshal(commands.Basic.Ack(tag, multiple), channel)
    frames = frames_of(data)
    assert frames.next()
    assert (frames.kind, frames.channel, frames.tag, frames.multiple) == (
        ACK, channel, tag, multiple)
    out = bytearray()
    amqp091_sending.ack(out, channel, tag, multiple)
    assert out == data


@given(CHANNELS, PROPERTIES, st.binary(max_size=300))
def test_a_content_that_comes(channel: int, said: dict[str, Any], data: bytes) -> None:
    properties = theirs(said)
    raw = frame.marshal(header.ContentHeader(0, len(data), properties), channel)
    frames = frames_of(raw + frame.marshal(body.ContentBody(data), channel))
    assert frames.next()
    assert (frames.kind, frames.channel, frames.body_size) == (HEADER, channel, len(data))
    found = amqp091_properties.read(frames.payload)
    if "headers" in said:
        assert found.pop("headers") == encode.field_table(said["headers"])
    assert found == {name: value for name, value in said.items() if name != "headers"}
    assert frames.next()
    assert (frames.kind, frames.payload) == (BODY, data)


@given(CHANNELS, WORDS, TAGS, st.booleans(), NAMES, SHORT, PROPERTIES, st.binary(max_size=300),
       st.integers(20, 200))
def test_a_delivery_that_goes(channel: int, consumer: str, tag: int, redelivered: bool,  # noqa: FBT001
                              exchange: str, key: str, said: dict[str, Any], data: bytes,
                              most: int) -> None:
    own = {"mode": said.pop("delivery_mode", 0), "priority": said.pop("priority", 256)}
    names = {each: said.pop(each, "") for each in ("correlation_id", "reply_to", "message_id",
                                                   "expiration")}
    rest = dict(said)
    if "headers" in rest:
        rest["headers"] = encode.field_table(rest["headers"])
    head = amqp091_properties.head(len(data), own["mode"], own["priority"],
                                   *amqp091_properties.written(rest), *names.values())
    short = amqp091_properties.short
    out = bytearray()
    amqp091_sending.deliver(out, channel, short(consumer), tag, redelivered,
                            short(exchange) + short(key), head, data, most)
    first, second, *pieces = all_of(bytes(out))
    assert first == (channel, first[1])
    assert first[1].marshal() == commands.Basic.Deliver(
        consumer, tag, redelivered, exchange, key).marshal()
    wanted = theirs({**said, **({"delivery_mode": own["mode"]} if own["mode"] else {}),
                     **({"priority": own["priority"]} if own["priority"] < 256 else {}),
                     **{name: text for name, text in names.items() if text}})
    assert second[1].body_size == len(data)
    assert second[1].properties.marshal() == wanted.marshal()
    assert b"".join(piece.value for _, piece in pieces) == data
    assert all(len(piece.value) + 8 <= most for _, piece in pieces)


@given(PROPERTIES)
def test_what_is_read_is_written_as_the_same(said: dict[str, Any]) -> None:
    raw = theirs(said).marshal()
    flags, first, last = amqp091_properties.written(
        {name: value for name, value in amqp091_properties.read(raw).items()
         if name not in ("delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
                         "message_id")})
    assert raw[2:].startswith(first) and raw.endswith(last)
    assert flags & int.from_bytes(raw[:2], "big") == flags


def test_in_pieces() -> None:
    """Byte by byte; the last frame lacks its end."""
    out = bytearray(frame.marshal(commands.Basic.Ack(7), 3))
    amqp091_sending.content(out, 3, b"\x00\x3c" + bytes(12), b"x" * 100, 58)
    frames = Frames(4096)
    found = []
    for each in out[:-1]:
        frames.feed(bytes((each,)))
        while frames.next():
            found.append((frames.kind, frames.channel, frames.size))
    assert found == [(ACK, 3, 13), (HEADER, 3, 14), (BODY, 3, 50)]
    frames.feed(bytes(out[-1:]))
    assert frames.next() and frames.payload == b"x" * 50


@pytest.mark.parametrize("data", NO_FRAMES)
def test_what_is_no_frame(data: bytes) -> None:
    with pytest.raises(Malformed):
        frames_of(data, 4096).next()


def test_of_a_frame_that_is_too_long_nothing_is_waited_for() -> None:
    frames = frames_of(b"\x03\x00\x01\x00\x00\x0f\xf9", 4096)
    with pytest.raises(Malformed, match="4089 bytes") as caught:
        frames.next()
    assert caught.value.condition == FRAMING
    assert not frames_of(b"\x03\x00\x01\x00\x00\x0f\xf8", 4096).next()


def test_a_name_that_is_said_again_is_that_name() -> None:
    frames = frames_of(b"".join(frame.marshal(commands.Basic.Publish(0, *each), 1) for each in (
        ("x", "a"), ("x", "b"), ("", "b"), ("x", ""), ("", ""))))
    found = []
    while frames.next():
        found.append((frames.exchange, frames.key))
    assert found == [("x", "a"), ("x", "b"), ("", "b"), ("x", ""), ("", "")]


@pytest.mark.parametrize("text", ["x" * 256, "\ud800"])
def test_a_short_string_that_cannot_be_one(text: str) -> None:
    with pytest.raises(Malformed):
        amqp091_properties.short(text)


@pytest.mark.parametrize("when", [-1, amqp091_properties.TIME_MAX + 1, 1 << 70])
def test_a_time_that_cannot_be_said(when: int) -> None:
    with pytest.raises(Malformed):
        amqp091_properties.written({"timestamp": when})


@given(st.one_of(
    st.binary(max_size=200),
    st.builds(lambda said, cut, at, value: _changed(theirs(said).marshal(), cut, at, value),
              PROPERTIES, st.integers(0, 60), st.integers(0, 200), st.integers(0, 255))))
@example(b"\x00\x40" + b"\xff" * 8)
@example(b"\x20\x00\x80\x00\x00\x00")
@example(b"\xfc\x00")
@example(b"\x00\x40\x00\x00\x00\x01\x00\x00\x00\x00")
def test_any_bytes_are_properties_or_malformed(raw: bytes) -> None:
    """Where we read them, the library reads the same, if it reads them at all."""
    try:
        found = amqp091_properties.read(raw)
    except Malformed:
        return
    try:
        made = header.ContentHeader()
        made.unmarshal(b"\x00\x3c" + bytes(10) + raw)
    except Exception:  # a table that is none: translation reads it with the library
        assert "headers" in found
        return
    for name, value in found.items():
        other = getattr(made.properties, name)
        if name == "timestamp":  # what is longer the library takes for milliseconds
            assert value >= 1 << 32 or other.timestamp() == value
        elif name != "headers":
            assert other == value


@given(st.data())
def test_any_frames_are_what_the_library_reads_or_malformed(chosen: st.DataObject) -> None:
    """Methods with bytes changed: the library refuses them, too, or they say the same. What only we
    refuse is a method that goes on behind its arguments, or a text that is no UTF-8."""
    said = chosen.draw(st.one_of(
        st.builds(commands.Basic.Publish, st.just(0), NAMES, SHORT, st.booleans(), st.booleans()),
        st.builds(commands.Basic.Ack, TAGS, st.booleans()),
        st.builds(commands.Basic.Qos, st.just(0), st.integers(0, 65535), st.booleans()),
        st.builds(commands.Queue.Declare, st.just(0), NAMES, st.booleans())))
    raw = bytearray(frame.marshal(said, 1))
    for _ in range(chosen.draw(st.integers(0, 3))):
        raw[chosen.draw(st.integers(7, len(raw) - 2))] = chosen.draw(st.integers(0, 255))
    frames = frames_of(bytes(raw))
    try:
        assert frames.next()
    except Malformed:
        return
    try:
        _, channel, what = frame.unmarshal(bytes(raw))
    except Exception:  # hostile: whatever the codec raises
        assert frames.kind == METHOD
        return
    assert channel == frames.channel
    if frames.kind == PUBLISH:
        assert isinstance(what, commands.Basic.Publish)
        assert (what.exchange, what.routing_key, what.mandatory, what.immediate) == (
            frames.exchange, frames.key, frames.mandatory, frames.immediate)
    elif frames.kind == ACK:
        assert isinstance(what, commands.Basic.Ack)
        assert (what.delivery_tag % (1 << 64), what.multiple) == (  # which has it with a sign
            frames.tag, frames.multiple)
    else:
        assert isinstance(what, base.Frame) and frames.payload == bytes(raw)


def _changed(raw: bytes, cut: int, at: int, value: int) -> bytes:
    made = bytearray(raw[: max(0, len(raw) - cut)])
    if made:
        made[at % len(made)] = value
    return bytes(made)


@pytest.mark.parametrize("raw", [b"\x00\x00x", b"\x08\x00\x04x", b"\x80\x00\x01xy", b"\x00\x01"])
def test_what_is_behind_the_properties_is_no_property(raw: bytes) -> None:
    """The library passes over it."""
    with pytest.raises(Malformed):
        amqp091_properties.read(raw)


def test_a_heart_beat() -> None:
    frames = frames_of(b"\x08\0\0\0\0\0\0\xce" * 2)
    assert frames.next() and frames.kind == HEARTBEAT
    assert frames.next() and not frames.next()
