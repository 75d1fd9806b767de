"""What takes messages off one queue for a consumer or for basic.get: as for a link of AMQP 1.0,
with other bytes made of each message. A body comes whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from omq.base.errors import BodyDamaged, BodyUnavailable, LeaseLost, OmqError
from omq.base.settings import Settings
from omq.fast.amqp091_frames import OVERHEAD
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.services.amqp.outcomes import LIGHT
from omq.services.amqp.taker import Ear, TakenMessage, Taker
from omq.services.amqp.untranslatable import UNREADABLE
from omq.services.amqp091 import translation
from omq.services.amqp091.translation import WrittenProperties
from omq.services.daemon.thread_pool import ThreadPool

REJECTED = "basic.reject without requeue"
KNOWN_MAX, KNOWN_BYTES = 64, 512
"""Properties that are remembered with what was made of them: of a queue, and bytes of one."""
NOTHING_SAID = translation.said({})


@dataclass(slots=True)
class Content(TakenMessage):
    """`data` is the body, `head` the payload of its header."""

    said: WrittenProperties = NOTHING_SAID
    head: bytes = b""
    redelivered: bool = False


class ContentTaker(Taker):
    """See the module. `frame_max`: bytes of a frame that its client takes. A header cannot be
    split, and one that is longer would end the connection, and the next one, for ever; so such a
    message is not given: it has failed, and goes to POISON in the end, with the reason."""

    def __init__(self, connect: Callable[[], Client], queue: str, settings: Settings, ear: Ear,
                 hands: ThreadPool, frame_max: int) -> None:
        self._frame_max = frame_max
        self._known: dict[bytes, WrittenProperties] = {}  # of turns: what was made of properties
        super().__init__(connect, queue, "", settings, ear, hands)

    def settle(self, some: list[TakenMessage], say: Callable[[Message], None]) -> None:
        """What its client says of these messages."""

        def carried() -> None:
            for given in some:
                assert given.native is not None
                with suppress(LeaseLost):  # the manager took it back: it is redelivered, flagged
                    say(given.native)

        self.say(carried, light=len(some) if say in LIGHT else 0)

    def _given(self, message: Message) -> TakenMessage | None:
        """None: it cannot be read; that is its own failure."""
        try:
            if message.size > self._size_max:
                raise ValueError(f"{message.size} bytes are more than a client of AMQP is given: "
                                 f"{self._size_max} (amqp_message_bytes_max)")
            raw = message.properties_bytes
            said = self._known.get(raw)
            if said is None:
                said = translation.said(message.texts)
                if len(raw) <= KNOWN_BYTES:
                    if len(self._known) >= KNOWN_MAX:
                        self._known.clear()
                    self._known[raw] = said
            head = translation.head_of(message, said)
            if len(head) + OVERHEAD > self._frame_max:
                raise ValueError(f"its header needs a frame of {len(head) + OVERHEAD} bytes, and "
                                 f"its consumer takes {self._frame_max} (frame-max)")
            return Content(message, message.body, said=said, head=head,
                           redelivered=message.redelivered or message.attempts > 0)
        except (BodyUnavailable, BodyDamaged, *UNREADABLE) as error:
            with suppress(LeaseLost):  # it was taken back meanwhile
                message.fail(str(error))
            return None


def rejected(message: Message, dead_letter: str) -> None:
    """It is not redelivered where its queue has another for such: at once, as RabbitMQ does it.
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
