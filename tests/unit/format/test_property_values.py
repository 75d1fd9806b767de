"""Values of properties: as texts with their types beside, and as they were again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from omq.base.errors import BadArgument, BadProperty
from omq.core.select.names import lookup
from omq.core.select.parser import Condition, Parser
from omq.core.select.values import Value
from omq.format import property_values
from omq.format.message import decode_properties, encode_properties
from omq.format.property_values import KeptFloat, KeptInt, KeptText, values_of
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

MOMENT = datetime(2026, 11, 25, 18, 48, 28, 123456, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "text": "3", "empty": "", "whole": 3, "least": -(1 << 63), "most": (1 << 64) - 1, "part": 0.1,
    "vast": 1e300, "no": False, "yes": True, "moment": MOMENT, "bytes": b"\0\xff", "none": b""}


def read_back(properties: dict[str, Any]) -> dict[str, Any]:
    data = encode_properties(Outgoing(properties=properties).properties)
    texts = decode_properties(data)
    assert isinstance(texts, dict)
    return values_of(texts)


def test_each_value_comes_back_as_it_was_put() -> None:
    found = read_back(VALUES)
    assert found == VALUES
    assert {name: type(value) for name, value in found.items()} == {
        name: KeptInt if name == "most" else type(value) for name, value in VALUES.items()}
    assert read_back(found) == VALUES
    assert Outgoing(properties=found).properties == Outgoing(properties=VALUES).properties


@pytest.mark.parametrize(("value", "text"), [
    (True, "true"), (-5, "-5"), (0.5, "0.5"), (float("inf"), "inf"), (b"\x01", "01"),
    (MOMENT, "2026-11-25T18:48:28.123456Z"),
    (MOMENT.astimezone(timezone(timedelta(hours=2))), "2026-11-25T18:48:28.123456Z"),
    (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000000Z")])
def test_who_knows_no_types_sees_a_text(value: Any, text: str) -> None:
    assert Outgoing(properties={"a": value}).properties["a"] == text


def test_a_message_of_strings_has_the_bytes_that_it_always_had() -> None:
    assert encode_properties(Outgoing(properties={"a": "1", "bc": "ü"}).properties) == (
        b"\x02\0" b"\x01\0\x01\0\0\0a1" b"\x02\0\x02\0\0\0bc\xc3\xbc")


@pytest.mark.parametrize("kind", [*property_values.WHOLE, "float", "decimal64", "symbol", "char",
                                  "uuid", "encoded"])
def test_a_kind_of_another_program_outlives_a_copy(kind: str) -> None:
    texts = {"a": "3", "amqp.types": json.dumps({"a": kind}, separators=(",", ":"))}
    value = values_of(texts)["a"]
    assert isinstance(value, KeptInt | KeptFloat | KeptText) or kind == "long"
    copied = Outgoing(properties={"a": value, "b": "x"}).properties
    assert copied == {"a": "3.0" if kind == "float" else "3", "b": "x",
                      "amqp.types": texts["amqp.types"]}
    added = Outgoing(properties={**copied, "c": 1.5}).properties
    assert values_of(dict(added)) == {"a": value, "b": "x", "c": 1.5}


def test_old_servers_of_amqp_wrote_the_bytes_of_a_value() -> None:
    encoded = {"uint": "5203", "ulong": "80ffffffffffffffff", "ubyte": "5003", "zero": "43",
               "short": "610003", "float": "723f000000", "symbol": "a30161", "other": "c00101"}
    texts = {**encoded, "amqp.types": json.dumps(dict.fromkeys(encoded, "encoded"))}
    assert values_of(texts) == {
        "uint": 3, "ulong": (1 << 64) - 1, "ubyte": 3, "zero": 0, "short": 3, "float": 0.5,
        "symbol": "a", "other": "c00101"}
    assert [property_values.asked(texts, name) for name in ("uint", "float", "symbol", "other")
            ] == [3, 0.5, "a", "c00101"]


@pytest.mark.parametrize("types", ["[[", "[]", "3", '{"a":3}', '{"a":["long"]}', "[" * 100_000, ""])
def test_types_that_make_no_sense_leave_texts(types: str) -> None:
    texts = {"a": "3", "amqp.types": types}
    assert values_of(texts) == texts
    assert property_values.asked(texts, "a") == "3"


@pytest.mark.parametrize(("kind", "text"), [
    ("long", "three"), ("long", "9" * 30), ("ubyte", "256"), ("boolean", "TRUE"), ("double", "x"),
    ("timestamp", "soon"), ("binary", "zz"), ("uint", "٣"), ("decimal32", "x"), ("encoded", "zz"),
    ("what", "x")])
def test_a_text_that_is_none_of_its_kind_is_a_text(kind: str, text: str) -> None:
    texts = {"a": text, "amqp.types": json.dumps({"a": kind, "not there": "long"})}
    assert values_of(texts) == {"a": text}
    assert property_values.asked(texts, "a") == text


def test_what_omq_reads_itself_is_a_text() -> None:
    found = read_back({"mail.to": 3, "omq.hops": 2, "traceparent": 1.5, "count": 3})
    assert found == {"mail.to": "3", "omq.hops": "2", "traceparent": "1.5", "count": 3}


@pytest.mark.parametrize("value", [None, 1 << 64, -(1 << 63) - 1, [], {}, 1j, object()])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(BadProperty, match="'a'"):
        arguments.properties({"a": value})


@pytest.mark.parametrize("name", ["", "k\n", "a b", "ü", "\0", "a\0", "-a", ".a", "a" * 65, "a=b",
                                  "\ud800", "a/b"])
def test_names_are_those_of_omsend(name: str) -> None:
    with pytest.raises(BadProperty, match="is not allowed"):
        Outgoing(properties={name: "x"})


@pytest.mark.parametrize("name", ["a", "0", "_type", "__TypeId__", "cloudEvents:id", "a-b.c",
                                  "a" * 64])
def test_names_of_other_programs(name: str) -> None:
    assert Outgoing(properties={name: "x"}).properties == {name: "x"}


def test_a_name_is_a_str_and_properties_a_mapping() -> None:
    for wrong in ({3: "x"}, "a=b", [("a", "b")]):
        with pytest.raises(BadArgument):
            arguments.properties(wrong)


def test_names_that_are_none_here_are_carried() -> None:
    texts = {"a": "1", "a b": "3", "ü": "x", "amqp.types": '{"a":"uint","a b":"long"}'}
    carried = property_values.carried(texts)
    assert carried == {"a": "1", "amqp.types": '{"a":"uint"}', "amqp.named": json.dumps(
        {"a b": ["long", "3"], "ü": ["string", "x"]}, separators=(",", ":"))}
    assert property_values.carried(carried) is carried
    more = property_values.carried({**carried, "c d": "y"})
    assert property_values.uncarried(more["amqp.named"]) == {
        "a b": ["long", "3"], "ü": ["string", "x"], "c d": ["string", "y"]}
    Outgoing(properties=values_of(dict(more)))
    for wrong in ("[[", "3", '{"a":"x"}', "[" * 100_000):
        with pytest.raises(ValueError):
            property_values.uncarried(wrong)
        assert "a b" in property_values.carried({"a b": "x", "amqp.named": wrong})["amqp.named"]


class Source:
    """A message that is asked."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self.texts = Outgoing(properties=properties).properties

    def header(self, name: str) -> str:
        raise AssertionError(name)

    def field(self, name: str) -> Value:
        raise AssertionError(name)


@pytest.mark.parametrize(("where", "chosen"), [
    ("n > 10", False), ("n = 3", True), ("n = 3.0", True), ("n <> 3", False), ("n * 2 = 6", True),
    ("n BETWEEN 1 AND 3", True), ("n IN (3)", True), ("n IS NULL", False), ("m IS NULL", True),
    ("n = '3'", True), ("n LIKE '3'", None), ("x > 0.25", True),
    ("big > 9223372036854775807", True),
    ("b = TRUE", True), ("b <> FALSE", True), ("b = 'true'", True), ("b > 0", None),
    ("t = '3'", True), ("t = 3", True), ("t LIKE '3%'", True), ("w = TRUE", True),
    ("d = '2026-11-25T18:48:28.123456Z'", True), ("d LIKE '2026-11-%'", True), ("d > 3", None),
    ("raw = '00ff'", True)])
def test_a_selector_compares_a_number_as_a_number(where: str, chosen: bool | None) -> None:  # noqa: FBT001
    source = Source({"n": 3, "x": 0.5, "b": True, "t": "3", "w": "true", "d": MOMENT,
                     "raw": b"\0\xff", "big": (1 << 64) - 1})
    found = Parser[Condition](where).parse()
    if where.startswith("n BETWEEN"):
        assert isinstance(found, Condition)
    assert isinstance(found, Condition)
    assert found.test(lookup(source)) is chosen
