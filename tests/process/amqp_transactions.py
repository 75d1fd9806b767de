"""Transactions of AMQP over the library's blocking client, which has none of its own."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Described, Message, Terminus, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

TRANSACTIONAL = 0x34
DECLARED = 0x33


class _ToCoordinator(LinkOption):  # type: ignore[misc]
    def apply(self, link: Any) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))


class Coordinator:
    """The link over which transactions are declared and discharged."""

    def __init__(self, connection: BlockingConnection, name: str = "coordinator") -> None:
        self._connection = connection
        self.sender: BlockingSender = connection.create_sender(
            None, name=name, options=_ToCoordinator())

    def asked(self, body: Any) -> Any:
        """The delivery of a request, settled by the server."""
        delivery = self.sender.link.send(Message(body=body))
        self._connection.wait(lambda: delivery.settled)
        return delivery

    def declare(self) -> Transaction:
        delivery = self.asked(Described(symbol("amqp:declare:list"), [None]))
        assert delivery.remote_state == DECLARED, delivery.remote_state
        return Transaction(self, self._connection, bytes(delivery.remote.data[0]))


class Transaction:
    """One that was declared."""

    def __init__(self, coordinator: Coordinator, connection: BlockingConnection, name: bytes
                 ) -> None:
        self._coordinator, self._connection, self.name = coordinator, connection, name

    def send(self, sender: BlockingSender, message: Message) -> Any:
        """Its provisional outcome; what is rejected comes back as its delivery."""
        delivery = sender.link.send(message)
        delivery.local.data = [self.name]
        delivery.update(TRANSACTIONAL)
        self._connection.wait(lambda: delivery.settled or delivery.remote_state)
        return delivery

    def accept(self, receiver: BlockingReceiver, *, settle: bool = True,
               outcome: int = Delivery.ACCEPTED) -> Any:
        """The oldest delivery that the receiver has not settled."""
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.data = [self.name, Described(ulong(outcome), [])]
        delivery.update(TRANSACTIONAL)
        if settle:
            delivery.settle()
        return delivery

    def by(self, coordinator: Coordinator) -> None:
        """It is discharged over this link."""
        self._coordinator = coordinator

    def discharge(self, *, fails: bool = False) -> str:
        """ "": it was accepted; else what it was rejected with."""
        delivery = self._coordinator.asked(
            Described(symbol("amqp:discharge:list"), [self.name, fails]))
        if delivery.remote_state == Delivery.ACCEPTED:
            return ""
        assert delivery.remote_state == Delivery.REJECTED
        return f"{delivery.remote.condition.name}: {delivery.remote.condition.description}"
