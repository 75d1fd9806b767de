"""omread: takes messages from a queue and runs a command for each, or prints them.

    omread QUEUE [OPTION...] -- COMMAND [ARGUMENT...]
    omread QUEUE [OPTION...] [--json]

Everything after `--` is the command (omq.cli.queue.message_command says what it gets and how its
exit code counts). With --readers N the messages are worked on by N processes: the first is
registered as the main reader, the others as auxiliary ones, which get messages when there is a
backlog.

After SIGTERM, SIGHUP or ^C each reader finishes the message in hand and gives back the rest; a
second ^C ends the commands, and their messages are given back untouched. A reader that is killed is
reported and not replaced; the others go on. Its message returns after the queue's
death_delay_s, as for any dead reader.

Exit code: 0; 1 when the --timeout passed and nothing had come; 71 when a reader was killed; 130
after ^C; else that of the first error.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import omq
from omq.base import clock, event_log, events, limits, side_files
from omq.base.config import client_settings
from omq.base.errors import BadRequest, BodyDamaged, BodyUnavailable, Exit, OmqError
from omq.base.event_log import EventLog
from omq.base.names import KEPT_RECORDS, check_queue_name, escape
from omq.base.paths import existing_spool
from omq.base.settings import Settings
from omq.cli.common import add_json, add_url, locate, remote, say, seconds, shown, tool_parser
from omq.cli.queue.message_command import MessageCommand
from omq.cli.queue.read_loop import Handler, ReadPlan, Tally, read, stop_asked
from omq.ipc.client.connection import Client
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import State
from omq.services.daemon.signals import Signals
from omq.services.readers.process import ReaderProcess, Ready, Target
from omq.services.readers.runner import HeldMessage
from omq.services.readers.service import Message, reply_queue

# Prints messages to standard output: the bare body, or one JSON object a line.
#
# Bodies go out byte for byte with nothing between them, for pipes and files. To a terminal every
# line is made safe to show first, and a body always ends its line. JSON lines have the body as text
# in "body" where it is UTF-8, else as base64 in "body_base64".
#
# Invariants: 1. a message is done only after its bytes have left this process; 2. messages printed
# by several readers do not mix: the turn is a record lock, which the kernel takes back from a
# reader that is killed while it prints.
#
# Several reader processes of one command, watched until the last has ended; none is replaced.
#
# The first is the main reader. The others start when it is registered, so that what is wrong for
# all (an unknown queue, no authority) is reported once.
#
# Invariants: 1. a signal to this process is passed on, and waited for as long as the readers take
# (the second ^C ends their commands, the third the readers);
# 2. a reader that was killed is reported; 3. when `run` returns or raises no reader is left.


class ReaderProcesses:
    """Construct and `run` once, in the process that has the signals."""

    def __init__(self, name: str, target: Target, count: int, signals: Signals) -> None:
        self._name = name
        self._signals = signals
        self._codes: list[int] = []
        self._told = 0  # how many ^C the readers know of
        never_used = Backoff(1, 1)
        self._readers = [
            ReaderProcess(
                f"{name}.{number}", is_main=number == 0, target=target, backoff=never_used
            )
            for number in range(count)
        ]

    def run(self) -> int:
        """The exit code for all. OSError when the system has no process left."""
        try:
            self._start(self._readers[:1])
            while self._live():
                self._wait()
                if stop_asked(self._signals):
                    self._stop()
        finally:
            for reader in self._live():
                reader.signal(signal.SIGKILL)
                self._ended(reader)
        return overall(self._codes)

    def _stop(self) -> None:
        pressed = self._signals.interrupts
        if pressed == 1 and self._told == 0:
            say(self._name, "messages in hand are finished first; ^C again ends that")
        elif pressed == 2 and self._told < pressed:
            say(self._name, "commands are ended, their messages given back; ^C again kills readers")
        for reader in self._live():
            reader.stop()
            if pressed >= 2 and pressed > self._told:
                reader.signal(signal.SIGKILL if pressed > 2 else signal.SIGUSR1)
        self._told = pressed

    def _live(self) -> list[ReaderProcess]:
        return [reader for reader in self._readers if reader.live]

    def _start(self, readers: list[ReaderProcess]) -> None:
        for reader in readers:
            reader.start(time.monotonic())

    def _wait(self) -> None:
        """Until a signal came or something happened to a reader, and react."""
        actions: dict[int, Callable[[], None]] = {self._signals.fileno(): self._signals.drain}
        live = self._live()
        # Readiness before death: a main reader that finds nothing to do is soon gone.
        actions |= {each.ready_fd: partial(self._ready, each) for each in live
                    if each.ready_fd >= 0}
        actions |= {each.pidfd: partial(self._ended, each) for each in live}
        readable = set(select.select(list(actions), [], [])[0])
        for fd, action in actions.items():
            if fd in readable:
                action()

    def _ready(self, reader: ReaderProcess) -> None:
        reader.read_ready()
        if reader.is_main and reader.state is State.STARTED and not self._signals.stopping:
            self._start(self._readers[1:])

    def _ended(self, reader: ReaderProcess) -> None:
        pid, reader.wanted = reader.pid, False
        code = reader.collect(time.monotonic())
        self._codes.append(code)
        if code < 0:
            say(self._name, f"reader {reader.name}, process {pid}, ended by {exit_text(code)};"
                " its message is redelivered")  # fmt: skip


def overall(codes: list[int]) -> int:
    """One exit code: a killed reader weighs most, then the first error; NO only if all say so."""
    if any(code < 0 for code in codes):
        return Exit.OS
    errors = [code for code in codes if code not in (Exit.OK, Exit.NO)]
    if errors:
        return errors[0]
    return Exit.OK if Exit.OK in codes else Exit.NO


class MessagePrinter:
    """Made before the readers are forked: they share its turn."""

    def __init__(self, log: EventLog, *, as_json: bool) -> None:
        self._log = log
        self._as_json = as_json
        self._turn = os.memfd_create("turn", os.MFD_CLOEXEC)

    def __call__(self, message: HeldMessage) -> None:
        """Print and finish the message. BrokenPipeError when nobody reads on."""
        try:
            data = self._render(message)
        except (BodyUnavailable, BodyDamaged) as error:
            message.fail(str(error))
            self._log.event(events.BODY_DAMAGED, event_log.ERROR, queue=message.queue,
                            qpool_id=message.qpool_id, reason=str(error))
            return
        with self._its_turn():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        message.done()

    def close(self) -> None:
        os.close(self._turn)

    def _render(self, message: Message) -> bytes:
        if self._as_json:
            return json.dumps(record(message)).encode() + b"\n"
        return shown(message.body) if sys.stdout.isatty() else message.body

    @contextmanager
    def _its_turn(self) -> Iterator[None]:
        fcntl.lockf(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)


def record(message: Message) -> dict[str, Any]:
    """A message for programs."""
    found: dict[str, Any] = {
        "message_id": message.message_id,
        "qpool_id": message.qpool_id,
        "queue": message.queue,
        "priority": message.priority,
        "attempts": message.attempts,
        "defers": message.defers,
        "redelivered": message.redelivered,
        "put_time": clock.iso_time(message.put_time_ns),
        "correlation_id": message.correlation_id.hex(),
        "reply_to": reply_queue(message),
        "group_id": message.group_id,
        "size": message.size,
        "properties": dict(message.texts),
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return found


NAME: Final = "omread"
READERS_MAX: Final = limits.AUXILIARIES_MAX + 1
DEFER_S: Final = 60.0
"""Pause after exit code 75: long enough for most passing faults, short enough to watch."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141  # as omq.cli.launch and a shell have it


@dataclass(frozen=True, slots=True)
class Job:
    """What every reader of one omread does."""

    connect: Callable[[], Client]
    queue: str
    handler: Handler
    tally: Tally
    wish: ReadPlan
    auxiliary: bool  # also the first reader
    where: str = ""  # a selector; empty: all messages

    def read(self, signals: Signals, ready: Callable[[], None], *, is_main: bool) -> int:
        """Be one reader; its exit code. Errors of the client library and of the handler."""
        with (
            self.connect() as connection,
            connection.reader(
                self.queue, batch=self.wish.batch, auxiliary=self.auxiliary or not is_main,
                where=self.where,
            ) as reader,
        ):
            ready()
            settled = read(reader, self.handler, self.tally, self.wish, signals)
        if signals.interrupts:
            return INTERRUPTED
        return Exit.NO if self.wish.ends and not settled else Exit.OK

    def read_as_child(self, is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        """The same in a forked process, where errors end here; signals are blocked until now."""
        signals = Signals()
        signals.install()
        signals.obey_parent()
        if isinstance(self.handler, MessageCommand):
            handler = replace(self.handler, signals=signals)
            return replace(self, handler=handler)._as_child(signals, ready, is_main=is_main)
        return self._as_child(signals, ready, is_main=is_main)

    def _as_child(self, signals: Signals, ready: Ready, *, is_main: bool) -> int:
        try:
            return self.read(signals, ready, is_main=is_main)
        except OmqError as error:
            say(NAME, escape(str(error), limits.KIB))
            return error.exit_code
        except BrokenPipeError:
            return _forget_stdout()
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception:
            side_files.say(traceback.format_exc().rstrip("\n"))
            return Exit.SOFTWARE


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    words = sys.argv[1:] if argv is None else argv
    at = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:at])
    command = words[at + 1 :]
    if at < len(words) and not command:
        raise BadRequest(reason="there is no command after '--'")
    if command and options.json:
        raise BadRequest(reason="--json is for printing; a command gets the body itself")
    connect = partial(remote, options, NAME, None) if options.url else _local(options)
    signals = Signals()
    signals.install()
    try:
        with closing(EventLog(NAME)) as log, closing(Tally(options.count)) as tally:
            if command:
                handler = MessageCommand(
                    command, options.defer_s, options.command_timeout_s, log, signals)
                return _run(options, connect, handler, tally, signals)
            with closing(MessagePrinter(log, as_json=options.json)) as printer:
                return _run(options, connect, printer, tally, signals)
    finally:
        signals.restore()


def _local(options: argparse.Namespace) -> Callable[[], Client]:
    """How to reach the manager of this host's instance. BadRequest: a queue of records."""
    if options.queue in KEPT_RECORDS:
        raise BadRequest(reason=f"the messages of {options.queue} are records of the instance, and "
                         "whoever takes one removes what it records; 'omqdump -e l' shows them, "
                         "'omq definitions export' what is defined")
    location = locate(options)
    existing_spool(location.paths.root)
    patience_s = float(client_settings(location.conf_dir).reconnect_grace_s)
    return partial(omq.connect, spool=location.paths.root, name=NAME, timeout_s=patience_s,
                   waiting=partial(say, NAME))


def _run(options: argparse.Namespace, connect: Callable[[], Client], handler: Handler,
         tally: Tally, signals: Signals) -> int:
    ends = options.timeout is not None
    wait_s = options.timeout if ends else float(_settings(options).reader_wait_s)
    job = Job(
        connect=connect,
        queue=check_queue_name(options.queue),
        handler=handler,
        tally=tally,
        wish=ReadPlan(options.batch, wait_s, ends),
        auxiliary=options.auxiliary,
        where=options.where,
    )
    if options.readers == 1:
        return job.read(signals, lambda: None, is_main=True)
    code = ReaderProcesses(NAME, job.read_as_child, options.readers, signals).run()
    return INTERRUPTED if signals.interrupts else code


def _settings(options: argparse.Namespace) -> Settings:
    """Of this host's instance; over AMQP, where there may be none, what is shipped."""
    return Settings() if options.url else client_settings(locate(options).conf_dir)


def _forget_stdout() -> int:
    """Nobody reads on; the interpreter's last flush must not complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return BROKEN_PIPE


def _whole(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: {low} to {high}")
        return value

    return number


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Take messages from a queue: run a command for each, or print them.",
        """
        omread ORDERS -- ./process-order
        omread ORDERS --readers 4 -- sh -c 'cat > "in/$OMQ_QPOOL_ID"'
        omread ORDERS --count 1 --timeout 0
        omread ORDERS --timeout 5 --json | jq -r .properties.customer
        """,
    )
    parser.usage = "omread QUEUE [OPTION...] [-- COMMAND [ARGUMENT...]]"
    parser.add_argument("queue", metavar="QUEUE", help="the queue to read")
    add = parser.add_argument
    add("--readers", metavar="N", type=_whole(1, READERS_MAX), default=1,
        help=f"processes, 1 to {READERS_MAX}")
    add("--count", metavar="N", type=_whole(1, sys.maxsize), help="end after N messages")
    add("--timeout", metavar="S", type=seconds,
        help="end when no message has arrived for S seconds; 0: take what is there")
    add("--batch", metavar="N", type=_whole(1, limits.BATCH_MAX), default=1,
        help="messages that a reader takes at once (default 1); more is faster")
    add("--auxiliary", action="store_true",
        help="be an auxiliary reader: leave messages to the main reader while it keeps up")
    add("--where", metavar="SELECTOR", default="",
        help="only messages that match this JMS selector")
    add_json(parser)
    add_url(parser)
    group = parser.add_argument_group(
        "command", "COMMAND has the body as its standard input, and in its environment "
        "OMQ_MESSAGE_ID, OMQ_QPOOL_ID, OMQ_QUEUE, OMQ_PRIORITY, OMQ_ATTEMPTS, OMQ_DEFERS, "
        "OMQ_REDELIVERED, OMQ_CORRELATION_ID (hexadecimal), OMQ_REPLY_TO, OMQ_GROUP_ID "
        "and OMQ_PROPERTY_NAME for each property. Exit code 0: done; 75: later; else: failed")
    group.add_argument("--defer-s", metavar="S", type=seconds, default=DEFER_S,
                       help=f"pause after exit code 75 (default {DEFER_S:g})")
    group.add_argument("--command-timeout-s", metavar="S", type=seconds,
                       help="a command that takes longer is killed and has failed")
    return parser
