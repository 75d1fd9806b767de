"""Put an order, in a trace: python shop.py; work.py works on it."""

from opentelemetry import trace
from spans import to_file

import omq
from omq.tasks import tracing

to_file("shop")
tracer = trace.get_tracer("shop")
with omq.connect(name="shop") as connection, tracer.start_as_current_span("checkout"):
    print(tracing.put(connection, "ORDERS", b"order 1", properties={"customer": "42"}))
