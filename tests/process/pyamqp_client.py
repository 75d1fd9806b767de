"""Azure's client in Python (the _pyamqp of azure-servicebus and azure-eventhub) against
amqp.server. Arguments: port, user, password. The last line says how it went.

What is around it (ServiceBusClient, EventHubProducerClient) asks a node $cbs for a token first,
which is Azure's own: amqp.server has none, and says so.
"""

from __future__ import annotations

import sys
from typing import Any

from azure.servicebus._pyamqp import (  # type: ignore[import-not-found,unused-ignore]
    ReceiveClient,
    SendClient,
)
from azure.servicebus._pyamqp.authentication import (  # type: ignore[import-not-found,unused-ignore]
    SASLPlainAuth,
)
from azure.servicebus._pyamqp.constants import (  # type: ignore[import-not-found,unused-ignore]
    SenderSettleMode,
)
from azure.servicebus._pyamqp.error import (  # type: ignore[import-not-found,unused-ignore]
    AMQPLinkError,
)
from azure.servicebus._pyamqp.message import (  # type: ignore[import-not-found,unused-ignore]
    Header,
    Message,
    Properties,
)

COUNT = 30
LARGE = 300_000
port, user, password = sys.argv[1:4]


def opened(kind: Any, queue: str, **more: Any) -> Any:
    client = kind(f"localhost:{port}", queue, auth=SASLPlainAuth(user, password), use_tls=False,
                  **more)
    client.open()
    while not client.client_ready():
        pass  # it reads its line meanwhile
    return client


def message(number: int) -> Any:
    return Message(
        data=[b"x" * LARGE if number == 0 else b"%d" % number],
        header=Header(durable=True, priority=number % 10),
        properties=Properties(message_id=f"id{number}", subject="a subject"),
        application_properties={"number": number, "text": "Grüße"})


def main() -> None:
    sender = opened(SendClient, "A")
    for number in range(COUNT):
        sender.send_message(message(number))
    sender.close()
    found: dict[str, Any] = {}
    receiver = opened(ReceiveClient, "A", link_credit=2 * COUNT,
                      send_settle_mode=SenderSettleMode.Settled)
    while len(found) < COUNT:
        for each in receiver.receive_message_batch(max_batch_size=10, timeout=10):
            found[each.properties.message_id.decode()] = each  # it gives texts as bytes
    receiver.close()
    for number in range(COUNT):
        each, sent = found[f"id{number}"], message(number)
        assert b"".join(each.data) == sent.data[0], number
        assert each.header.durable and each.header.priority == number % 10
        assert each.properties.subject == b"a subject", each.properties
        assert each.application_properties == {b"number": number, b"text": "Grüße".encode()}
    try:
        opened(SendClient, "NOBODY")
    except AMQPLinkError as error:
        assert "amqp:not-found" in str(error), error
    else:
        raise AssertionError("there is no such queue")
    print("all of them")


main()
