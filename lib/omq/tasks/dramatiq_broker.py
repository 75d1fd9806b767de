"""A broker of dramatiq over omq.

    broker = OmqBroker("omq:///var/lib/orders")
    dramatiq.set_broker(broker)

A message with a delay waits on its own queue, in the manager; there is none for delayed ones. What
dramatiq gives up (its Retries have done all they may, or the actor is unknown) goes to the queue
NAME.XQ. What a worker that dies had in hand returns.

Invariants: 1. a message is acknowledged by the pump that took it, in whatever thread; 2. no more
than `prefetch` messages are with one consumer; 3. after a fork broker and results make connections
of their own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.common import xq_name
from dramatiq.errors import ConnectionFailed, DecodeError, QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message
from dramatiq.results.backend import Missing, ResultBackend
from dramatiq.results.errors import ResultMissing, ResultTimeout

from omq.base.errors import NoAuthority, QueueExists, QueueOfFile, UnknownQueue
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message as Native
from omq.tasks.names import queue_name as queue_of
from omq.tasks.natives import CONNECTION_ERRORS, TIMEOUT_S, Natives
from omq.tasks.pump import Pump
from omq.tasks.results import Results

LOG: Final = logging.getLogger("omq.tasks")
NAME: Final = "dramatiq"
QUEUE_KEYS: Final = {"attempts_max": 20, "death_delay_s": 1}
"""Dramatiq retries by itself; only a worker that dies counts here."""
RESULTS: Final = "DRAMATIQ.RESULTS"
JOIN_STEP_S: Final = 0.1
RESULT_TIMEOUT_S: Final = 10.0
"""As dramatiq has it."""
_NAMED: Final = 200  # characters of an actor's name and an id that become properties


@contextmanager
def _told_as_dramatiq_does() -> Iterator[None]:
    try:
        yield
    except CONNECTION_ERRORS as error:
        raise ConnectionFailed(str(error)) from error


class OmqBroker(Broker):
    """See the module. `queue_keys`: what queues are defined with, in the words of queues.conf."""

    def __init__(self, url: str = "omq://", *, middleware: Any = None,
                 timeout_s: float = TIMEOUT_S, queue_keys: Mapping[str, Any] | None = None
                 ) -> None:
        super().__init__(middleware)
        self._natives = Natives(url, NAME, timeout_s)
        self._keys: dict[str, Any] = {**QUEUE_KEYS, **(queue_keys or {})}
        self.queues: dict[str, str] = {}  # of dramatiq -> of omq

    def declare_queue(self, name: str) -> None:
        """Nothing is asked of the manager before the queue is used."""
        if name not in self.queues:
            self.emit_before("declare_queue", name)
            self.queues[name] = queue_of(name)
            self.emit_after("declare_queue", name)

    def enqueue(self, message: Message, *, delay: int | None = None) -> Message:
        """It is on the disk then. `delay`: ms."""
        name = self._known(message.queue_name)
        self.emit_before("enqueue", message, delay)
        with _told_as_dramatiq_does():
            self._having(message.queue_name, lambda: self._natives.use(lambda native: native.put(
                name, message.encode(), delay_s=(delay or 0) / 1000, properties={
                    "actor": message.actor_name[:_NAMED], "id": message.message_id[:_NAMED]})))
        self.emit_after("enqueue", message, delay)
        return message

    def with_native(self, work: Callable[[Client], None]) -> None:
        """Do something with the connection of what is put."""
        with _told_as_dramatiq_does():
            self._natives.use(work)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        name = self._known(queue_name)
        dead = xq_name(queue_name).lower()
        with _told_as_dramatiq_does():
            for each in (queue_name, dead):
                self._make(each)
            return OmqConsumer(self._natives, name, queue_of(dead), prefetch, timeout / 1000)

    def get_declared_queues(self) -> set[str]:
        return set(self.queues)

    def get_declared_delay_queues(self) -> set[str]:
        return set()

    def flush(self, queue_name: str) -> None:
        """Delete what nobody has."""
        name = self._known(queue_name)
        with _told_as_dramatiq_does():
            self._having(queue_name, lambda: self._natives.use(
                lambda native: native.queues.clear(name, reason="flushed by dramatiq")))

    def flush_all(self) -> None:
        for each in self.queues:
            self.flush(each)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Until nothing is on the queue, nor with a worker, nor delayed."""
        name = self._known(queue_name)
        wait = threading.Event()
        rounds = None if timeout is None else timeout / 1000 / JOIN_STEP_S
        done = 0
        while self._messages(name):
            if rounds is not None and done >= rounds:
                raise QueueJoinTimeout(queue_name)
            wait.wait(JOIN_STEP_S)
            done += 1

    def _messages(self, name: str) -> int:
        """None are on a queue that nobody has used yet."""
        with _told_as_dramatiq_does():
            try:
                return self._natives.use(lambda native: native.queues.show(name)).messages
            except UnknownQueue:
                return 0

    def close(self) -> None:
        self._natives.close()

    def _known(self, name: str) -> str:
        try:
            return self.queues[name]
        except KeyError:
            raise QueueNotFound(name) from None

    def _having(self, name: str, work: Callable[[], Any]) -> Any:
        """Carried out; where the queue is missing it is made, and the work done once more."""
        try:
            return work()
        except UnknownQueue:
            self._make(name)
            return work()

    def _make(self, name: str) -> None:
        try:
            self._natives.use(lambda native: native.queues.define(
                queue_of(name), reason="declared by dramatiq", **self._keys))
        except (QueueExists, QueueOfFile, NoAuthority):
            # It is there; else who uses it hears of that.
            self._natives.use(lambda native: native.queue_number(queue_of(name)))


class _Proxy(MessageProxy):
    def __init__(self, message: Message, native: Native) -> None:
        super().__init__(message)
        self.native = native


class OmqConsumer(Consumer):
    """See the module."""

    def __init__(self, natives: Natives, queue: str, dead: str, prefetch: int, timeout_s: float
                 ) -> None:
        self._dead, self._prefetch, self._timeout_s = dead, prefetch, timeout_s
        self._out = 0
        self._changed = threading.Condition()
        self._pump = Pump(natives.connect, queue, self._told)

    def __next__(self) -> MessageProxy | None:
        with _told_as_dramatiq_does(), self._changed:
            room = self._prefetch - self._out
            if room > 0:
                self._pump.want(room)
            arrived = self._pump.take() if room > 0 else None
            if arrived is None:
                self._changed.wait(self._timeout_s)
                room = self._prefetch - self._out
                arrived = self._pump.take() if room > 0 else None
            if arrived is None:
                return None
            self._out += 1
        native, body = arrived
        try:
            return _Proxy(Message.decode(body), native)
        except DecodeError as error:
            LOG.error("omq: a message of %s is not a task of dramatiq; it goes to %s: %s",
                      native.queue, self._dead, error)
            self._settle(lambda: native.move(self._dead))
            return None

    def ack(self, message: Any) -> None:
        self._settle(message.native.done)

    def nack(self, message: Any) -> None:
        self._settle(lambda: message.native.move(self._dead))

    def requeue(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self._settle(message.native.release)

    def close(self) -> None:
        """Give back what nobody has settled."""
        self._pump.close()

    def _settle(self, how: Callable[[], None]) -> None:
        with _told_as_dramatiq_does():
            self._pump.say(lambda _: how())
        with self._changed:
            self._out -= 1
            self._changed.notify_all()

    def _told(self) -> None:
        with self._changed:
            self._changed.notify_all()


class OmqResults(ResultBackend):
    """Results of actors: `broker.add_middleware(Results(backend=OmqResults(url)))`. They lie on
    the queue `queue`, expire after the middleware's result_ttl, and wake who waits for them."""

    def __init__(self, url: str = "omq://", *, queue: str = RESULTS, timeout_s: float = TIMEOUT_S,
                 **said: Any) -> None:
        super().__init__(**said)
        self._results = Results(Natives(url, NAME, timeout_s), queue)

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        """As ResultBackend has it; who waits does so in the manager."""
        wait_s = 0.0 if not block else RESULT_TIMEOUT_S if timeout is None else timeout / 1000
        found = self._results.get(self.build_message_key(message), wait_s)
        if found is None:
            raise (ResultTimeout if block else ResultMissing)(message)
        return self.unwrap_result(self.encoder.decode(found))

    def _get(self, message_key: str) -> Any:
        found = self._results.get(message_key)
        return Missing if found is None else self.encoder.decode(found)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        self._results.set(message_key, self.encoder.encode(result), ttl / 1000)

    def close(self) -> None:
        self._results.close()

