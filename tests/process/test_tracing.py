"""The trace of a message over two programs, and through all that a queue does with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import omq
from omq.tasks import tracing
from tests.process.operator_world import Instance
from tests.process.processes import WAIT_S
from tests.tidy.tree import ROOT

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("tracing") / "spool")
    queues = made.conf / "queues.conf"
    queues.write_text(f"{queues.read_text()}\n[ORDERS]\n\n[AUDIT]\n\n[SHIPPED]\n")
    made.start()
    yield made
    made.end()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    return exporter


def taken(connection: Any, queue: str) -> Any:
    reader = connection.reader(queue)
    (message,) = reader.next(timeout_s=WAIT_S)
    return reader, message


def test_the_example_is_one_trace_of_two_programs(world: Instance, tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    environment = {**os.environ, "OMQ_SPOOL": str(world.root), "SPANS": str(file),
                   "PYTHONPATH": str(ROOT / "lib")}
    for program in ("shop.py", "work.py"):
        subprocess.run([sys.executable, program], cwd=ROOT / "examples/tracing", check=True,
                       env=environment, timeout=WAIT_S, stdout=subprocess.DEVNULL)
    found = {each["name"]: each for each in map(json.loads, file.read_text().splitlines())}
    assert set(found) == {"checkout", "send ORDERS", "process ORDERS"}
    assert len({each["context"]["trace_id"] for each in found.values()}) == 1
    below = found["process ORDERS"]
    assert found["send ORDERS"]["parent_id"] == found["checkout"]["context"]["span_id"]
    assert below["parent_id"] == found["send ORDERS"]["context"]["span_id"]
    assert below["attributes"]["messaging.destination.name"] == "ORDERS"
    assert below["resource"]["attributes"]["service.name"] == "work"
    with world.connect("looks") as connection:
        (moved,), (receipt,) = (connection.browse(queue) for queue in ("SHIPPED", "AUDIT"))
        trace, span = below["context"]["trace_id"][2:], below["context"]["span_id"][2:]
        assert receipt.properties["traceparent"].startswith(f"00-{trace}-{span}-")
        assert moved.properties["traceparent"].split("-")[1] == trace
        assert moved.properties["customer"] == "42"


def test_it_outlives_a_failed_attempt_a_group_and_a_restart(
        world: Instance, spans: InMemorySpanExporter) -> None:
    with world.connect("puts") as connection:
        connection.put("A", b"x", properties={"traceparent": PARENT}, group_id=b"g",
                       group_sequence=1)
        reader, message = taken(connection, "A")
        with reader:
            with pytest.raises(ValueError, match="no"), tracing.working(message):
                raise ValueError("no")
            message.fail("no", delay_s=0)
    world.stop()
    world.start()
    with world.connect("again") as connection:
        reader, message = taken(connection, "A")
        with reader, tracing.working(message):
            message.done()
    first, second = spans.get_finished_spans()
    assert [each.context.trace_id for each in (first, second)] == [TRACE, TRACE]
    assert first.status.status_code.name == "ERROR" and first.events[0].name == "exception"
    assert (second.attributes or {})["omq.attempts"] == 1


@pytest.mark.parametrize("said", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
                                  PARENT + "x" * 200])
def test_what_is_no_context_begins_a_trace_and_stops_nothing(
        world: Instance, spans: InMemorySpanExporter, said: str) -> None:
    with world.connect("hostile") as connection:
        connection.put("B", b"x", properties={"traceparent": said} if said else {})
        reader, message = taken(connection, "B")
        with reader, tracing.working(message):
            message.done()
    (span,) = spans.get_finished_spans()
    assert span.parent is None


def test_without_a_trace_nothing_is_added() -> None:
    assert tracing.properties({"a": "b"}) == {"a": "b"}
    assert tracing.carry(omq.Outgoing(b"x")).properties == {}
