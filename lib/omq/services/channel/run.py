"""One channel that runs: the thread that has the line, and decides.

It connects, ends what is in doubt as the other side's record says (protocol), sends, and commits
what is confirmed. The other thread (`Intake`) takes messages meanwhile.

Invariants: 1. of a line that broke nothing is forgotten: batches in doubt stay in memory and are
sent again under their numbers; 2. a batch ends here after the other side said so, never before;
3. a channel out of step waits for people, and looks again as after a line that broke.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from omq.base import events, fault
from omq.base.errors import (
    ChannelBroken,
    ChannelOutOfStep,
    ChannelRefused,
    OmqError,
    UnitBackedOut,
    UnitResolved,
    UnitUnknown,
)
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.limits import KIB
from omq.base.names import escape
from omq.ipc.client.connection import Client
from omq.ipc.client.in_doubt import UnitInDoubt
from omq.services.channel.batch import Batch, Reach, Taken, Taker
from omq.services.channel.courier import Courier
from omq.services.channel.definition import ORDER, Channel, altered, channel_of, write
from omq.services.channel.greeting import Greeting, Hello
from omq.services.channel.line import Line
from omq.services.channel.names import NOBODY, BatchName, batch_name, own_name
from omq.services.channel.protocol import OutOfStep
from omq.services.channel.security import credentials
from omq.services.channel.shared import Place, Shared
from omq.services.daemon.daemon import last_trace

_TURN_S: Final = 1.0
_STOPPING_TURN_S: Final = 0.05
RUNNING, RETRYING, OUT_OF_STEP, IDLE, STOPPED = (
    "running", "retrying", "out of step", "idle", "stopped")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is published about a channel that runs (run/channels.json)."""

    channel: str
    state: str = "starting"
    peer: str = ""
    batch: int = 0
    messages: int = 0
    bytes: int = 0
    in_doubt: int = 0
    tries: int = 0
    reason: str = ""


class ChannelRun(threading.Thread):
    """See the module."""

    def __init__(self, place: Place, channel: Channel) -> None:
        super().__init__(name=f"channel {channel.name}", daemon=True)
        self.channel, self._place = channel, place
        self.facts = Facts(channel.name, peer=channel.peer)
        self._shared = Shared(place, channel)
        self._intake = Intake(self._shared)
        self._drain_s = float(place.settings.drain_timeout_s)

    def stop(self) -> None:
        """It ends when what is under way is settled, or `drain_timeout_s` is over."""
        self._shared.stop.set()
        self._shared.quiet.set()
        self._shared.stir()

    def close(self) -> None:
        """Behind its end."""
        self.stop()
        self.join()
        self._intake.join()
        os.close(self._shared.wake)

    def run(self) -> None:
        """Until it is stopped, or idle."""
        self._intake.start()
        tries, stop = 0, self._shared.stop
        while not stop.is_set():
            try:
                with self._place.connect() as native:
                    self._connected(native)
                break
            except (OmqError, OutOfStep) as error:
                tries = 1 if self.facts.state == RUNNING else tries + 1
                self._failed(error, tries)
            except Exception:
                self._shared.event(events.BUG, ERROR, traceback=last_trace())
                stop.wait(_TURN_S)
        self._shared.quiet.set()
        self._shared.stir()
        self._tell(state=STOPPED if stop.is_set() else IDLE)
        self._shared.event(events.CHANNEL_ENDED, REPORT)
        if not stop.is_set():
            self._place.idle(self.channel)

    def _failed(self, error: Exception, tries: int) -> None:
        if self._shared.stop.is_set():
            return
        short = tries <= self.channel.number("short_retries")
        pause_s = self.channel.number("short_retry" if short else "long_retry")
        out, reason = isinstance(error, ChannelOutOfStep | OutOfStep), escape(str(error), 300)
        self._tell(state=OUT_OF_STEP if out else RETRYING, tries=tries, reason=reason)
        self._shared.event(events.CHANNEL_OUT_OF_STEP if out else events.CHANNEL_BROKE,
                           ERROR if out else WARNING, reason=reason, again_in_s=pause_s)
        self._shared.stop.wait(pause_s)

    def _connected(self, native: Client) -> None:
        place, channel = self._place, self.channel
        settings = place.settings
        hello = Hello(own_name(settings), place.spool)
        if (order := channel.reset) is not None:
            self._refuse_doubt(native)
            hello = replace(hello, reset=str(order))
        line = Line(channel, credentials(channel, settings, place.conf_dir), hello,
                    settings.channel_connect_timeout_s)
        polite = False
        try:
            fault.point("channel.before_resync")
            if self.channel.reset is not None:
                self._reset(native, line)
                polite = True
                return
            self._resync(native, line)
            self._tell(state=RUNNING, tries=0, reason="")
            self._shared.event(events.CHANNEL_RUNNING, REPORT, batch=self._shared.sending.next)
            self._shared.stir()
            self._work(native, line)
            polite = True
        finally:
            with self._shared.lock:
                self._shared.sending.cut()
            line.close(politely=polite)

    # what people want

    def _refuse_doubt(self, native: Client) -> None:
        """OutOfStep: what became of these is known by the old numbers alone."""
        if found := sorted(each.number for unit in native.units_in_doubt()
                           if (each := self._mine(unit)) is not None):
            raise OutOfStep(f"batches {found} are in doubt, and a reset waits: "
                            f"omq channel resolve {self.channel.name}")

    def _reset(self, native: Client, line: Line) -> None:
        """The other side was told; nothing else goes over this line. The definition changes, so
        the service ends this run and begins another one."""
        order, said = self.channel.reset, line.greeting
        assert order is not None
        if said.reset != str(order) and said.last != order.batch:
            raise ChannelRefused(channel=self.channel.name, peer=self.channel.peer, reason=(
                f"it knows no resets; 'omq channel reset {self.channel.name} batch={order.batch}' "
                "there does the same"))
        if channel_of(native.queues.show(self.channel.name)) == self.channel:  # else it was altered
            write(native, altered(self.channel, **{ORDER: ""}), "the reset is done")
            self._shared.event(events.CHANNEL_RESET, REPORT, batch=said.last)

    # what is in doubt

    def _resync(self, native: Client, line: Line) -> None:
        shared, greeting = self._shared, line.greeting
        with shared.doubt:
            names = self._in_doubt(native, greeting.spool or NOBODY)
            last = min(names, default=1) - 1 if self.channel.foreign else greeting.last
            self._look_for_another(greeting, names)
            with shared.lock:
                said = shared.sending.resync(last, names)
            for number in said.commit:
                self._end(native, number, names[number], commit=True)
            for number in reversed(said.back_out):
                self._end(native, number, names[number], commit=False)
            for number in tuple(shared.batches):
                if number in said.resend:
                    shared.batches[number].begin_again()
                else:  # ended by an operator
                    shared.settled(number)
            shared.spool, shared.seen = greeting.spool or NOBODY, (last, greeting.mark)
            together = self.channel.number("transferlimit") * KIB if greeting.bundles else 0
            shared.reach, shared.failed = Reach(
                greeting.bytes_max, greeting.batch_max,
                min(together, greeting.bytes_max or together), greeting.batch_bytes), ""
        if self.channel.foreign and said.resend:
            shared.event(events.CHANNEL_TWICE, WARNING, batches=len(said.resend))

    def _look_for_another(self, greeting: Greeting, names: dict[int, str]) -> None:
        """A copy of our spool that runs somewhere numbers its batches as we do; so does one that
        was restored. OutOfStep: the last batch there is none of ours; nothing is to be ended by
        it. Without a mark it says nothing (an older side, or `omq channel reset`)."""
        ours = batch_name(names.get(greeting.last, ""))
        held = self._shared.batches.get(greeting.last)  # an operator has ended it, perhaps
        number, mark = self._shared.seen
        if ours is not None:
            number, mark = ours.number, ours.mark
        elif held is not None:
            number, mark = held.number, held.mark
        elif self._shared.spool != greeting.spool:
            return  # nobody was there yet, or another one
        if greeting.mark and mark and (greeting.last, greeting.mark) != (number, mark):
            raise OutOfStep(f"batch {greeting.last} there was sent by another sender: another "
                            "channel.sender has a copy of this spool, or one side was restored")

    def _in_doubt(self, native: Client, spool: str) -> dict[int, str]:
        """Names of units by number. OutOfStep: they were for somebody else."""
        found: dict[int, str] = {}
        for unit in native.units_in_doubt():
            name = self._mine(unit)
            if name is None:
                continue
            if name.spool != spool:
                raise OutOfStep(f"batch {name.number} is in doubt, and was for spool {name.spool}; "
                                f"now there is {'no omq' if spool == NOBODY else spool}")
            found[name.number] = unit.name
        return found

    def _mine(self, unit: UnitInDoubt) -> BatchName | None:
        """The batch that a unit in doubt is; None: none of ours. Any user may give a unit such a
        name: ours are of our own user and took from the transmission queue."""
        name = batch_name(unit.name)
        if name is None or name.channel != self.channel.name:
            return None
        took = unit.missing or unit.queues.get(self.channel.name, (0, 0))[0]
        return name if took and unit.uid in (None, os.geteuid()) else None

    def _end(self, native: Client, number: int, name: str, *, commit: bool) -> None:
        how = "committed" if commit else "backed out"
        try:
            (native.commit_unit if commit else native.back_out_unit)(name)
        except (UnitUnknown, UnitResolved) as error:  # an operator was quicker
            how = escape(str(error), 200)
        self._shared.settled(number)
        self._shared.event(events.CHANNEL_RESOLVED, REPORT, batch=number, how=how)

    # the line

    def _work(self, native: Client, line: Line) -> None:
        shared, stop_by = self._shared, 0.0
        courier = Courier(shared, native, line, self._confirmed)
        idle_s, since = self.channel.number("disconnect"), time.monotonic()
        while True:
            with shared.lock:
                if shared.failed:
                    raise self._broken(shared.failed)
                busy = bool(shared.sending.held or shared.fast)
            now = time.monotonic()
            since = now if busy else since
            if shared.stop.is_set():
                stop_by = stop_by or now + self._drain_s
                if now >= stop_by or not (busy or self._intake.is_alive()):
                    return
            elif idle_s and now - since >= idle_s:
                shared.quiet.set()
                if not self._intake.is_alive():  # else it takes something now, or will end soon
                    return
            waits = courier.send()
            line.pump(_STOPPING_TURN_S if shared.quiet.is_set() else _TURN_S, shared.wake,
                      roomy=waits)
            courier.hear()

    def _confirmed(self, batch: Batch) -> None:
        facts = self.facts
        self._tell(batch=batch.number, messages=facts.messages + len(batch.parcels),
                   bytes=facts.bytes + sum(len(data) for _, data in batch.parcels))

    def _broken(self, reason: str) -> ChannelBroken:
        return ChannelBroken(channel=self.channel.name, peer=self.channel.peer, reason=reason)

    def _tell(self, **changed: Any) -> None:
        self.facts = replace(self.facts, in_doubt=len(self._shared.sending.held), **changed)


_PAUSE_S: Final = 1.0


class Intake(threading.Thread):
    """Takes messages off the queue and makes batches in doubt, while there is room for one.

    Invariant: an error in the middle of a request to the queue manager, whatever came of it, makes
    the line anew (Shared.again): that counts what is in doubt."""

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
