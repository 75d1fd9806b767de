"""The scheduler's process: takes messages off a queue, has their Mlists brought to the peers by
channel processes, and settles each message when all of its Mlists have ended.

One thread. It waits in one place: for messages, which a line of a channel process ends by SIGIO.

Invariants: 1. a message that was taken is settled once, or given back untouched at a stop; 2. what
was done is never handed to another reader: a settlement that the manager refuses stays here and is
tried again (or takes the service's other way, `ChannelService.instead`); 3. at most `qmgr_window`
messages are in hand, and one peer has at most a quarter of what is free of them, so that a peer
that takes nothing cannot hide the others' mail: the rest is put off, and called back when there is
room (omq.services.delivery.calling_back); 4. a message is "being processed" for the manager only
while it is looked into: if this process is killed no attempt is counted, and all are redelivered.

A channel process that dies costs the message that it was sending one attempt; what it had not begun
goes to another.

Crash argument: killed at any instruction, nothing has happened to a message but what its peers were
told. Its Mlists that were finished and not settled are sent again (RFC 1047): at most one run a
channel process. The channel processes die with this one, before a next one has work.

Errors: those of the client (ManagerUnavailable ...) end the process with their exit code.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from omq.base import event_log, events
from omq.base.errors import OmqError
from omq.base.fault import point
from omq.services.daemon.signals import Signals
from omq.services.delivery.calling_back import LOOK_S, CallingBack
from omq.services.delivery.channel_processes import ChannelProcesses
from omq.services.delivery.deferred import Aside
from omq.services.delivery.holds import Holds
from omq.services.delivery.mlist import Mlist
from omq.services.delivery.peer_book import PeerBook
from omq.services.delivery.rules import Rules
from omq.services.delivery.scheduler import Give, Process, Scheduler, Start
from omq.services.delivery.scheduler_status import Publisher
from omq.services.delivery.sends import Sends
from omq.services.delivery.service import ChannelService, Plan
from omq.services.delivery.settling import Settling, Work, words
from omq.services.delivery.worker import Report
from omq.services.readers.reload import reload_service
from omq.services.readers.runner import Connect
from omq.services.readers.service import Fail, Service

if TYPE_CHECKING:
    from omq.ipc.client.connection import Client
    from omq.ipc.client.message import Message
    from omq.ipc.client.reader import Reader

_TAKE_MAX: Final = 100


class Dispatcher:
    """Runs one ChannelService in this process; see the module."""

    def __init__(self, service: Service, signals: Signals, connect: Connect) -> None:
        assert isinstance(service, ChannelService)
        self._service = service
        self._signals = signals
        self._connect = connect
        self._rung = self._waiting = False
        self._aside = Aside(service.context.settings.qmgr_put_off_messages_max)
        self._ends = Settling(service, self._aside, self._follow)

    def run(self, ready: Callable[[], None]) -> None:
        """Until a signal to stop. `ready` is called once the queue manager knows the reader."""
        context = self._service.context
        self._service.open()
        self._configure()
        self._crew = ChannelProcesses(self._service)
        try:
            with self._connect(context) as connection, connection.reader(
                    context.conf.queue, batch=_TAKE_MAX, auxiliary=False) as reader:
                self._reader: Reader = reader  # type: ignore[assignment]
                self._connection: Client = connection  # type: ignore[assignment]
                signal.signal(signal.SIGIO, self._ring)
                self._signals.add_waker(self._reader.interrupt)
                ready()
                try:
                    self._serve()
                finally:
                    self._signals.remove_waker(self._reader.interrupt)
                    signal.signal(signal.SIGIO, signal.SIG_IGN)
        except OmqError as error:
            if not self._signals.stopping:
                raise
            context.log.event(events.FAILED, event_log.WARNING, at="stop", reason=str(error))
        finally:
            self._crew.kill()
            self._sends.close()
            self._publisher.close()
            self._service.close()

    def _configure(self) -> None:
        context = self._service.context
        self._rules = Rules.of(context.settings)
        self._scheduler = Scheduler(self._rules, self._service.limit_of)
        self._book = PeerBook(context, self._scheduler, self._aside)
        self._holds = Holds(context.paths.held(context.conf.name))
        self._calling = CallingBack(context, self._aside, self._book, self._holds)
        self._publisher = Publisher(context.paths.run / f"{context.conf.name}.peers.now.json")
        self._sends = Sends.of(context, self._rules, begins=True)

    def _serve(self) -> None:
        while not self._signals.stopping:
            if self._signals.take_reload():
                self._reload()
            self._take(time.monotonic())
            self._collect()
            self._decide()
            self._calling.turn(self._connection, self._reader.flush,
                               self._rules.window - self._ends.in_hand, time.monotonic())
        self._finish()

    def _take(self, now: float) -> None:
        room = min(_TAKE_MAX, self._rules.window - self._ends.in_hand)
        timeout_s = self._timeout_s(now)
        if room <= 0:
            self._crew.wait(min(timeout_s, 1.0))
            return
        self._waiting = True
        messages = self._reader.next(room, 0.0 if self._rung else timeout_s)
        self._waiting = False
        if messages:
            point("reader.after_next")
            for message in messages:
                self._begin(message)

    def _timeout_s(self, now: float) -> float:
        longest = float(self._service.context.settings.reader_wait_s)
        if self._ends.in_hand or self._calling.waits:  # what tools change in files is seen in time
            longest = min(longest, LOOK_S)
        if self._calling.goes_on:
            return 0.0
        longest = min(longest, max(0.0, min(self._scheduler.wake, self._ends.due) - now))
        return max(0.0, min(longest, self._publisher.due_s(now)))

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        self._rung = True
        if self._waiting:
            self._waiting = False
            self._reader.wake()

    def _decide(self) -> None:
        now = time.monotonic()
        self._ends.retry(now)
        for action in self._scheduler.decide(now):
            match action:
                case Start(process):
                    self._start(process)
                case Give(process, run):
                    self._give_all(process, run)
                case _:
                    if not action.process.busy:
                        self._crew.end(action.process)
                        self._scheduler.ended(action.process, now)
        self._publisher.publish(self._scheduler, self._aside, self._holds, self._ends.in_hand, now)

    # messages

    def _begin(self, message: Message) -> None:
        """What a new message's Mlists are."""
        called = self._aside.came(message.qpool_id)
        self._ends.in_hand += 1
        try:
            plan = self._service.plan(message)
        except Exception as error:
            self._ends.tell_failed(message, error)
            plan = Fail(words(error))
        if isinstance(plan, Plan):
            message.set_aside()
            self._follow(Work.of(message, plan, called=called))
        else:
            self._ends.settle(message, plan)

    def _follow(self, work: Work) -> None:
        """Where each Mlist of the plan waits. Of a message that has several none is put off because
        its peer has its share: the others would wait with it."""
        message, plan = work.message, work.plan
        now, room = time.monotonic(), work.called or len(plan.groups) > 1
        for group in plan.groups:
            mlist = Mlist(group.channel, group.peer, message.priority, group.recipients, work, now)
            wait = self._holds.of(group.channel, group.peer) or self._book.wait(
                mlist, self._rules.window - self._ends.in_hand, now, called=room)
            if wait is not None:
                self._ends.not_now(mlist, wait)
            else:
                self._scheduler.add(mlist)
        self._ends.one_ended(work)

    # channel processes

    def _start(self, process: Process) -> None:
        if not self._crew.start(process):
            self._scheduler.ended(process, time.monotonic())

    def _give_all(self, process: Process, run: Sequence[Mlist]) -> None:
        """What its line does not hold waits again."""
        for number, mlist in enumerate(run):
            try:
                if not self._give(process, mlist):
                    return
            except BlockingIOError:
                now, rest = time.monotonic(), list(run[number:])
                for each in rest:
                    self._scheduler.left_out(process, each, now)
                self._scheduler.again(rest)
                return

    def _give(self, process: Process, mlist: Mlist) -> bool:
        work: Work = mlist.work
        self._book.begins(mlist)
        try:
            body = work.message.body if self._service.needs_text(mlist.channel) else b""
        except Exception as error:
            self._ends.tell_failed(work.message, error)
            work.failed = words(error)
            body = None
        work.message.set_aside()
        if body is not None and self._crew.give(process, mlist, work.plan.head, body):
            return True
        if body is None:
            self._scheduler.left_out(process, mlist, time.monotonic())
            self._ends.one_ended(work)
            return True
        self._gone(process)
        return False

    def _collect(self) -> None:
        self._rung = False
        self._book.refresh()
        self._ends.hold(self._scheduler, self._holds)
        with self._service.together():
            for process, reports, there in self._crew.reports():
                now = time.monotonic()
                for mlist, report in reports:
                    self._reported(process, mlist, report, now)
                if not there:
                    self._gone(process)
        self._sends.write()

    def _reported(self, process: Process, mlist: Mlist, report: Report, now: float) -> None:
        work: Work = mlist.work
        self._sends.sent(mlist, report, work.message.message_id, now)
        work.results += report.results
        rest: list[Mlist] = []
        if report.reached:
            self._book.reached(mlist)
        else:
            wait, rest = self._book.failed(mlist, report.reason, now)
            work.waits(wait, mlist)
        self._scheduler.reported(process, mlist, report.spent_s, now)
        self._calling.moved(mlist)
        self._ends.one_ended(work)
        for each in rest:
            self._ends.not_now(each, self._book.wait_of(each, now))

    def _gone(self, process: Process) -> None:
        """A channel process has died: what it was sending failed, the rest goes to another."""
        now = time.monotonic()
        had = self._scheduler.given_back(process, now)
        self._scheduler.ended(process, now)
        cause = self._crew.bury(process)
        self._service.context.log.event(events.CHANNEL_DIED, event_log.ERROR,
                                        channel=process.channel, cause=cause)
        if had:
            self._scheduler.again(had[1:])
            work: Work = had[0].work
            work.failed = f"the channel process died: {cause}"
            self._ends.one_ended(work)

    # the end, and a new configuration

    def _finish(self) -> None:
        """What is being sent is sent to its end; what waits is given back as it was."""
        self._scheduler.give_up_all()
        while self._crew.busy:
            self._crew.wait(1.0)
            self._collect()
        self._reader.flush()

    def _reload(self) -> None:
        """SIGHUP: the parent accepted the files, so a refusal here is a race with an edit."""
        if not reload_service(self._service):
            return
        self._rules = self._scheduler.rules = Rules.of(self._service.context.settings)
        self._scheduler.give_up_all()
        self._scheduler.limits_changed()
        self._sends.close()
        self._sends = Sends.of(self._service.context, self._rules, begins=False)
        self._book.forget(self._service.context)
        self._calling.configure(self._service.context)

