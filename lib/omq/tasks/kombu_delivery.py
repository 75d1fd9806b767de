"""What a channel of kombu has delivered, and how the work on it ends.

Invariants: 1. a delivery tag is known from the delivery to its settlement; 2. a message is settled
by the pump that took it, in whatever thread its ack is called; 3. what could not be decoded is not
acknowledged: Celery does so to be rid of it (Consumer.on_decode_error), and a task would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.transport import virtual

from omq.ipc.client.message import Message as Native
from omq.tasks import envelope
from omq.tasks.pump import Pump


class Delivered(virtual.Message):
    """A delivered message; `native` is what it is to omq."""

    def __init__(self, payload: envelope.Raw, channel: Any = None, **said: Any) -> None:
        self.native: Native = payload.pop("native")
        self.pump: Pump = payload.pop("pump")
        self._undecoded = False
        super().__init__(payload, channel, **said)
        self.delivery_info["redelivered"] = self.native.redelivered

    def _decode(self) -> Any:
        try:
            return super()._decode()
        except Exception:
            self._undecoded = True
            raise

    def ack(self, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 (kombu's)
        """Done; what could not be decoded is rejected, for somebody to look at."""
        if self._undecoded:
            self.reject()
        else:
            super().ack(multiple)


class QoS(virtual.QoS):
    """What was delivered and not settled. Settlements come from any thread."""

    restore_at_shutdown = False  # the manager has them

    def ack(self, delivery_tag: str) -> None:
        self._settle(delivery_tag, lambda native: native.done())

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 (kombu's)
        if requeue:
            self._settle(delivery_tag, lambda native: native.fail("requeued", delay_s=0))
        else:
            self._settle(delivery_tag, self.channel.set_aside)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        for tag in list(self._delivered):
            self._settle(tag, lambda native: native.release())
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self._on_collect.cancel()

    def _settle(self, tag: str, how: Callable[[Native], None]) -> None:
        message = self._delivered.get(tag)
        if message is None:
            return  # it needed no ack, and was done when it came; a second one is kombu's to refuse
        self._quick_ack(tag)
        message.pump.say(lambda _: how(message.native))
        self.channel.connection.told()  # there may be room now
