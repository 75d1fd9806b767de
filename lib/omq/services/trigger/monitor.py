"""trigger.monitor: starts the programs that queues ask for by trigger messages (ADR 0051).

One process and one thread: it takes trigger messages off SYSTEM.TRIGGERS, starts the command or the
unit that triggers.conf has for them, and settles a message when its program has ended: with 0, it
is done; else it is started again after a pause that grows (`trigger_backoff_min_s`), for as long as
it fails. A program that triggers.conf does not have waits in the same way for a reload that brings
it.

A command gets OMQ_QUEUE, OMQ_TRIGGER, OMQ_MESSAGES and OMQ_SPOOL, nothing on its standard input,
and writes where this service writes. It has the rights of this service and no other: triggers.conf
names a unit where it needs its own.

Invariants: 1. a trigger message in hand is settled, or given back at a stop or by death; 2. what is
started is in a process group of its own, and ends with this process (SIGTERM).

Crash argument: killed at any instruction, the messages in hand go back to the queue untouched and
their programs are started again; one that had just ended well may so run twice. It finds an empty
queue then.

Errors: those of the client (ManagerUnavailable ...) end the process with their exit code.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from omq.base import event_log, events
from omq.base.amounts import duration
from omq.base.config import NONE, TRIGGERS
from omq.base.errors import LeaseLost, OmqError
from omq.base.names import check_queue_name, escape
from omq.base.rated_log import RatedLog
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.signals import Signals
from omq.services.readers.parent import run_service
from omq.services.readers.reload import reload_service
from omq.services.readers.runner import Connect
from omq.services.readers.service import Service
from omq.services.supervise.process_group import launch
from omq.services.trigger.lanes import FOREVER, Lane, Lanes, Run, Trigger
from omq.services.trigger.programs import Program, load_programs

_TAKE_MAX: Final = 100
_BYTES_MAX: Final = 4096  # many times what a trigger message has
_KINDS: Final = tuple(each for each in TRIGGERS if each != NONE)
_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_KILL_S: Final = 1.0  # before the parent would end us: to kill what does not end


class TriggerService(Service):
    """What the parent of the process knows of it; the work is the Monitor's."""

    title = "Trigger Monitor"

    def open(self) -> None:
        self.programs = load_programs(self.context.conf_dir)

    def reload(self) -> None:
        self.open()


class Monitor:
    """The life of the process; see the module."""

    def __init__(self, service: Service, signals: Signals, connect: Connect) -> None:
        assert isinstance(service, TriggerService)
        self._service, self._signals, self._connect = service, signals, connect
        context = service.context
        self._lanes = Lanes(context.settings)
        self._rated = RatedLog(context.log, context.settings.event_burst,
                               context.settings.event_period_s)
        self._waiting = self._rung = False
        self._reader: Any

    def run(self, ready: Callable[[], None]) -> None:
        """Until a signal to stop. `ready` is called once the queue manager knows the reader."""
        context = self._service.context
        self._service.open()
        try:
            with self._connect(context) as connection, connection.reader(
                    context.conf.queue, batch=_TAKE_MAX, auxiliary=False) as self._reader:
                signal.signal(signal.SIGCHLD, self._ring)
                self._signals.add_waker(self._reader.interrupt)
                ready()
                try:
                    self._serve()
                finally:
                    self._signals.remove_waker(self._reader.interrupt)
        except OmqError as error:
            if not self._signals.stopping:
                raise
            context.log.event(events.FAILED, event_log.WARNING, at="stop", reason=str(error))
        finally:
            self._signal_all(signal.SIGKILL)

    def _serve(self) -> None:
        while not self._signals.stopping:
            if self._signals.take_reload():
                self._reload()
            self._collect()
            self._start_all(time.monotonic())
            self._rated.flush(time.monotonic_ns())
            self._take(time.monotonic())
        self._finish()

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        self._rung = True
        if self._waiting:
            self._waiting = False
            self._reader.wake()

    # trigger messages

    def _take(self, now: float) -> None:
        """Wait for more, until something is to be done."""
        settings = self._service.context.settings
        due = min((lane.due(settings, now) for _, lane in self._lanes), default=FOREVER)
        timeout_s = max(0.0, min(due - now, float(settings.reader_wait_s)))
        self._waiting = True
        messages = self._reader.next(_TAKE_MAX, 0.0 if self._rung else timeout_s)
        self._waiting = False
        for message in messages:
            self._begin(message, settings)

    def _begin(self, message: Any, settings: Any) -> None:
        """Into its line, or later, where that is long."""
        trigger = read_trigger(message)
        if trigger is None:
            message.fail("not a trigger message of the queue manager")
            return
        message.set_aside()
        lane = self._lanes.of(trigger.program)
        if len(lane.waiting) >= settings.trigger_waiting_max:
            self._settle(lambda: message.defer(settings.trigger_put_off_s, "others wait before it"))
        else:
            lane.waiting.append(trigger)

    def _settle(self, how: Callable[[], None]) -> None:
        """LeaseLost: the queue manager has forgotten the message, and triggers again if need be."""
        with suppress(LeaseLost):
            how()

    # programs

    def _start_all(self, now: float) -> None:
        settings = self._service.context.settings
        assert isinstance(self._service, TriggerService)
        running = len(self._lanes.running)
        for name, lane in self._lanes:
            program = self._service.programs.get(name)
            if program is None:
                self._unknown(name, lane, now)
                continue
            while running < settings.trigger_processes_max:
                trigger = lane.next(program, settings, now)
                if trigger is None:
                    break
                running += self._start(lane, program, trigger, now)
        self._lanes.tidy()

    def _start(self, lane: Lane, program: Program, trigger: Trigger, now: float) -> bool:
        context = self._service.context
        words = program.command(trigger.queue)
        try:
            pid = launch(words, {
                **_ENVIRONMENT, "OMQ_QUEUE": trigger.queue, "OMQ_TRIGGER": trigger.kind,
                "OMQ_MESSAGES": str(trigger.messages), "OMQ_SPOOL": str(context.paths.root)})
        except (OSError, ValueError) as error:  # ValueError: a word with a zero byte
            self._failed(lane, trigger, 0.0, now, str(error))
            return False
        lane.started(Run(trigger, program, pid, now))
        self._rated.event(events.TRIGGER_STARTED, event_log.REPORT, program.name,
                          queue=trigger.queue, program=program.name, pid_of_program=pid)
        return True

    def _collect(self) -> None:
        """Programs that have ended; those whose time is over are killed."""
        self._rung = False
        now = time.monotonic()
        for pid, (lane, run) in self._lanes.running.items():
            code = _ended(pid)
            if code is not None:
                del lane.running[pid]
                self._ended(lane, run, code, now)
            elif now >= run.ends and not run.killed:
                run.killed = True
                _signal_group(pid, signal.SIGKILL)

    def _ended(self, lane: Lane, run: Run, code: int, now: float) -> None:
        if code:
            why = (f"killed after {duration(run.program.timeout_s)}" if run.killed
                   else exit_text(code))
            self._failed(lane, run.trigger, now - run.began, now, why)
            return
        lane.backoff.reset()
        self._settle(run.trigger.message.done)
        self._rated.event(events.TRIGGER_ENDED, event_log.REPORT, run.program.name,
                          queue=run.trigger.queue, program=run.program.name,
                          pid_of_program=run.pid)

    def _failed(self, lane: Lane, trigger: Trigger, lived_s: float, now: float, why: str) -> None:
        pause = lane.failed(trigger, lived_s, now)
        self._rated.event(events.TRIGGER_FAILED, event_log.ERROR, trigger.program,
                          queue=trigger.queue, program=trigger.program, reason=escape(why, 300),
                          again_in_s=round(pause))

    def _unknown(self, name: str, lane: Lane, now: float) -> None:
        """Its messages wait for a reload; the log says so again, as often as of a failure."""
        if lane.waiting and now >= lane.not_before:
            trigger = lane.waiting.popleft()
            pause = lane.failed(trigger, 0.0, now)
            self._rated.event(events.TRIGGER_UNKNOWN, event_log.ERROR, name, queue=trigger.queue,
                              program=escape(name, 64), again_in_s=round(pause))

    # the end, and a new configuration

    def _finish(self) -> None:
        """Programs are asked to end and waited for; what they leave is given back as it was."""
        deadline = (time.monotonic() - _KILL_S
                    + float(self._service.context.settings.drain_timeout_s))
        self._signal_all(signal.SIGTERM)
        while (running := self._lanes.running) and time.monotonic() < deadline:
            self._signals.wait(min(0.1, max(0.0, deadline - time.monotonic())))
            for pid, (lane, run) in running.items():
                code = _ended(pid)
                if code is not None:
                    del lane.running[pid]
                    self._settle(run.trigger.message.release if code else run.trigger.message.done)
        self._reader.flush()

    def _signal_all(self, number: int) -> None:
        for pid in self._lanes.running:
            _signal_group(pid, number)

    def _reload(self) -> None:
        """SIGHUP: the parent accepted its files; triggers.conf is ours, and if it is wrong the
        programs are as they were."""
        if not reload_service(self._service):
            return
        self._lanes.settings = self._service.context.settings
        for _, lane in self._lanes:  # the operator has changed something: it may work now
            lane.not_before = 0.0
            lane.backoff.reset()


def read_trigger(message: Any) -> Trigger | None:
    """What a trigger message says; None: it is none. Words of a command are made of it, so nothing
    goes through that a queue manager would not say, whoever may put there."""
    if message.size > _BYTES_MAX:
        return None
    try:
        told = json.loads(message.body)
        queue, kind, program = told["queue"], told["trigger"], told["program"]
        count = told["messages"]
        check_queue_name(queue)
    except (OmqError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if (kind not in _KINDS or not isinstance(program, str) or not program.isprintable()
            or type(count) is not int or count < 0):
        return None
    return Trigger(message, queue, kind, program, count)


def _ended(pid: int) -> int | None:
    """Its exit code, negative for a signal; None: it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended; a zombie keeps its number
        os.killpg(pid, number)


def main(argv: list[str] | None = None) -> int:
    """The daemon."""
    return run_service("trigger", TriggerService, argv, runner=Monitor)
