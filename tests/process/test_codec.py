"""Bodies that programs send by omq.codec: what comes back, what is refused, how they are shown."""

from __future__ import annotations

import datetime
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import omq
from omq import codec
from omq.base.errors import BadArgument, BodyNotRead, BodyRefused, SchemaWrong
from omq.base.services_conf import load_services
from omq.cli.common import Location
from omq.cli.web import reading
from omq.testing.instance import LiveInstance
from tests.process.ipc_space import ipc_space

pytest.importorskip("msgpack", reason="the extra `codec` is not installed")
pytest.importorskip("jsonschema", reason="the extra `codec` is not installed")
pydantic = pytest.importorskip("pydantic", reason="the extra `codec` is not installed")
NOW = datetime.datetime(2026, 11, 27, 3, 0, 0, 123456, tzinfo=datetime.UTC)
ORDER = {"type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer", "minimum": 1}, "lines": {"type": "array", "items": {
        "type": "object", "required": ["article"]}}}}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveInstance]:
    folder = tmp_path_factory.mktemp("live")
    with ipc_space(), LiveInstance(folder) as made:
        made.queues.define("ORDERS")
        made.queues.define("PLAIN")
        (made.spool / "conf/schemas").mkdir()
        yield made


@pytest.fixture
def connection(live: LiveInstance) -> Iterator[omq.Connection]:
    schema = live.spool / "conf/schemas/ORDERS.json"
    schema.write_text(json.dumps(ORDER))
    with live.connect() as made:
        yield made
    for queue in ("ORDERS", "PLAIN"):
        live.queues.clear(queue)


def last(connection: omq.Connection, queue: str) -> omq.Browsed:
    return list(connection.browse(queue))[-1]


@pytest.mark.parametrize(("value", "kind"), [
    ({"id": 7, "text": "Ä\n", "none": None, "list": [1.5, True]}, codec.JSON),
    ({"id": 7, "bytes": b"\0\xff", "when": NOW, 3: [2**63, -1]}, codec.MSGPACK),
    ([], codec.MSGPACK), ("text", codec.JSON), (None, codec.JSON)])
def test_what_is_put_comes_back(connection: omq.Connection, value: object, kind: str) -> None:
    codec.put(connection, "PLAIN", value, kind=kind, properties={"a": "b"}, priority=7)
    row = last(connection, "PLAIN")
    assert codec.decode(row) == value
    assert (row.properties["a"], row.properties[codec.CONTENT_TYPE], row.priority) == ("b", kind, 7)
    with connection.reader("PLAIN") as reader:
        (message,) = reader.next(timeout_s=10)
        assert codec.decode(message) == value
        made = codec.outgoing(connection, "PLAIN", value, kind=kind, message=omq.Outgoing(
            queues=("PLAIN",), priority=2))
        message.move([], new=[made])
    assert (codec.decode(last(connection, "PLAIN")), last(connection, "PLAIN").priority) == (
        value, 2)


def test_models(connection: omq.Connection) -> None:
    class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        id: int
        when: datetime.datetime

    class Other(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str

    for kind in codec.KINDS:
        codec.put(connection, "ORDERS", Order(id=7, when=NOW), kind=kind)
        assert codec.decode(last(connection, "ORDERS"), Order) == Order(id=7, when=NOW)
    with pytest.raises(BodyNotRead, match="name"):
        codec.decode(last(connection, "ORDERS"), Other)
    with pytest.raises(BodyRefused, match=r"at \$\.id: 0 is less than"):
        codec.put(connection, "ORDERS", Order(id=0, when=NOW))


@pytest.mark.parametrize(("value", "said"), [
    ({}, r"at \$: 'id' is a required property"),
    ({"id": "7"}, r"at \$\.id: '7' is not of type 'integer'"),
    ({"id": 7, "lines": [{"article": 1}, {}]}, r"at \$\.lines\[1\]: 'article' is a required")])
def test_what_does_not_fit_its_schema(connection: omq.Connection, value: object, said: str
                                      ) -> None:
    for queues in ("ORDERS", ["PLAIN", "ORDERS"]):
        with pytest.raises(BodyRefused, match=said) as refused:
            codec.put(connection, queues, value)
    assert refused.value.exit_code == 65
    with pytest.raises(BodyRefused):
        codec.outgoing(connection, "ORDERS", value)
    assert list(connection.browse("ORDERS")) == list(connection.browse("PLAIN")) == []


@pytest.mark.parametrize("text", [
    "", "{", "7", '{"type": "no such"}', '{"properties": {"id": {"pattern": "("}}}',
    '{"$ref": "http://127.0.0.1:9/away.json"}', '{"$ref": "#/nowhere"}', "[" * 100_000])
def test_a_schema_that_is_none(live: LiveInstance, connection: omq.Connection, text: str) -> None:
    (live.spool / "conf/schemas/ORDERS.json").write_text(text)
    with pytest.raises(SchemaWrong, match=r"ORDERS\.json is not a valid schema"):
        codec.put(connection, "ORDERS", {"id": "x"})
    codec.put(connection, "PLAIN", {"id": "x"})
    assert list(connection.browse("ORDERS")) == []


def test_no_reference_is_fetched(live: LiveInstance, connection: omq.Connection) -> None:
    asked: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            text = json.dumps({"$ref": f"http://127.0.0.1:{server.server_port}/away.json"})
            (live.spool / "conf/schemas/ORDERS.json").write_text(text)
            with pytest.raises(SchemaWrong):
                codec.put(connection, "ORDERS", {"id": 7})
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


def test_a_schema_that_has_changed(live: LiveInstance, connection: omq.Connection) -> None:
    codec.put(connection, "ORDERS", {"id": 7})
    (live.spool / "conf/schemas/ORDERS.json").write_text('{"type": "string"}')
    with pytest.raises(BodyRefused):
        codec.put(connection, "ORDERS", {"id": 7})
    codec.put(connection, "ORDERS", "a string")
    (live.spool / "conf/schemas/ORDERS.json").unlink()
    codec.put(connection, "ORDERS", 7)


def recursive() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("kind", codec.KINDS)
@pytest.mark.parametrize("value", [object(), {1, 2}, recursive(), 2**70, float("nan")])
def test_what_cannot_be_written(value: object, kind: str) -> None:
    if (value == 2**70 and kind == codec.JSON) or (value != value and kind == codec.MSGPACK):
        assert codec.encode(value, kind)
        return
    with pytest.raises(BadArgument, match="cannot write"):
        codec.encode(value, kind)


@pytest.mark.parametrize(("body", "kind"), [
    (b"", codec.JSON), (b"{", codec.JSON), (b"\xff", codec.JSON), (b"[" * 100_000, codec.JSON),
    (b"", codec.MSGPACK), (b"\xc1", codec.MSGPACK), (b"\x93\x01", codec.MSGPACK),
    (b"\x01\x02", codec.MSGPACK), (b"\xdd\xff\xff\xff\xff", codec.MSGPACK),
    (b"\x91" * 100_000, codec.MSGPACK), (b"\x81\x90\x01", codec.MSGPACK),
    (b"x", "image/png"), (b"x", "../../x\n")])
def test_a_body_that_is_not_what_it_says(body: bytes, kind: str) -> None:
    with pytest.raises(BodyNotRead):
        codec.read(body, kind)
    assert codec.shown(body, {codec.CONTENT_TYPE: kind}) is None


@pytest.mark.parametrize(("said", "kind"), [
    ("Application/JSON; charset=utf-8", codec.JSON), ("", codec.JSON),
    ("application/x-msgpack", codec.MSGPACK), ("application/problem+json", None)])
def test_content_types(said: str, kind: str | None) -> None:
    found = codec.content_type({codec.CONTENT_TYPE: said})
    assert found == (kind or said)
    assert kind or codec.read(b"7", found) == 7


def test_people_see_it_decoded(live: LiveInstance, connection: omq.Connection) -> None:
    number = codec.put(connection, "PLAIN", {"id": 7, "raw": b"\xff"}, kind=codec.MSGPACK)
    assert load_services(live.spool / "conf")
    location = Location(None, omq.base.paths.SpoolPaths(live.spool), live.spool / "conf")
    seen = reading.message(location, number, "", 4096)
    assert seen.shown is not None and '  "raw": "ff"' in seen.shown.lines
    plain = reading.message(location, number, "hex", 4096)
    assert plain.shown is not None and plain.shown.kind == "hex"
    output = live.spool.parent / "output"
    before = output.stat().st_size
    assert live.run("omqdump", "-e", "g PLAIN", "-e", "r 2000 body").wait() == 0
    assert '"id": 7' in output.read_text()[before:]
    before = output.stat().st_size
    assert live.run("omqdump", "-e", "g PLAIN", "-e", "r 2000 body", "--json").wait() == 0
    rows = [json.loads(line) for line in output.read_text()[before:].splitlines()]
    assert [row["decoded"] for row in rows if "decoded" in row] == [{"id": 7, "raw": "ff"}]
