"""What each command is, for people: its title, its section of the manual, and its parser.

The parser is the one that the command itself uses, so help, manual and completion cannot disagree.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from omq.cli.launch import COMMANDS

TITLES: Final = {
    "queue.manager": "the daemon that holds the queues",
    "pool.writer": "writes checkpoints, bodies and the archive",
    "idel.server": "the Item Delete Daemon",
    "service.router": "routes mail to the queues of its recipients",
    "local.delivery": "delivers mail to Maildirs",
    "unix.out": "the Internet Mail Gateway",
    "smtp.server": "takes mail by SMTP",
    "error.manager": "reports what cannot be delivered",
    "omq": "set up an installation and check its configuration",
    "omon": "turn a service on",
    "omoff": "turn a service off",
    "omsetsvc": "show and change what a service is",
    "omqtest": "pull the plug of an instance and see what is left",
    "omrc": "start an instance",
    "omshut": "stop an instance",
    "omstat": "show the state of daemons and services",
    "omsend": "put messages on queues",
    "omread": "take messages from a queue",
    "omqdump": "look into the queues and change them",
    "omqconv": "convert an old-style queues directory",
    "omtop": "show the queues live",
    "omqlog": "tell what happened to a message",
    "omq-archive": "archive retired journal files, remove old ones",
    "omq-spark": "analytics of the journal archive",
    "omqwhy": "tell why a message does not move",
    "omqshape": "show how old the messages on the queues are",
    "omqadvise": "tell how many readers a queue needs",
    "omqcheck": "check that index, Message Pool and journal agree",
    "omscan": "find containers and pool records without a message",
    "omshowlog": "show the event log",
    "omfreeq": "release a reader from a queue",
    "omhold": "hold messages",
    "omrelease": "make held or deferred messages ready",
    "omrequeue": "send messages back from POISON",
}
"""A command that is not here has its parser's description for a title."""


class _Captured(Exception):
    """Carries a parser out of its command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, as it was when the command was about to use it."""

    def capture(self: argparse.ArgumentParser, *_: Any, **__: Any) -> argparse.Namespace:
        raise _Captured(self)

    module, _, function = COMMANDS[name].partition(":")
    target: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    try:
        with mock.patch.object(sys, "argv", [name]), \
                mock.patch.object(argparse.ArgumentParser, "parse_args", capture), \
                mock.patch.object(argparse.ArgumentParser, "parse_intermixed_args", capture), \
                mock.patch.object(argparse.ArgumentParser, "parse_known_args", capture):
            target([])
    except _Captured as captured:
        return captured.parser
    raise AssertionError(f"{name} has parsed nothing")


def section_of(name: str) -> int:
    """8 for daemons, which have a dot in their name, and 1 for commands."""
    return 8 if "." in name else 1


def title_of(name: str) -> str:
    """One line."""
    known = TITLES.get(name)
    return known or (parser_of(name).description or name).split(".")[0].strip().lower()
