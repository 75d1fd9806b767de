"""What takes messages off one queue for a consumer or for basic.get: as for a link of AMQP 1.0,
with other bytes made of each message. A body comes whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from omq.base.errors import BodyDamaged, BodyUnavailable, LeaseLost, OmqError
from omq.ipc.client.message import Message
from omq.services.amqp.taker import Given, Taker
from omq.services.amqp.untranslatable import UNREADABLE
from omq.services.amqp091 import translation

REJECTED = "basic.reject without requeue"


@dataclass(frozen=True, slots=True)
class Content(Given):
    """`data` is the body, `head` the payload of its header. `key`: None, its queue's name."""

    head: bytes = b""
    exchange: str = ""
    key: str | None = None
    redelivered: bool = False


class ContentTaker(Taker):
    """See the module."""

    def settle(self, given: Given, say: Callable[[Message], None]) -> None:
        """What its client says of a message."""
        native = given.native
        assert native is not None

        def said() -> None:
            with suppress(LeaseLost):  # the manager took it back: it comes again, flagged
                say(native)

        self.say(said)

    def _given(self, message: Message) -> Given | None:
        """None: it cannot be read; that is its own failure."""
        try:
            if message.size > self._size_max:
                raise ValueError(f"{message.size} bytes are more than a client of AMQP is given: "
                                 f"{self._size_max} (amqp_message_bytes_max)")
            exchange, key, head = translation.read(message)
            return Content(message, message.body, head=head, exchange=exchange, key=key,
                           redelivered=message.redelivered or message.attempts > 0)
        except (BodyUnavailable, BodyDamaged, *UNREADABLE) as error:
            with suppress(LeaseLost):  # it was taken back meanwhile
                message.fail(str(error))
            return None


def rejected(message: Message, dead_letter: str) -> None:
    """It does not come again where its queue has another for such: at once, as RabbitMQ has it.
    Without one it is a failed attempt: nothing that nobody has done is thrown away."""
    if dead_letter:
        try:
            message.move(dead_letter)
        except LeaseLost:
            raise
        except OmqError:  # it is full, inhibited, gone: the manager's own way, and its reason
            message.fail(REJECTED)
        return
    message.fail(REJECTED)
