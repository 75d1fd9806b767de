"""OpenTelemetry: the trace of a message from who put it to who works on it (extra `otel`).

    with omq.connect(name="shop") as connection:
        tracing.put(connection, "ORDERS", b"order 1")           # a span "send ORDERS"

    for message in reader:
        with tracing.working(message):                          # a span "process ORDERS" below it
            message.move(["SHIPPED"], new=[tracing.carry(omq.Outgoing(b"bill", ("BILLS",)))])

The context travels as the properties `traceparent` and `tracestate` of W3C Trace Context, so any
client can write and read it, and it goes where properties go: onto several queues, through moves,
groups, units, defers, restarts and POISON. Names and attributes are OpenTelemetry's conventions for
messaging. Where spans go is the program's choice: without an SDK nothing is made, and a context
that came in from elsewhere is passed on.

Invariants: 1. a property that is not a valid context begins a new trace, and stops nothing: whoever
may put can write it; 2. what the caller says under the two names himself stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from omq.ipc.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection import Connection
    from omq.ipc.client.message import Message

SYSTEM: Final = "omq"
_CONTEXT: Final = TraceContextTextMapPropagator()
_BYTES_MAX: Final = 512
"""Of a `tracestate` that is passed on: W3C asks for as much, and properties must stay small."""


def properties(of: Mapping[str, str] | None = None) -> dict[str, str]:
    """These, and the context of the span that is current."""
    carrier: dict[str, str] = {}
    _CONTEXT.inject(carrier)
    if len(carrier.get("tracestate", "")) > _BYTES_MAX:
        del carrier["tracestate"]
    return {**carrier, **(of or {})}


def carry(message: Outgoing) -> Outgoing:
    """The message with that context: for put_many, moves, units and asyncio."""
    return replace(message, properties=properties(message.properties))


def put(connection: Connection, queues: str | Sequence[str], body: bytes = b"", **keys: Any) -> Any:
    """As `connection.put`, in a span of its own; what it returns."""
    named = queues if isinstance(queues, str) else ",".join(queues)
    with _tracer().start_as_current_span(
            f"send {named}", kind=SpanKind.PRODUCER,
            attributes=_attributes("send", named, len(body))) as span:
        keys["properties"] = properties(keys.get("properties"))
        made = connection.put(queues, body, **keys)
        span.set_attribute("messaging.message.id", str(made))
        return made


@contextmanager
def working(message: Message) -> Iterator[Span]:
    """The work on a message: its span is current inside, below the one that put it. An exception is
    noted in it and goes on; settling is the caller's."""
    with _tracer().start_as_current_span(
            f"process {message.queue}", _CONTEXT.extract(message.properties),
            kind=SpanKind.CONSUMER, attributes={
                **_attributes("process", message.queue, message.size),
                "messaging.message.id": str(message.message_id),
                "omq.attempts": message.attempts, "omq.redelivered": message.redelivered}) as span:
        yield span


def _tracer() -> trace.Tracer:
    return trace.get_tracer("omq")


def _attributes(operation: str, queue: str, size: int) -> dict[str, str | int]:
    return {"messaging.system": SYSTEM, "messaging.operation.name": operation,
            "messaging.operation.type": operation, "messaging.destination.name": queue,
            "messaging.message.body.size": size}
