"""The transport of kombu, hence of Celery: broker_url = "omq:///var/lib/orders", "omq://INSTANCE".

It has one native connection for what is published and declared, and one, with a thread, for each
queue that is consumed from. Deliveries happen in the thread that calls drain_events, or in that of
the event loop of a worker: it polls a descriptor, which the threads ring (Bell). So a worker whose
pool is busy goes on hearing remote control, and its timers run.

transport_options: `timeout_s` (10: patience with a manager that is away), `queue_keys` (what queues
are defined with, in the words of queues.conf), `native_eta` (True: a task with an ETA waits on its
queue, not in a worker), `rejected_queue` ("CELERY.REJECTED"; None: what is rejected goes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import virtual

import omq
from omq.base.errors import QueueExists, QueueOfFile
from omq.ipc.wire.outgoing import Outgoing
from omq.tasks.bell import Bell
from omq.tasks.kombu_channel import Channel
from omq.tasks.kombu_queues import Queues
from omq.tasks.natives import CONNECTION_ERRORS, TIMEOUT_S, Natives

NAME: Final = "kombu"
QUEUE_KEYS: Final = {"attempts_max": 20, "death_delay_s": 1}
"""Celery retries by itself, and its workers are killed more often than they are at fault."""
DELIVERIES_MAX: Final = 50
"""In one turn of an event loop: its timers and the pool have their turn between two of these."""


class Transport(virtual.Transport):
    """See the module."""

    Channel = Channel
    can_parse_url = True
    default_port = None
    driver_type = driver_name = "omq"
    polling_interval = None
    connection_errors = (*virtual.Transport.connection_errors, *CONNECTION_ERRORS)
    channel_errors = (*virtual.Transport.channel_errors, ChannelError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = channel_errors
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client: Any, **said: Any) -> None:
        super().__init__(client, **said)
        options = client.transport_options
        self.natives = Natives(client.hostname or "omq://", NAME,
                               float(options.get("timeout_s", TIMEOUT_S)))
        self.queues = Queues(self.natives, {**QUEUE_KEYS, **options.get("queue_keys", {})})
        self._rejected: str | None = options.get("rejected_queue", Channel.rejected_queue)
        self._bell = Bell()
        self._loop: Any = None  # the hub that polls the bell
        self._pid = os.getpid()

    def driver_version(self) -> str:
        return omq.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:  # noqa: FBT001, FBT002 (kombu's)
        return uri

    def establish_connection(self) -> Transport:
        """The errors of omq.connect come here."""
        self.natives.use(lambda native: native.room)
        if self._rejected is not None:
            self._have(self._rejected)
        self._avail_channels.append(self.create_channel(self))
        return self

    def _have(self, queue: str) -> None:
        try:
            self.natives.use(lambda native: native.queue_number(queue))
        except omq.UnknownQueue:
            with suppress(QueueExists, QueueOfFile):  # another worker was quicker
                self.natives.use(lambda native: native.queues.define(
                    queue, description="Tasks that workers rejected; for the operator"))

    def close_connection(self, connection: Any) -> None:
        if self._pid != os.getpid():
            return  # the parent's channels are the parent's
        self._leave_event_loop()
        super().close_connection(connection)
        self.natives.close()
        self.queues.forget()

    def put(self, queue: str, message: Outgoing) -> None:
        """It is on the disk then."""
        self.natives.use(lambda native: native.put(queue, outgoing=message))

    def told(self) -> None:
        """From any thread: something has arrived, or there is room for it."""
        self._bell.ring()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """One delivery, in this thread; TimeoutError when none came in time."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            heard = self._bell.rings
            deliver = self._next_event()
            if deliver is not None:
                deliver()
                return
            left = None if ends is None else ends - time.monotonic()
            if not self._bell.wait(heard, left):
                raise TimeoutError

    def _next_event(self) -> Callable[[], Any] | None:
        """A delivery that may happen now, of each channel in its turn; those with temporary queues
        first: what a worker is ordered counts for the tasks that have come, too."""
        for channel in sorted(self.channels, key=lambda each: not each.comes_first):
            deliver: Callable[[], Any] | None = channel.next_event()
            if deliver is not None:
                self.channels.remove(channel)
                self.channels.append(channel)
                return deliver
        return None

    # a worker's event loop (kombu.asynchronous.Hub)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver in this loop from now on. What a pump ended with is raised there, too."""
        self._leave_event_loop()
        self._loop = loop
        loop.add_reader(self._bell.open(), self._deliver)
        self._bell.ring()  # who consumes already

    def _deliver(self) -> None:
        """The bell rang: all that may be delivered. It is silenced first: what arrives from here on
        rings it again."""
        self._bell.silence()
        for _ in range(DELIVERIES_MAX):
            deliver = self._next_event()
            if deliver is None:
                return
            deliver()
        self._bell.ring()

    def _leave_event_loop(self) -> None:
        """By name, and not by closing the descriptor alone: forked children have it, too, so the
        kernel would go on polling it for nobody."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.remove_reader(self._bell.descriptor)
            self._bell.close()
