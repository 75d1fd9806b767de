"""A channel of kombu over omq: publish, consume, acknowledge, declare, bind.

What Celery knows as an acknowledgement is `done`; a rejection with requeue is a failed attempt
without a pause, so that a task that kills its workers ends on POISON; one without requeue (an
unknown task, say) moves the message to `rejected_queue`, where somebody can look at it. What a
channel holds when it closes, or its process dies, returns, flagged redelivered.

Invariants: 1. no more messages are with the consumer than prefetch_count, unless they need no ack;
2. a delivery tag is known from the delivery to its settlement; 3. a message is settled by the pump
that took it, in whatever thread its ack is called; 4. what could not be decoded is not
acknowledged: Celery does so to be rid of it (Consumer.on_decode_error), and a task would be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from omq.base.errors import BadEnvelope, QueueGone, UnknownQueue
from omq.ipc.client.message import Message as Native
from omq.ipc.wire.outgoing import Outgoing
from omq.tasks import envelope
from omq.tasks.pump import Pump

LOG: Final = logging.getLogger("omq.tasks")
AHEAD: Final = 10
"""Messages that are fetched for a consumer without prefetch_count."""
REJECTED: Final = "CELERY.REJECTED"


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


class Channel(virtual.Channel):
    """See the module."""

    Message, QoS = Delivered, QoS
    supports_fanout = True
    do_restore = False
    body_encoding = None
    from_transport_options = (*virtual.Channel.from_transport_options, "native_eta",
                              "rejected_queue")
    native_eta = True
    rejected_queue: str | None = REJECTED

    def __init__(self, connection: Any, **said: Any) -> None:
        super().__init__(connection, **said)
        self._pumps: dict[str, Pump] = {}
        self._callbacks: dict[str, Callable[[envelope.Raw], Any]] = {}
        self._without_ack: set[str] = set()
        self.comes_first = False
        # What is published is passed to this instead of being put (omq.tasks.celery_beat).
        self.record: Callable[[tuple[str, Mapping[str, Any]]], None] | None = None
        self._declared: set[str] = set()  # temporary ones, which go with the channel

    # publishing

    def _put(self, queue: str, message: Mapping[str, Any], **said: Any) -> None:
        if self.record is not None:
            self.record((queue, message))
            return
        transport = self.connection
        try:
            transport.put(transport.queues.name(queue), self._outgoing(message))
        except (UnknownQueue, QueueGone):
            if not transport.queues.look_for(queue):
                if _answer(message):
                    return  # who asked has gone
                raise
            transport.put(transport.queues.name(queue), self._outgoing(message))

    def _outgoing(self, message: Mapping[str, Any]) -> Outgoing:
        threshold = self.connection.natives.use(lambda native: native.threshold)
        return envelope.outgoing(message, native_eta=self.native_eta, threshold=threshold)

    def _put_fanout(self, exchange: str, message: Mapping[str, Any], routing_key: str,
                    **said: Any) -> None:
        for queue in {row[2] for row in self.connection.queues.bound(exchange, fresh=True)}:
            self._put_bound(queue, message)

    def _put_bound(self, queue: str, message: Mapping[str, Any]) -> None:
        """To a queue that was there when its bindings were read."""
        try:
            self._put(queue, message)
        except (UnknownQueue, QueueGone):
            LOG.debug("queue %s is gone and gets no copy", queue)

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        if not exchange:
            return [routing_key or default or ""]
        for fresh in (False, True):
            table = self._table(exchange, fresh=fresh)
            found = self.typeof(exchange).lookup(table, exchange, routing_key, default)
            if found:
                return list(found)
        return super()._lookup(exchange, routing_key, default) if default else []

    def get_table(self, exchange: str) -> list[Any]:
        return self._table(exchange, fresh=True)

    def _table(self, exchange: str, *, fresh: bool) -> list[Any]:
        kind, queues = self.typeof(exchange), self.connection.queues
        rows = [kind.prepare_bind(queue, exchange, key, None)
                for _, key, queue in queues.bound(exchange, fresh=fresh)]
        own = self.state.exchanges.get(exchange, {}).get("table", [])
        return rows + [row for row in own if row not in rows and queues.exists(row[2])]

    # queues

    def _new_queue(self, queue: str, durable: bool = False, exclusive: bool = False,  # noqa: FBT001, FBT002 (kombu's)
                   auto_delete: bool = False, arguments: Mapping[str, Any] | None = None,  # noqa: FBT001, FBT002
                   **said: Any) -> None:
        told = arguments or {}
        temporary = auto_delete or exclusive or "x-expires" in told
        keys: dict[str, int] = {}
        if "x-message-ttl" in told:
            keys["expiry_max_s"] = max(1, -(-int(told["x-message-ttl"]) // 1000))
        if "x-max-length" in told:
            keys["max_depth"] = int(told["x-max-length"])
        self.connection.queues.declare(queue, temporary=temporary, keys=keys)
        if temporary:
            self._declared.add(queue)

    def prepare_queue_arguments(self, arguments: Any, **said: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **said)

    def _has_queue(self, queue: str, **said: Any) -> bool:
        return bool(self.connection.queues.exists(queue))

    def _size(self, queue: str) -> int:
        return int(self.connection.queues.ready(queue))

    def _purge(self, queue: str) -> int:
        return int(self.connection.queues.clear(queue))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        self.connection.queues.bind(queue, exchange, routing_key)

    def queue_unbind(self, queue: str, exchange: str | None = None, routing_key: str = "",
                     arguments: Any = None, **said: Any) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        own = self.state.exchanges.get(exchange, {}).get("table", [])
        own[:] = [row for row in own if (row[0], row[2]) != (routing_key, queue)]
        self.connection.queues.unbind(queue, exchange, routing_key)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False,  # noqa: FBT001, FBT002 (kombu's)
                     **said: Any) -> None:
        if if_empty and self._size(queue):
            return
        pump = self._pumps.pop(queue, None)
        if pump is not None:
            pump.close()
        self.connection.queues.delete(queue)
        self.state.queue_bindings_delete(queue)
        self._declared.discard(queue)

    # consuming

    def basic_consume(self, queue: str, no_ack: bool, callback: Callable[[Delivered], Any],  # noqa: FBT001 (kombu's)
                      consumer_tag: str, **said: Any) -> None:
        def deliver(raw: envelope.Raw) -> Any:
            message = self.Message(raw, channel=self)
            if no_ack:
                message.pump.say(lambda _: message.native.done())
            else:
                self.qos.append(message, message.delivery_tag)
            return callback(message)

        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        self._active_queues.append(queue)
        self._callbacks[queue] = deliver
        self.comes_first = self.comes_first or self.connection.queues.is_temporary(queue)
        if no_ack:
            self._without_ack.add(queue)
        self._pump(queue)
        self.connection.told()  # an event loop asks what is wanted of it

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0,
                  apply_global: bool = False) -> None:  # noqa: FBT001, FBT002 (kombu's)
        """There may be room for more now, or less."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection.told()

    def basic_cancel(self, consumer_tag: str) -> None:
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag)
        self._active_queues.remove(queue)
        if queue not in self._active_queues:
            self._callbacks.pop(queue, None)
            self._without_ack.discard(queue)
            if queue in self._pumps:
                self._pumps[queue].want(0)  # it stays for what is not acknowledged yet

    def basic_get(self, queue: str, no_ack: bool = False, **said: Any) -> Delivered | None:  # noqa: FBT001, FBT002 (kombu's)
        pump = self._pump(queue)
        found = pump.ask(lambda reader: [(each, each.body) for each in reader.next(1, 0.0)])
        raw = self._raw(queue, pump, *found[0]) if found else None
        if raw is None:
            return None
        message = self.Message(raw, channel=self)
        if no_ack:
            pump.say(lambda _: message.native.done())
        else:
            self.qos.append(message, message.delivery_tag)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        raise Empty  # consumers get theirs from their pumps

    def next_event(self) -> Callable[[], Any] | None:
        """A delivery that may happen now. The error with which a pump ended."""
        for _ in range(len(self._active_queues)):
            queue = self._active_queues.pop(0)  # each has its turn
            self._active_queues.append(queue)
            room = AHEAD if queue in self._without_ack else self._room()
            pump, raw = self._pump(queue), None
            while room > 0 and raw is None and (arrived := pump.take()) is not None:
                raw = self._raw(queue, pump, *arrived)  # None: it is set aside, the next one
            pump.want(max(0, room - bool(raw)))
            if raw is not None:
                callback, delivered = self._callbacks[queue], raw
                return lambda: callback(delivered)
        return None

    def _room(self) -> int:
        estimate = self.qos.can_consume_max_estimate()
        return AHEAD if estimate is None else min(int(estimate), AHEAD)

    def _raw(self, queue: str, pump: Pump, native: Native, body: bytes) -> envelope.Raw | None:
        try:
            raw = envelope.decode(body, queue, self.rejected_queue or "POISON")
        except BadEnvelope as error:
            LOG.error("omq: %s", error)
            pump.say(lambda _: self.set_aside(native))
            return None
        raw["properties"]["delivery_tag"] = self._next_delivery_tag()
        return {**raw, "native": native, "pump": pump}

    def set_aside(self, native: Native) -> None:
        """By the pump: rejected, and kept for somebody to look at."""
        if self.rejected_queue is None:
            native.done()
        else:
            native.move(self.rejected_queue)

    def _pump(self, queue: str) -> Pump:
        pump = self._pumps.get(queue)
        if pump is None:
            transport = self.connection
            pump = self._pumps[queue] = Pump(
                transport.natives.connect, transport.queues.name(queue), transport.told)
        return pump

    def close(self) -> None:
        """Give back what is held."""
        if self.closed:
            return
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        for pump in self._pumps.values():
            pump.close()
        self._pumps.clear()
        for queue in list(self._declared):
            self.connection.queues.delete(queue)
        self._declared.clear()
        super().close()


def _answer(message: Mapping[str, Any]) -> bool:
    """It goes to somebody who asked (RPC): its queue may have gone with him."""
    properties = message["properties"]
    return bool(properties.get("correlation_id")) and not properties.get("reply_to")
