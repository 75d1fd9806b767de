"""What the two threads of a channel share, and where a channel runs."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.event_log import FieldValue, Level
from omq.base.events import Event
from omq.base.limits import KIB
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.ipc.client.connection import Client
from omq.services.channel.batch import Batch, Reach
from omq.services.channel.definition import Channel
from omq.services.channel.names import NOBODY
from omq.services.channel.protocol import Sending

_FAST_MAX: Final = 1000
"""So many messages of no batch wait for the line; a batch of them more at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where channels run. `spool`: its uuid; `connect`: a native connection; `idle`: a channel has
    closed its line, as its `disconnect` wants it."""

    settings: Settings
    conf_dir: Path
    spool: str
    rated: RatedLog
    connect: Callable[[], Client]
    idle: Callable[[Channel], None]


class Shared:
    """`lock` guards all of it; `doubt` is held while a batch becomes in doubt, and while those in
    doubt are counted. `failed`: why the line is to be made anew."""

    def __init__(self, place: Place, channel: Channel) -> None:
        self.place, self.channel = place, channel
        self.lock, self.doubt = threading.Condition(), threading.Lock()
        self.sending = Sending(channel.number("pipeline"))
        self.batches: dict[int, Batch] = {}
        self.fast: deque[tuple[str, bytes]] = deque()
        self._fast_bytes, self._fast_bytes_max = 0, channel.number("batchlimit") * KIB
        self.failed = ""
        self.spool, self.reach = NOBODY, Reach(0, 0)
        self.seen = (0, "")  # number and mark of the last batch that we know to be there
        self.stop = threading.Event()  # the channel ends
        self.quiet = threading.Event()  # no more batches
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def stir(self) -> None:
        """There is something to do for the other thread."""
        with suppress(BlockingIOError):
            os.eventfd_write(self.wake, 1)
        with self.lock:
            self.lock.notify_all()

    @property
    def fast_room(self) -> bool:
        """More that are in no batch may be taken: those that wait for the line are in memory
        alone."""
        return len(self.fast) < _FAST_MAX and self._fast_bytes < self._fast_bytes_max

    def give_fast(self, some: list[tuple[str, bytes]]) -> None:
        """They have left their queue, and wait for the line."""
        with self.lock:
            self.fast.extend(some)
            self._fast_bytes += sum(len(data) for _address, data in some)

    def sent_fast(self, count: int = 1) -> None:
        """The first of them have gone to the line."""
        with self.lock:
            for _ in range(count):
                self._fast_bytes -= len(self.fast.popleft()[1])
            self.lock.notify_all()

    def again(self, reason: str) -> None:
        """Nobody knows what became of a request: the line is to be made anew, which counts."""
        with self.lock:
            self.failed = reason
        self.stir()

    def settled(self, number: int) -> None:
        """A batch has ended."""
        with self.lock:
            self.batches.pop(number, None)
            self.sending.settled(number)
            self.lock.notify_all()

    def event(self, event: Event, level: Level, **fields: FieldValue) -> None:
        """Of this channel."""
        self.place.rated.event(event, level, self.channel.name, channel=self.channel.name,
                               peer=self.channel.peer, **fields)
