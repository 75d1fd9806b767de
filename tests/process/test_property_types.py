"""Properties that are no texts: through a restart, moves, copies, groups of messages, the tools."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.format import message as message_format
from omq.format.property_values import KeptInt
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, run_program

MOMENT = datetime(2026, 11, 25, 18, 48, 28, 123456, tzinfo=UTC)
GIVEN: dict[str, Any] = {"n": 3, "half": 0.5, "yes": True, "due": MOMENT, "raw": b"\x00\xff",
                         "text": "3"}


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.start()
    omq_instance.ready()
    return omq_instance


def tool(instance: Instance, name: str, *words: str) -> str:
    done = run_program(
        name, ["--spool", str(instance.root), "--conf", str(instance.conf), *words])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_they_outlive_a_restart_a_move_and_a_unit(running: Instance) -> None:
    with running.connect() as c:
        c.put("A", b"1", properties=GIVEN)
        c.put_many("A", [omq.Outgoing(b"2", properties=GIVEN)])
        with c.unit() as unit:
            unit.put("A", b"3", properties=GIVEN)
    running.stop(MANAGER)
    running.start()
    with running.connect() as c:
        assert [row.properties for row in c.browse("A")] == [GIVEN] * 3
        with c.reader("A", where="n = 3 AND yes = TRUE AND due LIKE '2026-11-25T%'") as reader:
            for message in reader.next(3, timeout_s=WAIT_S):
                message.move("B")
        with c.reader("B") as reader:
            found = reader.next(3, timeout_s=WAIT_S)
            assert [message.properties for message in found] == [GIVEN] * 3
            assert {type(value) for value in found[0].properties.values()} == {
                int, float, bool, datetime, bytes, str}
            for message in found:
                message.done()


def test_tools_show_texts_and_copies_keep_types(running: Instance) -> None:
    with running.connect() as c:
        c.put("A", b"1", properties=GIVEN)
    texts = {"n": "3", "half": "0.5", "yes": "true", "due": "2026-11-25T18:48:28.123456Z",
             "raw": "00ff", "text": "3"}
    types = {"n": "long", "half": "double", "yes": "boolean", "due": "timestamp", "raw": "binary"}
    tool(running, "omqdump", "--yes", "-e", "C A B --where 'n=3'")
    for queue in "AB":
        shown = json.loads(tool(running, "omread", queue, "--timeout", "0", "--json", "--where",
                                "half < 0.75 AND raw = '00ff'"))["properties"]
        assert json.loads(shown.pop("amqp.types")) == types
        assert shown == texts


def test_a_command_reads_texts(running: Instance) -> None:
    with running.connect() as c:
        c.put("A", b"1", properties=GIVEN)
    said = tool(running, "omread", "A", "--timeout", "0", "--", "sh", "-c",
                "echo $OMQ_PROPERTY_N $OMQ_PROPERTY_YES $OMQ_PROPERTY_DUE")
    assert said == "3 true 2026-11-25T18:48:28.123456Z\n"


def test_a_message_of_an_older_version_is_read_as_it_is(running: Instance,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose server of AMQP wrote the bytes of a value, and whose names were of any kind."""
    old = {"uint": "5203", "n": "5", "a b": "x", "ü": "y",
           "amqp.types": '{"uint":"encoded","n":"long"}'}
    raw = message_format.encode_properties(old)
    with running.connect() as c:
        with monkeypatch.context() as patched:
            patched.setattr(message_format, "encode_properties", lambda _: raw)
            c.put("A", b"old", properties={"as": "it was"})
        with c.reader("A", where="uint = 3 AND n = 5") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.properties == {"uint": 3, "n": 5, "a b": "x", "ü": "y"}
            assert isinstance(message.properties["uint"], KeptInt)
            message.release()
        with pytest.raises(omq.BadProperty, match="'a b'"):
            c.put("B", b"copy", properties={"a b": "x"})
    tool(running, "omqdump", "--yes", "-e", "C A B --where 'n=5'")
    with running.connect() as c:
        (row,) = c.browse("B")
        assert row.properties["uint"] == 3 and json.loads(row.properties["amqp.named"]) == {
            "a b": ["string", "x"], "ü": ["string", "y"]}


def test_the_shell_puts_texts_and_numbers(running: Instance, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"1")
    for option in ("--property", "--json-property"):
        tool(running, "omsend", "A", str(tmp_path / "body"), option, "weight=9")
    with running.connect() as c, c.reader("A", where="weight < 10") as reader:
        messages = reader.next(10, timeout_s=0)
        assert [message.properties["weight"] for message in messages] == ["9", 9]
        for message in messages:
            message.done()
