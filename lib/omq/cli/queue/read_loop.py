"""The life of one reader of omread: take messages, have each worked on, tell the result.

Invariants: 1. a message is settled by the handler or released, never dropped; 2. after a signal the
message in hand is finished, the others of the batch are released, and what is decided is sent;
3. an error of the handler (a closed pipe, a command that cannot be started) releases its message
and ends the reader; no attempt is counted; 4. all readers together take no more than the count.

The count is shared through a memory file under a record lock: the kernel takes the lock back from a
reader that is killed, and a killed reader only leaves the count unreached.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from omq.services.daemon.signals import Signals
from omq.services.readers.runner import HeldMessage

_BYTES: Final = 8

Handler = Callable[[HeldMessage], None]


class InterruptibleReader(Protocol):
    """What is used of omq.Reader."""

    def next(self, n: int, timeout_s: float) -> Sequence[HeldMessage]: ...
    def flush(self) -> None: ...
    def interrupt(self) -> None: ...


class Tally:
    """How many messages may still be taken; None = any number. Survives a fork."""

    def __init__(self, count: int | None) -> None:
        self._fd = -1
        if count is not None:
            self._fd = os.memfd_create("tally", os.MFD_CLOEXEC)
            self._add(count)

    def take(self, want: int) -> int:
        """Up to `want` of what is left; what is not used is given back."""
        if self._fd < 0:
            return want
        return -self._add(-want)

    def give_back(self, count: int) -> None:
        if self._fd >= 0 and count:
            self._add(count)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, change: int) -> int:
        """Change the number, never below 0; by how much it changed."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            left = int.from_bytes(os.pread(self._fd, _BYTES, 0), "little")
            change = max(change, -left)
            os.pwrite(self._fd, (left + change).to_bytes(_BYTES, "little"), 0)
            return change
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a reader asks for; with `ends` it stops when nothing came for `wait_s`."""

    batch: int
    wait_s: float
    ends: bool


def read(reader: InterruptibleReader, handler: Handler, tally: Tally, wish: ReadPlan,
         signals: Signals) -> int:
    """Until a signal, the count, or a pause that is too long; how many messages were settled."""
    settled = 0
    signals.add_waker(reader.interrupt)
    try:
        while not stop_asked(signals):
            wanted = tally.take(wish.batch)
            if not wanted:
                break
            batch = reader.next(wanted, wish.wait_s)
            tally.give_back(wanted - len(batch))
            if not batch and wish.ends:
                break
            settled += _work(reader, batch, handler, tally, signals)
        reader.flush()
    finally:
        signals.remove_waker(reader.interrupt)
    return settled


def stop_asked(signals: Signals) -> bool:
    """SIGTERM, SIGINT; also SIGHUP: nothing can be reloaded, and a closed terminal sends it."""
    if signals.take_reload():
        signals.request_stop()
    return signals.stopping


def _work(reader: InterruptibleReader, batch: Sequence[HeldMessage], handler: Handler,
          tally: Tally, signals: Signals) -> int:
    for at, message in enumerate(batch):
        if signals.stopping:
            _release(batch[at:], tally)
            return at
        try:
            handler(message)
        except BaseException:
            _release(batch[at:], tally)
            reader.flush()
            raise
    return len(batch)


def _release(batch: Sequence[HeldMessage], tally: Tally) -> None:
    for message in batch:
        message.release()
    tally.give_back(len(batch))
