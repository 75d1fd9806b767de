"""Where the spans of the two programs go: a line of JSON each, at the end of a file. A program of
yours takes an exporter of OpenTelemetry's instead, for its collector."""

import os

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor


def to_file(service: str) -> None:
    """All spans of this process, from now on."""
    file = open(os.environ.get("SPANS", "spans.jsonl"), "a", encoding="utf-8")  # noqa: SIM115
    exporter = ConsoleSpanExporter(
        out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
