"""Messages: Proton reads what we write as the same and the other way round; what is none is
Malformed; no object is made of what a body nests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from proton import Data, Message, symbol

from omq.amqp.whole_values import decoded, values_in
from omq.fast.amqp_encoding import encoded
from omq.fast.amqp_message import Sections, data_section, head
from omq.format.amqp_types import Malformed, Symbol, Timestamp, Ulong
from tests.unit.amqp.values import PLAIN, SYMBOLS, TEXT, VALUES, theirs

HEAD_MAX = 1 << 16
WIDE = st.integers(0, (1 << 32) - 1)
HEADERS: st.SearchStrategy[Any] = st.tuples(
    st.booleans(), st.integers(0, 255), WIDE, st.booleans(), WIDE)


def read(data: bytes, most: int = HEAD_MAX) -> Sections:
    found = Sections()
    found.read(data, most)
    return found


@given(HEADERS, st.dictionaries(SYMBOLS.filter(bool), PLAIN, max_size=3),
       st.dictionaries(TEXT, PLAIN, max_size=3), st.binary(max_size=600),
       TEXT.filter(lambda text: "\0" not in text))  # the library's are strings of C
def test_the_library_reads_what_we_write(header: Any, notes: Any, application: Any, body: bytes,
                                         subject: str) -> None:
    fields = ["id", b"me", "to", subject, "back", Ulong(7), Symbol("text/plain"), None,
              Timestamp(1000), Timestamp(2000), "group", None, "reply group"]
    durable, priority, ttl, first, count = header
    data = head(durable, priority, ttl, first, count, notes, fields, application)
    data += data_section(body)
    found = Message()
    found.decode(data)
    assert (found.durable, found.priority, found.first_acquirer, found.delivery_count) == (
        header[0], header[1], header[3], header[4])
    assert round(found.ttl * 1000) == header[2]
    assert (found.id, found.subject, found.reply_to, found.correlation_id) == (
        "id", subject, "back", 7)
    assert (found.content_type, found.expiry_time, found.creation_time) == ("text/plain", 1, 2)
    assert bytes(found.body) == body and found.inferred
    ours = read(data)
    assert (ours.durable, ours.priority, ours.ttl, ours.first_acquirer, ours.delivery_count) == (
        header)
    assert repr(ours.annotations or {}) == repr(notes)
    assert repr(ours.application or {}) == repr(application)
    assert (ours.properties, ours.kind, ours.body) == (fields, "data", body)


@given(VALUES)
def test_a_body_that_is_a_value_is_kept_as_it_is(value: Any) -> None:
    data = Data()
    data.put_object(theirs(value))
    raw = bytes(data.encode())
    found = read(b"\x00\x53\x77" + raw)
    assert (found.kind, found.body) == ("value", raw)


def test_we_read_what_the_library_writes() -> None:
    made = Message(body={"a": [1, 2]}, durable=True, priority=7, ttl=3, id="x", group_id="g",
                   group_sequence=5, properties={"n": 1})
    made.annotations = {symbol("x-opt-a"): "b"}
    found = read(bytes(made.encode()))
    assert (found.durable, found.priority, found.ttl) == (True, 7, 3000)
    assert found.annotations == {"x-opt-a": "b"} and found.application == {"n": 1}
    assert found.kind == "value" and decoded(found.body) == {"a": [1, 2]}
    properties = found.properties
    assert properties is not None and properties[0] == "x" and properties[10:12] == ["g", 5]


def test_several_sections_are_one_body() -> None:
    assert read(data_section(b"ab") + data_section(b"") + data_section(b"c")).body == b"abc"
    found = read(b"".join(b"\x00\x53\x76" + encoded(each) for each in ([1], [2, 3])))
    assert [decoded(each) for each in values_in(found.body)] == [[1], [2, 3]]
    assert read(b"").kind == "" and read(head(True, 4, 0, True, 0, {}, [], {})).kind == ""  # noqa: FBT003
    foot = encoded({Symbol("x"): 1})
    assert read(data_section(b"x") + b"\x00\x53\x78" + foot).footer == foot


@pytest.mark.parametrize("data", [
    b"x", b"\x00", b"\x00\x53\x6f\x45", b"\x00\x53\x79\x45", b"\x00\xa3\x01x\x45",
    b"\x00\x53\x75\xa1\x01x", b"\x00\x53\x75\xa0\x05x", b"\x00\x53\x76\xa1\x01x",
    b"\x00\x53\x74\x45", b"\x00\x53\x72\x45", b"\x00\x53\x73\xc1\x01\x00", b"\x00\x53\x78\x45",
    b"\x00\x53\x70\xc0\x02\x01\x40\x41", b"\x00\x53\x70\xc0\x02\x01\x54\x01",
    b"\x00\x53\x70\xc0\x03\x01\xa1\x00", b"\x00\x53\x70\x45\x00\x53\x70\x45",
    b"\x00\x53\x73\x45\x00\x53\x70\x45", b"\x00\x53\x77\x40\x00\x53\x77\x40",
    b"\x00\x53\x75\xa0\x00\x00\x53\x77\x40", b"\x00\x53\x75\xa0\x00\x00\x53\x70\x45",
    b"\x00\x53\x73" + encoded([None] * 14), b"\x00\x53\x77\xa1\x01\xff",
    b"\x00\x53\x71\xa1\x05x"])
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_what_is_beside_the_body_is_bounded() -> None:
    data = b"\x00\x53\x74" + encoded({"a": "x" * 1000}) + data_section(bytes(5000))
    assert len(read(data).body) == 5000
    with pytest.raises(Malformed):
        read(data, 1000)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    found = Sections()
    try:
        found.read(data, HEAD_MAX)
    except Malformed:
        return
    assert len(found.body) <= len(data)
