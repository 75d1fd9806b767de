"""Runs a user's command for one message: body on its standard input, the rest in its environment.

    exit code 0     done: the message leaves the queue
    exit code 75    EX_TEMPFAIL of sysexits.h: handed out again later, no attempt is counted
    anything else   a failed attempt; at the queue's limit the message goes to POISON

    OMQ_MESSAGE_ID, OMQ_QPOOL_ID, OMQ_QUEUE, OMQ_PRIORITY, OMQ_ATTEMPTS (failed ones so far),
    OMQ_DEFERS, OMQ_REDELIVERED (0 or 1), OMQ_CORRELATION_ID (hexadecimal, empty = none),
    OMQ_REPLY_TO (the queue that wants the reply, empty = none), OMQ_GROUP_ID (a text or empty),
    OMQ_PROPERTY_NAME for each property: NAME in upper case, '_' for what is not a letter or digit

Invariants: 1. the command has a process group of its own, so ^C reaches the reader alone, which
lets the command finish and says so; the second ^C ends it with SIGTERM, the third with SIGKILL,
and its message is given back untouched (KeyboardInterrupt); 2. it gets SIGTERM when its reader
dies: the message is handed out again then, and two commands must not work on it; 3. a command that
cannot be started at all is not the message's fault: CommandUnusable, and no message pays for it
with its attempts.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from omq.base import event_log, events, side_files
from omq.base.amounts import duration
from omq.base.errors import BodyDamaged, BodyUnavailable, CommandUnusable, Exit
from omq.base.event_log import EventLog
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.process import die_with_parent
from omq.services.daemon.signals import Signals
from omq.services.readers.runner import HeldMessage
from omq.services.readers.service import Message, reply_queue

PROPERTY_PREFIX = "OMQ_PROPERTY_"
_UNFIT = re.compile(r"[^A-Z0-9]")
_OF_THIS_PROCESS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class MessageCommand:
    """The command and how it is judged; `timeout_s` None: it may take as long as it likes."""

    command: Sequence[str]
    defer_s: float
    timeout_s: float | None
    log: EventLog
    signals: Signals | None = None

    def __call__(self, message: HeldMessage) -> None:
        """Run the command and settle the message. CommandUnusable leaves it unsettled."""
        try:
            outcome = self._run(message.body, environment(message))
        except (BodyUnavailable, BodyDamaged) as error:
            self._fail(message, str(error))
            return
        if outcome == exit_text(Exit.OK):
            message.done()
            self._log(events.COMMAND_DONE, event_log.TRACE, message, outcome)
        elif outcome == exit_text(Exit.TEMPORARY):
            message.defer(self.defer_s, outcome)
            self._log(events.COMMAND_DEFERRED, event_log.REPORT, message, outcome)
        else:
            self._fail(message, outcome)

    def _run(self, body: bytes, environ: dict[str, str]) -> str:
        """How it ended, in words."""
        try:
            process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, env=environ, process_group=0,
                preexec_fn=partial(_prepare, os.getpid()),
            )  # fmt: skip
        except OSError as error:
            if error.errno == errno.E2BIG:  # of all the reasons the one that lies in the message
                return "its properties do not fit into an environment"
            reason = error.strerror or str(error)
            raise CommandUnusable(command=self.command[0], reason=reason) from error
        with process, self._patience(process) as ended:
            try:
                process.communicate(body, self.timeout_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                return f"killed after {duration(self.timeout_s or 0.0)}"
        if ended:
            raise KeyboardInterrupt
        return exit_text(process.returncode)

    @contextmanager
    def _patience(self, process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
        """While the command runs; gives the signals that a second and third ^C sent to it."""
        ended: list[int] = []

        def pressed(count: int) -> None:
            if count == 1:
                side_files.say(f"omread: {self.command[0]} is finishing its message; ^C again ends"
                               " it")
                return
            number = signal.SIGTERM if count == 2 else signal.SIGKILL
            if process.returncode is None:  # not reaped: the number of its group is still its own
                ended.append(number)
                os.killpg(process.pid, number)

        if self.signals is None:
            yield ended
            return
        with self.signals.impatience(pressed):
            if self.signals.interrupts:  # while it was started
                pressed(self.signals.interrupts)
            yield ended

    def _fail(self, message: HeldMessage, reason: str) -> None:
        message.fail(reason)
        self._log(events.COMMAND_FAILED, event_log.WARNING, message, reason)

    def _log(self, event: events.Event, level: event_log.Level, message: HeldMessage, outcome: str
             ) -> None:
        self.log.event(event, level, queue=message.queue, qpool_id=message.qpool_id,
                       attempts=message.attempts, outcome=outcome)


def environment(message: Message) -> dict[str, str]:
    """This process's environment and what the command learns about the message."""
    # Of two properties that become one name the first by name wins.
    named = {PROPERTY_PREFIX + _UNFIT.sub("_", name.upper()): value.replace("\0", "\ufffd")
             for name, value in sorted(message.texts.items(), reverse=True)}
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(PROPERTY_PREFIX)}  # of a message around this one
    return inherited | named | {
        "OMQ_MESSAGE_ID": message.message_id,
        "OMQ_QPOOL_ID": str(message.qpool_id),
        "OMQ_QUEUE": message.queue,
        "OMQ_PRIORITY": str(message.priority),
        "OMQ_ATTEMPTS": str(message.attempts),
        "OMQ_DEFERS": str(message.defers),
        "OMQ_REDELIVERED": "1" if message.redelivered else "0",
        "OMQ_CORRELATION_ID": message.correlation_id.hex(),
        "OMQ_REPLY_TO": reply_queue(message),
        "OMQ_GROUP_ID": message.group_id,
    }


def _prepare(reader: int) -> None:
    # Between fork and exec the reader's handlers would swallow a signal that comes now.
    signal.set_wakeup_fd(-1)
    for number in _OF_THIS_PROCESS:
        signal.signal(number, signal.SIG_DFL)
    die_with_parent(reader)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and all that it started and that stayed in its group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
