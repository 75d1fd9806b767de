"""The thread of a channel that takes messages off its queue and makes batches in doubt, while there
is room for one.

Invariant: an error in the middle of a request to the queue manager, whatever came of it, makes the
line anew (Shared.again): that counts what is in doubt.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final

from omq.base import events
from omq.base.errors import OmqError, UnitBackedOut
from omq.base.event_log import ERROR, WARNING
from omq.base.names import escape
from omq.services.channel.batch import Taken, Taker
from omq.services.channel.names import BatchName
from omq.services.channel.shared import Shared
from omq.services.daemon.daemon import last_trace

_PAUSE_S: Final = 1.0


class Intake(threading.Thread):
    """See the module."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(name=f"batches {shared.channel.name}", daemon=True)
        self._shared = shared

    def run(self) -> None:
        """Until the channel is to be quiet."""
        shared = self._shared
        while not shared.quiet.is_set():
            try:
                with shared.place.connect() as native:
                    taker = Taker(native, shared.channel, shared.place.settings,
                                  shared.quiet.is_set)
                    while self._room():
                        self._one(taker)
            except UnitBackedOut:  # the queue manager is another one: nothing was in doubt
                continue
            except OmqError as error:
                shared.again(str(error))
                shared.quiet.wait(_PAUSE_S)
            except Exception:
                shared.event(events.BUG, ERROR, traceback=last_trace())
                shared.quiet.wait(_PAUSE_S)

    def _room(self) -> bool:
        """Wait for it; False: the channel is to stop."""
        shared = self._shared
        with shared.lock:
            shared.lock.wait_for(lambda: shared.quiet.is_set() or (
                shared.sending.room and shared.fast_room and not shared.failed))
        return not shared.quiet.is_set()

    def _one(self, taker: Taker) -> None:
        taken = taker.take(self._shared.reach)
        if taken is None:
            return
        self._shared.give_fast(taken.fast)  # they have left their queue
        try:
            if taken.messages:
                self._prepare(taker, taken)
        finally:
            taken.end()
        for reason in taken.dead:
            self._shared.event(events.CHANNEL_DEAD_LETTER, WARNING, reason=escape(reason, 200))
        self._shared.stir()

    def _prepare(self, taker: Taker, taken: Taken) -> None:
        shared = self._shared
        with shared.doubt:
            with shared.lock:
                if shared.failed or not shared.sending.connected:
                    return  # they go back: nothing is in doubt that nobody could be asked about
            number = shared.sending.next
            name = BatchName(shared.channel.name, shared.spool, number, secrets.token_hex(8))
            try:
                batch = taker.prepare(taken, name)
            except OmqError as error:  # it may be in doubt: the next connection counts
                shared.again(str(error))
                raise
            if batch is None:
                return
            with shared.lock:
                shared.batches[number] = batch
                shared.sending.prepared()
