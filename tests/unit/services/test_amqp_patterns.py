"""What a link remembers of the messages that came or went on it: the same comes of the same bytes,
whatever came before, and goes of the same messages; what differs from one message to the next is
not kept, and what is kept is bounded."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omq.base.checksum import crc32c
from omq.fast.amqp_message import body_at, data_section, head
from omq.fast.handed_messages import Extent
from omq.format.amqp_types import Symbol, Timestamp, Ulong
from omq.format.message import ID_PREFIX, NO_ID, Descriptor, encode, encode_properties
from omq.format.wire import GivenFlag
from omq.ipc.client.message import Message
from omq.services.amqp import translation
from omq.services.amqp.heads import HEADS_MAX, Heads
from omq.services.amqp.translation import PATTERNS_MAX, Patterns, Terms
from omq.services.amqp.untranslatable import Untranslatable

THRESHOLD = 300
NOBODY = "nobody"
IDS: st.SearchStrategy[Any] = st.sampled_from([None, "an id", Ulong(7)])
MESSAGES = st.tuples(
    st.booleans(), st.integers(0, 9), st.sampled_from([0, 5000]),
    st.dictionaries(st.sampled_from([Symbol("x-note"), Symbol("x-opt-delivery-delay")]),
                    st.integers(1, 9), max_size=1),
    IDS, st.sampled_from([None, "B", "amqps://elsewhere/x"]), IDS,
    st.sampled_from([None, Timestamp(4_000_000_000_000)]),
    st.dictionaries(st.sampled_from(["a", "b", "amqp.x"]), st.sampled_from(["1", "2"]), max_size=2),
    st.sampled_from([0, 1, 255, 256, THRESHOLD, THRESHOLD + 1]), st.booleans())


def message(said: Any) -> bytes:
    durable, priority, ttl, notes, own, back, other, expires, application, size, _ = said
    fields = [own, None, None, None, back, other, None, None, expires, None, None, None, None]
    first = True
    return head(durable, priority, ttl, first, 0, notes, fields, application) + data_section(
        b"x" * size)


def outcome(make: Any) -> Any:
    """All that a message says, but for a time that is left: that is another a moment later."""
    try:
        made = make()
    except Untranslatable as error:
        return error.condition, error.reason
    return {name: getattr(made, name) for name in made.__slots__ if name != "expiry_s"} | {
        "expires": made.expiry_s is not None}


@given(st.lists(MESSAGES, max_size=8))
def test_the_same_comes_of_the_same_bytes(many: list[Any]) -> None:
    patterns = Patterns(NOBODY, THRESHOLD)
    for said in [*many, *many]:
        data, settled = message(said), said[-1]
        terms = Terms(NOBODY, settled=settled, threshold=THRESHOLD)
        for each in (data, data[:-1], data + b"\0"):  # whole, cut, and with something behind it
            assert outcome(partial(patterns.message, each, settled=settled)) == outcome(
                partial(translation.decoded, each, terms))


@given(st.binary(max_size=80) | MESSAGES.map(message), st.binary(max_size=3))
def test_where_a_body_begins_is_where_the_strict_reader_finds_it(data: bytes, more: bytes) -> None:
    """Or it is not known: then the strict reader is asked anyway."""
    for each in (data, data + more, data[: len(data) - len(more)]):
        at = body_at(each)
        if at < 0:
            continue
        try:
            found = translation.decoded(each, Terms(NOBODY, settled=False, threshold=1 << 20))
        except Untranslatable:
            continue
        assert found.body == each[at:]


def test_a_whole_body_of_data_is_found() -> None:
    """Else the test above would hold with none found."""
    for size in (0, 1, 255, 256, 70_000):
        data = message((True, 4, 0, {}, None, None, None, None, {"a": "1"}, size, False))
        assert data[body_at(data) :] == b"x" * size
    assert body_at(message((True, 4, 0, {}, None, None, None, None, {"a": "x" * 600}, 1, 0))) < 0


def test_a_message_that_is_read_once_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns, read = Patterns(NOBODY, THRESHOLD), list[bytes]()
    decoded = translation.decoded

    def counted(data: bytes, terms: Terms) -> Any:
        read.append(data)
        return decoded(data, terms)

    monkeypatch.setattr(translation, "decoded", counted)
    plain: Any = (True, 4, 0, {}, None, None, None, None, {"a": "1"})
    for size in (1, 200, 299):
        assert patterns.message(message((*plain, size, False)), settled=False).body == b"x" * size
    assert len(read) == 1
    patterns.message(message((*plain, 1, True)), settled=True)
    assert len(read) == 2, "what is settled is not persistent"
    expires: Any = (True, 4, 9000, {}, None, None, None, None, {}, 1, False)
    own: Any = (True, 4, 0, {}, "an id", None, None, None, {}, 1, False)
    for said in (expires, expires, own, own):
        patterns.message(message(said), settled=False)
    assert len(read) == 6, "times that are left and ids differ"


def test_what_is_kept_is_bounded() -> None:
    patterns = Patterns(NOBODY, THRESHOLD)
    for number in range(3 * PATTERNS_MAX):
        said: Any = (True, 4, 0, {}, None, None, None, None, {"a": str(number)}, 1, False)
        assert patterns.message(message(said), settled=False).properties == {"a": str(number)}
        assert len(patterns._known) <= PATTERNS_MAX


@pytest.mark.parametrize("size", [10, 256])
def test_what_is_cut_or_goes_on_is_refused_behind_the_same_beginning(size: int) -> None:
    patterns = Patterns(NOBODY, THRESHOLD)
    said: Any = (True, 4, 0, {}, None, None, None, None, {}, size, False)
    data = message(said)
    patterns.message(data, settled=False)
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(Untranslatable):
            patterns.message(wrong, settled=False)


OWN = ID_PREFIX.hex() + "ab" * 12
"""What ids of the instance begin with."""
LIKE_A_TIME = "\u0103" + "\0" * 7 + "\1"
"""Text whose bytes are a timestamp of 1 ms, too."""
GIVEN = st.sampled_from([NO_ID, NO_ID, NO_ID, b"x".ljust(24, b"\0"),
                         bytes.fromhex(OWN + "0" * 15 + "1")])
TAKEN = st.tuples(
    GIVEN, st.sampled_from([NO_ID, NO_ID, b"c".ljust(24, b"\0")]),
    st.sampled_from([NO_ID, NO_ID, b"g".ljust(24, b"\0")]),
    st.sampled_from([0, 0, 17 * 10**17 + 10**12]), st.sampled_from([0, 0, 7]),
    st.dictionaries(
        st.sampled_from(["a", "amqp.body", "amqp.subject", "amqp.footer", "amqp.creation-time"]),
        st.sampled_from(["string", "value", "binary", "null", "data", "1.5", OWN + "0" * 15 + "1",
                         LIKE_A_TIME]),
        max_size=2),
    st.sampled_from([b"", b"text", b"\xff", bytes(300)]), st.integers(0, 9), st.integers(0, 2),
    st.booleans(), st.integers(1, 3), st.sampled_from([0, 1, 1_700_000_000_123]))
CHANGES: dict[str, Any] = {
    "id": lambda said: (*said[:10], 1 + said[10] % 3, said[11]),
    "time": lambda said: (*said[:11], 5),
    "priority": lambda said: (*said[:7], (said[7] + 1) % 10, *said[8:]),
    "attempts": lambda said: (*said[:8], said[8] + 1, *said[9:]),
    "persistence": lambda said: (*said[:9], not said[9], *said[10:]),
    "body": lambda said: (*said[:6], said[6] + b"\xff", *said[7:])}


def taken(said: Any) -> Message:
    """A message in hand."""
    (own, correlation, group, expiry, back, texts, body, priority, attempts, persistent, qpool,
     created_ms) = said
    raw = encode(Descriptor(expiry=expiry, message_id=own, correlation_id=correlation,
                            group_id=group, reply_to=back), [],
                 encode_properties(texts) if texts else b"", body)
    made = Message()
    made._wire = cast("Any", SimpleNamespace(
        link=SimpleNamespace(id_prefix=OWN), queue_name=lambda number, qpool: f"Q{number}"))
    made._extent, made._length, made._crc = Extent(None, 0, 0, len(raw), raw), len(raw), crc32c(raw)
    made.size, made.priority, made.attempts, made.qpool_id = len(body), priority, attempts, qpool
    made._flags = int(GivenFlag.PERSISTENT) if persistent else 0
    made.put_time_ns = created_ms * 1_000_000
    return made


def bytes_or_why(make: Any, said: Any) -> Any:
    try:
        return make(taken(said))
    except Untranslatable as error:
        return error.condition, error.reason


@given(st.lists(TAKEN, max_size=3))
@settings(deadline=None)
def test_what_goes_out_is_the_same_whatever_went_before(many: list[Any]) -> None:
    """Byte for byte, also of what cannot be translated; each once more with one thing changed, and
    later."""
    heads = Heads()
    with patch("omq.services.amqp.translation.time.time_ns") as clock:
        changed = [each for said in many for each in (
            said, *[change(said) for change in CHANGES.values()])]
        for late, said in enumerate(changed):
            clock.return_value = 17 * 10**17 + late * 10**9
            assert bytes_or_why(heads.encoded, said) == bytes_or_why(translation.encoded, said)


def test_the_time_that_is_left_is_that_of_each() -> None:
    heads = Heads()
    said: Any = (NO_ID, NO_ID, NO_ID, 17 * 10**17 + 10**12, 0, {}, b"", 4, 0, True, 1, 1)
    with patch("omq.services.amqp.translation.time.time_ns") as clock:
        for late in range(3):
            clock.return_value = 17 * 10**17 + late * 10**9
            assert bytes_or_why(heads.encoded, said) == bytes_or_why(translation.encoded, said)


@pytest.mark.parametrize(("texts", "bodies"), [
    ({"amqp.subject": LIKE_A_TIME}, (b"", b"")), ({"amqp.body": "string"}, (b"text", b"\xff"))])
def test_what_would_mislead_is_translated_anew(texts: dict[str, str], bodies: tuple[bytes, bytes]
                                               ) -> None:
    heads = Heads()
    for number, body in enumerate(bodies, 1):
        said: Any = (NO_ID, NO_ID, NO_ID, 0, 0, texts, body, 4, 0, True, number, number)
        assert bytes_or_why(heads.encoded, said) == bytes_or_why(translation.encoded, said)


def test_a_head_is_made_once() -> None:
    """Of messages that differ in bodies, ids of the instance and times; what is kept is bounded."""
    heads, made = Heads(), list[int]()
    encoded_once = translation.encoded

    def counted(message: Message) -> bytes:
        made.append(message.qpool_id)
        return encoded_once(message)

    plain: Any = (NO_ID, NO_ID, NO_ID, 0, 0)
    with patch("omq.services.amqp.heads.translation.encoded", counted):
        for texts in ({}, {"a": "b"}, {"amqp.body": "string"}):
            for qpool in (1, 2, 3):
                heads.encoded(taken((*plain, texts, b"t%d" % qpool, 4, 0, True, qpool, qpool)))
        assert made == [1, 1, 1] and len(heads._known) == 3
        for number in range(3 * HEADS_MAX):
            heads.encoded(taken((*plain, {"a": str(number)}, b"", 4, 0, True, 1, 1)))
            assert len(heads._known) <= HEADS_MAX
        kept = len(heads._known)
        heads.encoded(taken((*plain, {"a": "x" * 2000}, b"", 4, 0, True, 1, 1)))
        assert len(heads._known) == kept, "it is large"
