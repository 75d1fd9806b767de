"""omread: takes messages from a queue and runs a command for each, or prints them.

    omread QUEUE [OPTION...] -- COMMAND [ARGUMENT...]
    omread QUEUE [OPTION...] [--json]

Everything after `--` is the command (omq.cli.queue.message_command says what it gets and how its
exit code counts). With --readers N the messages are worked on by N processes: the first is
registered as the main reader, the others as auxiliary ones, which get messages when there is a
backlog.

After SIGTERM, SIGHUP or ^C each reader finishes the message in hand and gives back the rest; a
second ^C ends the commands, and their messages are given back untouched. A reader that is killed is
reported and not replaced; the others go on. Its message comes again after the queue's
death_delay_s, as for any dead reader.

Exit code: 0; 1 when the --timeout passed and nothing had come; 71 when a reader was killed; 130
after ^C; else that of the first error.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import omq
from omq.base import limits, side_files
from omq.base.config import client_settings
from omq.base.errors import BadRequest, Exit, OmqError
from omq.base.event_log import EventLog
from omq.base.names import check_queue_name, escape
from omq.base.paths import existing_spool
from omq.base.settings import Settings
from omq.cli.common import add_json, add_url, locate, remote, say, seconds, tool_parser
from omq.cli.queue.message_command import MessageCommand
from omq.cli.queue.message_print import MessagePrinter
from omq.cli.queue.read_loop import Handler, Tally, Wish, read
from omq.cli.queue.reader_processes import ReaderProcesses
from omq.ipc.client import Client
from omq.services.daemon.signals import Signals
from omq.services.readers.process import Ready

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
    wish: Wish
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
        raise BadRequest(reason="there is no command behind '--'")
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
    """How to reach the manager of this host's instance."""
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
        wish=Wish(options.batch, wait_s, ends),
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
        help="end when no message came for S seconds; 0: take what is there")
    add("--batch", metavar="N", type=_whole(1, limits.BATCH_MAX), default=1,
        help="messages that a reader takes at once (default 1); more is faster")
    add("--auxiliary", action="store_true",
        help="be auxiliary reader only: leave messages to the main reader while it keeps up")
    add("--where", metavar="SELECTOR", default="",
        help="only messages that this selector of JMS chooses")
    add_json(parser)
    add_url(parser)
    group = parser.add_argument_group("command", "exit code 0: done; 75: later; else: failed")
    group.add_argument("--defer-s", metavar="S", type=seconds, default=DEFER_S,
                       help=f"pause after exit code 75 (default {DEFER_S:g})")
    group.add_argument("--command-timeout-s", metavar="S", type=seconds,
                       help="a command that takes longer is killed and has failed")
    return parser
