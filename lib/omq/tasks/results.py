"""Results by key, as messages of one queue: set, get, delete, wait; for Celery and dramatiq.

A result is a message whose id is made of its key, and which expires. To get it is to take it by its
id, and to give it back; what is newer takes the old one's place in one operation.

Invariants: 1. a result that was set is there until it expires, is set anew, or is deleted, over
every crash; 2. of several with one key (two who set it at once) the newest counts, and the next
look ends the others; 3. a native connection is used by one thread at a time, and not after a fork.

Who looks has the message for a moment; another look finds nothing then, and waits for it, HELD_S at
most, unless it asks `once`. Who leaves the line of those who wait comes in again behind all others,
so each wait is longer than the one before. So a result that is there is not told as missing because
others look at it, unless one of them has it in hand for longer than that. To be sure that there is
none takes LOOKS times LOOK_S, and up to HELD_S while others look at any result of the queue.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from omq.base.errors import QueueExists, QueueGone, QueueOfFile, UnknownQueue
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader
from omq.ipc.wire.outgoing import Outgoing
from omq.tasks.natives import Natives

IDLE_MAX: Final = 4
"""Native connections that are kept for the next look."""
SAME_MAX: Final = 100
"""Of one key; two who set at once make two."""
_ID_BYTES: Final = 24
LOOK_S: Final = 0.02
"""Longer than a look takes: so long is waited for a message that another look may have, twice as
long each time that somebody had one, and"""
LOOKS: Final = 3
"""so often in turn, with nothing in anybody's hands behind each: then there is none."""
HELD_S: Final = 3.0
"""The end of that; who has stopped with it in hand has it longer."""
Pair = tuple[Client, Reader]
Result = TypeVar("Result")


def id_of(key: str | bytes) -> bytes:
    """The message id of a key."""
    raw = key.encode() if isinstance(key, str) else key
    return hashlib.sha256(raw).digest()[:_ID_BYTES]


class Results:
    """See the module. `queue` is made when it is not there."""

    def __init__(self, natives: Natives, queue: str) -> None:
        self._natives, self._queue = natives, queue
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Pair] = []

    def set(self, key: str | bytes, value: bytes, expiry_s: float | None) -> None:
        """It is on the disk then."""
        made = Outgoing(body=value, queues=(self._queue,), message_id=id_of(key),
                        expiry_s=expiry_s)

        def work(connection: Client, reader: Reader) -> None:
            newest = _newest(reader, key)
            if newest is None:
                connection.put(self._queue, outgoing=made)
            else:
                newest.move((), new=(made,))

        self._use(work)

    def get(self, key: str | bytes, wait_s: float = 0.0, *, once: bool = False) -> bytes | None:
        """The value; None: there is none, and none came within `wait_s`. `once`: nor is one waited
        for that somebody looks at."""
        def work(connection: Client, reader: Reader) -> bytes | None:
            newest = _newest(reader, key, wait_s)
            if newest is None and not once:
                newest = self._held(connection, reader, key)
            if newest is None:
                return None
            body = newest.body
            newest.release()
            reader.flush()
            return body

        return self._use(work)

    def delete(self, key: str | bytes) -> None:
        def work(connection: Client, reader: Reader) -> None:
            newest = _newest(reader, key) or self._held(connection, reader, key)
            if newest is not None:
                newest.done()
                reader.flush()

        self._use(work)

    def close(self) -> None:
        """End the connections that are idle."""
        if self._pid == os.getpid():
            while self._idle:
                self._idle.pop()[0].close()

    def _use(self, work: Callable[[Client, Reader], Result]) -> Result:
        """With a reader; once more where the queue was removed under it, which makes it anew."""
        try:
            with self._reader() as pair:
                return work(*pair)
        except (QueueGone, UnknownQueue):
            self.close()  # the others have lost it, too
            with self._reader() as pair:
                return work(*pair)

    def _held(self, connection: Client, reader: Reader, key: str | bytes) -> Message | None:
        """What another look gives back meanwhile: it goes to who waits for it."""
        calm, wait_s, ends = 0, LOOK_S, time.monotonic() + HELD_S
        while calm < LOOKS and (left_s := ends - time.monotonic()) > 0:
            newest = _newest(reader, key, min(wait_s, left_s))
            if newest is not None:
                return newest
            calm += 1
            if connection.queues.show(self._queue).facts["active"]:
                calm, wait_s = 0, 2 * wait_s
        return None

    @contextmanager
    def _reader(self) -> Iterator[Pair]:
        if self._pid != os.getpid():
            self._forget()  # the parent's are the parent's
        pair: Pair | None = None
        with suppress(IndexError):  # other threads take, too
            pair = self._idle.pop()
        pair = pair or self._open()
        try:
            yield pair
        except BaseException:  # a time limit of Celery's comes anywhere
            pair[0].abandon()  # the manager takes back what it has
            raise
        if len(self._idle) < IDLE_MAX:
            self._idle.append(pair)
        else:
            pair[0].close()

    def _open(self) -> Pair:
        connection = self._natives.connect()
        try:
            try:
                return connection, connection.reader(self._queue)
            except UnknownQueue:
                with suppress(QueueExists, QueueOfFile):  # somebody was quicker
                    connection.queues.define(self._queue, death_delay_s=0, attempts_max=255,
                                             description="Results of tasks, each by its key")
                return connection, connection.reader(self._queue)
        except BaseException:
            connection.abandon()
            raise


def _newest(reader: Reader, key: str | bytes, wait_s: float = 0.0) -> Message | None:
    """What counts of a key; older ones are done."""
    found = reader.next(SAME_MAX, wait_s, message_id=id_of(key))
    found.sort(key=lambda message: message.qpool_id)
    for old in found[:-1]:
        old.done()
    return found[-1] if found else None
