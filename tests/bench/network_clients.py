"""Programs of AMQP 1.0 by Qpid Proton, as the benches of the network run them: each has one
connection to a URL, and ends with it.
"""

from __future__ import annotations

import time
from typing import Any, Final

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

BODY: Final = bytes(100)


class Program(MessagingHandler):  # type: ignore[misc]
    """One connection; `user`: NAME:PASSWORD, or nobody."""

    def __init__(self, url: str, address: str, user: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self.url, self.address, self.user = url, address, user

    def run(self) -> None:
        Container(self).run()

    def connect(self, event: Any) -> Any:
        name, _, password = self.user.partition(":")
        said = {"user": name, "password": password, "allow_insecure_mechs": True} if name else {}
        return event.container.connect(self.url, reconnect=False, **said)


class Puts(Program):
    """Sends all that credit allows."""

    def __init__(self, url: str, address: str, count: int, user: str = "") -> None:
        super().__init__(url, address, user)
        self.left, self.accepted, self.count = count, 0, count

    def on_start(self, event: Any) -> None:
        event.container.create_sender(self.connect(event), self.address)

    def on_sendable(self, event: Any) -> None:
        while self.left and event.sender.credit:
            event.sender.send(Message(body=BODY, inferred=True, durable=True))
            self.left -= 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            event.connection.close()


class Takes(Program):
    """Takes with read-ahead of `ahead`; 1 is none: a message is asked for when the one before it
    is settled."""

    def __init__(self, url: str, address: str, count: int, ahead: int, user: str = "") -> None:
        # The library renews credit at the half, in whole numbers: of one that is never.
        super().__init__(url, address, user, prefetch=ahead if ahead > 1 else 0,
                         auto_accept=False)
        self.left, self._single = count, ahead == 1

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(self.connect(event), self.address)

    def on_link_opened(self, event: Any) -> None:
        if self._single:
            event.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        if not self.left:
            return  # it came by the read-ahead, and goes back
        self.accept(event.delivery)
        self.left -= 1
        if not self.left:
            event.connection.close()
        elif self._single:
            event.receiver.flow(1)


class Single(Program):
    """One message at a time; `times` in seconds, of each from the send to the accept."""

    def __init__(self, url: str, address: str, count: int, user: str = "") -> None:
        super().__init__(url, address, user)
        self.left, self.began = count, 0.0
        self.sender: Any = None
        self.times: list[float] = []

    def on_start(self, event: Any) -> None:
        self.sender = event.container.create_sender(self.connect(event), self.address)

    def on_sendable(self, event: Any) -> None:
        if not self.began:
            self._send()

    def _send(self) -> None:
        self.began = time.monotonic()
        self.sender.send(Message(body=BODY, inferred=True, durable=True))

    def on_accepted(self, event: Any) -> None:
        self.times.append(time.monotonic() - self.began)
        self.left -= 1
        if self.left:
            self._send()
        else:
            event.connection.close()
