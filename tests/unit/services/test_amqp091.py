"""Parts of AMQP 0-9-1 without a server: topics, arguments, properties, definitions, frames."""

from __future__ import annotations

import math
import random
import re
import struct
import sys
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")
from pamqp import commands

from omq.amqp.property_kinds import decimal_bytes, texts_in, values_out
from omq.format.amqp_types import (
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Malformed,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from omq.services.amqp.sasl_door import NotAmqp
from omq.services.amqp.translation import Terms
from omq.services.amqp091 import protocol_switch, queue_arguments, tables, translation
from omq.services.amqp091.binding_index import Binding
from omq.services.amqp091.exchange_changes import bound, declared, removed
from omq.services.amqp091.exchanges import BINDINGS_MAX, Exchange, Exchanges, binding_record
from omq.services.amqp091.refusals import Refused
from omq.services.amqp091.routing import sooner

TERMS = Terms("alice", settled=False, threshold=1000)


def raw(**given: Any) -> bytes:
    """Properties as they come in."""
    return bytes(commands.Basic.Properties(**given).marshal())


@pytest.mark.parametrize(("pattern", "those", "others"), [
    ("a.b", ["a.b"], ["a", "a.b.c", "", "b.a", "a.bb"]),
    ("*", ["a", "b"], ["", "a.b"]),
    ("a.*", ["a.b"], ["a", "a.b.c"]),
    ("*.b", ["a.b"], ["b", "a.b.b"]),
    ("#", ["", "a", "a.b.c"], []),
    ("a.#", ["a", "a.b", "a.b.c"], ["", "b.a"]),
    ("#.z", ["z", "a.z", "a.b.z"], ["", "z.a"]),
    ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "az"]),
    ("#.*", ["a", "a.b"], [""]),
    ("", [""], ["a"]),
    ("a..b", ["a..b"], ["a.b"])])
def test_topics(pattern: str, those: list[str], others: list[str]) -> None:
    exchange = Exchange("topic")
    exchange.bind(Binding(pattern, "A"), durable=False)
    assert [each for each in those if not exchange.meant(each)] == []
    assert [each for each in others if exchange.meant(each)] == []
    exchange.unbind(Binding(pattern, "A"))
    assert [each for each in those if exchange.meant(each)] == []


def test_a_pattern_that_is_made_to_be_slow() -> None:
    exchange = Exchange("topic")
    exchange.bind(Binding("#.*." * 60 + "x", "A"), durable=False)
    began = time.process_time()
    assert not exchange.meant("a." * 127 + "a")
    assert time.process_time() - began < 5


def like(pattern: str) -> re.Pattern[str]:
    """A topic as a regular expression of its words, each of which ends with a point."""
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return re.compile("".join(words.get(each, re.escape(each) + r"\.")
                              for each in (pattern.split(".") if pattern else [])))


@pytest.mark.parametrize("seed", range(4))
def test_an_exchange_finds_what_its_patterns_mean(seed: int) -> None:
    """Short ones and those of more words than the tree has levels, while some come and go."""
    r = random.Random(seed)

    def topic(of: str, most: int) -> str:
        return ".".join(r.choice(of) for _ in range(r.randrange(most)))

    exchange, bound_ = Exchange("topic"), dict[Binding, re.Pattern[str]]()
    for _ in range(300):
        pattern = topic("ab*#", r.choice((4, 14)))
        binding = Binding(pattern, r.choice("XY"))
        if r.random() < 0.7:
            exchange.bind(binding, durable=False)
            bound_[binding] = like(pattern)
        elif bound_:
            exchange.unbind(gone := r.choice(list(bound_)))
            del bound_[gone]
        for key in (topic("ab", 4), topic("abc", 14)):
            words = key + "." if key else ""
            assert sorted(exchange.meant(key)) == sorted(
                each for each, said in bound_.items() if said.fullmatch(words))
    for each in list(bound_):
        exchange.unbind(each)
    index: Any = exchange._index
    assert not exchange.bound and not index._root.below and not index._root.ends


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_a_key_is_not_compared_with_every_binding(kind: str) -> None:
    """As many as there may be: each message may have a key of its own, and all connections wait."""
    exchange = Exchange(kind)
    compared: list[str] = []

    class Word(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

        def split(self, *by: Any) -> Any:
            return [Word(each) for each in str.split(self, *by)]

    for number in range(BINDINGS_MAX):
        key = f"order.{number}.*" if kind == "topic" else f"order.{number}.x"
        exchange.bind(Binding(Word(key), "A"), durable=False)
    compared.clear()
    assert len(exchange.meant("order.77.x")) == 1
    assert len(compared) < 10


def test_arguments_of_nothing() -> None:
    assert queue_arguments.read(None) == queue_arguments.read({}) == queue_arguments.Keys()


@pytest.mark.parametrize("given", [
    {"x-message-ttl": True}, {"x-message-ttl": -1}, {"x-message-ttl": 1.5}, {"odd": 1},
    {"x-max-length": 0, "x-overflow": "reject-publish"}, {"x-queue-type": ["classic"]},
    {"x-queue-type": {}}, {"x-dead-letter-routing-key": "B"}, {"x-expires": 0}])
def test_arguments_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        queue_arguments.read(given)


def test_properties_of_a_message() -> None:
    given = raw(
        headers={"n": 1, "deep": {"a": [1]}}, timestamp=datetime.fromtimestamp(5, UTC),
        expiration="1500", delivery_mode=2, priority=200, user_id="alice")
    made = translation.outgoing(given, b"x", TERMS, "logs", "a.b")
    assert (made.expiry_s, made.priority, made.persistent) == (1.5, 9, True)
    assert made.properties["amqp.exchange"] == "logs"
    assert made.properties["amqp.routing-key"] == "a.b"
    assert "amqp.routing-key" not in translation.outgoing(given, b"x", TERMS, "", "A").properties
    assert translation.outgoing(given, b"x", TERMS, "", "a").properties["amqp.routing-key"] == "a"


def sized(raw_: bytes) -> bytes:
    return len(raw_).to_bytes(4, "big") + raw_


DEEP = b"F" + sized(b"\x01aA" + sized(b"I\0\0\0\5d" + struct.pack(">d", 0.1) + b"V")
                    + b"\xc8" + b"k" * 200 + b"D\2\xff\xff\xff\x6a")


@pytest.mark.parametrize("field", [
    b"t\0", b"t\1", b"t\2", b"b\xff", b"B\xff", b"s\xff\xfe", b"u\0\5", b"I\0\0\0\5",
    b"i\xff\xff\xff\xff", b"l" + struct.pack(">q", 5), b"L" + struct.pack(">q", -5),
    b"f" + struct.pack(">f", 0.1), b"f\x7f\xc0\0\1", b"d" + struct.pack(">d", 0.1),
    b"d" + struct.pack(">d", 1e300), b"d\x7f\xf8\0\0\0\0\0\1", b"D\2\0\0\0\x96",
    b"D\2\xff\xff\xff\x6a", b"D\xff\x7f\xff\xff\xff", b"D\5\0\0\0\0",
    b"D\0\x80\0\0\0",
    b"S" + sized("\u20ac\0x".encode()), b"S" + sized(b"\xff\xfe"), b"x" + sized(b"abc"),
    b"x" + sized(b"\xff"), b"T" + struct.pack(">q", 1_700_000_000),
    b"T" + struct.pack(">q", 1_700_000_000_000), b"T" + struct.pack(">q", -5), b"T" + b"\xff" * 8,
    b"T\x7f" + b"\xff" * 7, b"V", b"\0", b"A" + sized(b""), b"F" + sized(b""), DEEP])
def test_each_type_of_a_header_comes_back_bit_for_bit(field: bytes) -> None:
    """Beside another one, and as others see what is on the queue."""
    given = tables.table({"k": field, "n": b"I\0\0\0\1"})
    made = translation.outgoing(b"\x20\x00" + given, b"", TERMS, "", "A")
    texts = dict(made.properties)
    assert values_out(texts)["n"] == 1
    assert translation.said(texts).first == given


@pytest.mark.parametrize("field", [b"T\0\0\0\0\0\0\0\1", b"S" + sized(b"\xff")])
def test_what_a_program_has_changed_counts(field: bytes) -> None:
    """And not what the header was; of a message of an earlier version nobody sees it, and it comes
    back."""
    given = b"\x20\x00" + tables.table({"k": field})
    texts = dict(translation.outgoing(given, b"", TERMS, "", "A").properties)
    assert values_out(texts)["k"] is not None
    changed = {**texts, **texts_in({"k": "new"})}
    changed.pop("amqp.types")
    assert translation.said(changed).first == tables.table({"k": b"S" + sized(b"new")})
    earlier = {"amqp.headers": texts["amqp.headers"]}
    assert translation.said(earlier).first == tables.table({"k": field})


@pytest.mark.parametrize(("value", "field"), [
    (True, b"t\1"), (Byte(-5), b"b\xfb"), (Ubyte(5), b"B\5"), (Short(5), b"s\0\5"),
    (Ushort(5), b"u\0\5"), (Int(-5), b"I\xff\xff\xff\xfb"), (Uint(5), b"i\0\0\0\5"),
    (5, b"l" + struct.pack(">q", 5)), (Ulong(5), b"l" + struct.pack(">q", 5)),
    (Float(0.5), b"f" + struct.pack(">f", 0.5)), (0.1, b"d" + struct.pack(">d", 0.1)),
    (1e300, b"d" + struct.pack(">d", 1e300)), (math.nan, b"d" + struct.pack(">d", math.nan)),
    (b"\xff\0", b"x" + sized(b"\xff\0")), ("t\0", b"S" + sized(b"t\0")), (None, b"V"),
    (Symbol("s"), b"S" + sized(b"s")), (Char("\u20ac"), b"S" + sized("\u20ac".encode())),
    (UUID(int=5), b"S" + sized(str(UUID(int=5)).encode())),
    (Timestamp(-1), b"l" + b"\xff" * 8), ([1, "a"], b"A" + sized(
        b"l" + struct.pack(">q", 1) + b"S" + sized(b"a"))),
    ({"a": 0.1}, b"F" + sized(b"\1ad" + struct.pack(">d", 0.1))),
    (Decimal64(decimal_bytes("decimal64", "-1.50")), b"D\2\xff\xff\xff\x6a"),
    (Decimal64(decimal_bytes("decimal64", "1E+3")), b"D\0\0\0\3\xe8")])
def test_a_value_of_another_protocol_keeps_its_type(value: Any, field: bytes) -> None:
    assert translation.said(texts_in({"k": value})).first == tables.table({"k": field})


@pytest.mark.parametrize("value", [
    Ulong((1 << 64) - 1), Described(Symbol("x"), 1), {1: 2},
    *(Decimal64(decimal_bytes("decimal64", each)) for each in (
        "NaN", "-Infinity", "1E+10", "3000000000", "-0", "1E-256"))])
def test_a_value_without_a_type_here_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ValueError, match="the property 'kept'"):
        translation.said(texts_in({"kept": value}))


@pytest.mark.parametrize("when", [0, 1, 1_700_000_000, 1_700_000_000_123, 1 << 53])
def test_times_come_back_in_seconds_or_in_what_was_said(when: int) -> None:
    given = b"\0\x40" + when.to_bytes(8, "big")
    made = translation.outgoing(given, b"", TERMS, "", "A")
    assert translation.said(dict(made.properties)).last == given[2:]
    with pytest.raises(Malformed):
        translation.outgoing(b"\0\x40" + ((1 << 53) + 1).to_bytes(8, "big"), b"", TERMS, "", "A")


@pytest.mark.parametrize("given", [
    b"", b"\0", b"\0\0\0\5\1kV", b"\0\0\0\1\5", b"\0\0\0\3\1kt", b"\0\0\0\3\1kZ",
    b"\0\0\0\3\1\xffV", b"\0\0\0\7\1kS\0\0\0\1", b"\0\0\0\4\1kVV\1", sized(
        b"\1kF" + sized(b"\1aZ")), sized(b"\1kA" + sized(b"t"))])
def test_bytes_that_are_no_table(given: bytes) -> None:
    with pytest.raises(Malformed):
        tables.fields(given)


def test_a_table_nests_so_deep() -> None:
    value = b"V"
    for _ in range(1000):
        value = b"A" + sized(value)
    with pytest.raises(Malformed, match="deep"):
        tables.fields(sized(b"\1k" + value))


@pytest.mark.parametrize("given", [
    {"expiration": "-1"}, {"expiration": "1.5"}, {"expiration": "\u0661"}, {"user_id": "bob"},
    {"headers": {"amqp.x": 1}}, {"headers": {"omq.x": 1}}, {"headers": {"CC": ["B"]}},
    {"headers": {"x-delay": "1"}}, {"headers": {"x-delay": -1}}])
def test_properties_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        translation.outgoing(raw(**given), b"", TERMS, "", "A")


@pytest.mark.parametrize("given", [
    b"", b"\x20", b"\x20\x00\0\0\0\4\1xX\0", b"\x20\x00\0\0\0\1\1", b"\x20\x00\xff\xff\xff\xff"])
def test_properties_that_cannot_be_read(given: bytes) -> None:
    with pytest.raises(Malformed):
        translation.outgoing(given, b"", TERMS, "", "A")


def test_a_table_of_no_entries_is_none() -> None:
    made = translation.outgoing(b"\x20\x00\0\0\0\0", b"", TERMS, "", "A")
    assert made.properties == {}


@pytest.mark.parametrize(("texts", "error"), [
    ({"amqp.creation-time": "x"}, ValueError), ({"amqp.creation-time": "1e300"}, Malformed),
    ({"amqp.headers": "0"}, ValueError), ({"amqp.message-id": "zz"}, ValueError),
    ({"amqp.user-id": "u" * 300}, Malformed), ({"amqp.reply-to": "r" * 300}, Malformed),
    ({"amqp.exchange": "e" * 200}, ValueError), ({"amqp.routing-key": "k" * 300}, TypeError)])
def test_properties_of_others_that_make_no_sense(texts: dict[str, str], error: type[Exception]
                                                 ) -> None:
    """Whoever put it: it is the message that cannot be given, and not its consumer that ends."""
    with pytest.raises(error):
        translation.said(texts)


def test_the_table_is_read_anew() -> None:
    """What is on the disk counts, with what never was there; bindings of what is not there go."""
    table = Exchanges()
    records = [Exchange("topic").record("t"), binding_record("t", Binding("k", "A")), None,
               binding_record("gone", Binding("k", "A")),
               binding_record("t", Binding("k", to="gone")),
               binding_record("t", Binding("k", to="amq.topic"))]
    assert table.take(records) == records[3:5]
    assert table.known["t"].bound == {("k", "A", ""): True, ("k", "", "amq.topic"): True}
    table.known["t"].bind(Binding("k", "TEMP"), durable=False)
    table.known["t"].bind(Binding("k", to="lost"), durable=False)
    table.known["u"] = Exchange("fanout", durable=False)
    table.known["lost"] = Exchange("fanout")
    table.take([Exchange("topic").record("t")])
    assert table.known["t"].bound == {("k", "TEMP", ""): False}
    assert "u" in table.known and "lost" not in table.known and "amq.topic" in table.known
    assert table.routed("t", "k") == ("TEMP",) and table.routed("none", "k") is None


def changed(table: Exchanges, changes: Any) -> list[Any]:
    """They are carried out; what of them is on the disk, names alone."""
    for each in changes:
        each.apply()
    table.changed()
    return [each.record.get("to", each.record["exchange"]) for each in changes if each.record]


def test_a_circle_of_exchanges_ends() -> None:
    """As many as there may be, each bound to the next one and the last one to the first: a message
    comes to each queue once. Each exchange is asked once, or this would not end today."""
    table = Exchanges()
    table.take([])
    count = 900
    for at in range(count):
        changed(table, [declared(table, str(at), Exchange("fanout"))])
    for at in range(count):
        for step in (1, 2, 3, 0):
            changed(table, [bound(table, str(at), Binding("", to=str((at + step) % count)),
                                  durable=True)])
        changed(table, [bound(table, str(at), Binding("", f"Q{at % 7}"), durable=True)])
    assert sorted(table.routed("5", "k") or ()) == [f"Q{at}" for at in range(7)]
    assert len(changed(table, removed(table, names=["7"]))) == 1 + 5 + 3
    assert not [each for other in table.known.values() for each in other.bound if each.to == "7"]


def test_an_exchange_goes_with_its_last_binding() -> None:
    """One after the other; what is durable stays where the disk is not to be changed."""
    table = Exchanges()
    table.take([])
    for name, durable in (("a", True), ("b", False), ("c", False)):
        changed(table, [declared(table, name, Exchange("direct", durable, auto_delete=True))])
    for source, leads in (("a", Binding("k", to="b")), ("b", Binding("k", to="c")),
                          ("c", Binding("k", "T"))):
        changed(table, [bound(table, source, leads, durable=False)])
    assert table.routed("a", "k") == ("T",) and table.routed("a", "other") == ()
    assert changed(table, removed(table, table.of_queues({"T"}), durable_too=False)) == []
    assert {*table.known} & {"a", "b", "c"} == {"a"} and table.known["a"].bound == {}
    changed(table, [bound(table, "a", Binding("k", "Q"), durable=True)])
    changed(table, [bound(table, "a", Binding("other", "Q"), durable=True)])
    assert changed(table, removed(table, [("a", Binding("k", "Q"))])) == ["a"]
    assert changed(table, removed(table, [("a", Binding("other", "Q"))])) == ["a", "a"]
    assert "a" not in table.known
    changed(table, [declared(table, "d", Exchange("direct"))])
    changed(table, [bound(table, "d", Binding("k", "Q"), durable=True)])
    assert changed(table, removed(table, table.of_queues({"Q"}))) == ["d"]
    assert table.known["d"].bound == {}, "it is not to go"


def test_of_two_expiries() -> None:
    assert [sooner(None, None), sooner(1, None), sooner(None, 2), sooner(3, 2)] == [None, 1, 2, 2]


def test_a_codec_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("omq.services.amqp091")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pamqp", None)
    with pytest.raises(NotAmqp, match="needs the package pamqp") as caught:
        protocol_switch.take_over(None, None, None, b"")  # type: ignore[arg-type]
    assert caught.value.answer.startswith(b"AMQP")
