"""Work on one order, in the trace of who put it: python work.py."""

from spans import to_file

import omq
from omq.tasks import tracing

to_file("work")
with omq.connect(name="work") as connection, connection.reader("ORDERS") as reader:
    for message in reader:
        with tracing.working(message):
            receipt = tracing.carry(omq.Outgoing(b"receipt", queues=("AUDIT",)))
            message.move(["SHIPPED"], new=[receipt])
        break
