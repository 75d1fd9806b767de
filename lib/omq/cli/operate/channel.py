"""omq channel: channels to other instances, defined, started, looked at, and set right by hand.

    omq channel define EAST host=east.example.org user=west
    omq channel start EAST
    omq channel show EAST
    omq channel ping EAST
    omq channel resolve EAST --backout --reason 'the disk of EAST was lost'
    omq channel reset WEST batch=0

A channel has the name of its transmission queue and is a part of its definition (ADR 0078), so a
change needs `admin` on the queue; channel.sender follows within `channel_look_ms`. `resolve` ends
what is in doubt here; `reset` changes the record of what has come over a channel, from either side
(`channel_right`). Both are for channels that are out of step: look at both sides first.

In the middle of a crash: a change of a definition has happened wholly or not. Errors:
ChannelUnknown, BadChannel, ChannelInDoubt, ChannelInUse, those of a line for `ping`, of
omq.ipc.client.queues.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from omq.base.config import client_settings
from omq.base.errors import (
    BadChannel,
    BadRequest,
    Exit,
    UnknownQueue,
)
from omq.base.names import check_queue_name, escape
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.channel_look import (
    channel_named,
    list_channels,
    show_channel,
)
from omq.cli.operate.channel_right import refuse_doubt, reset, resolve
from omq.cli.operate.command_notes import add_reason
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.services.channel.definition import (
    KEYS,
    NOTE,
    ORDER,
    STARTED,
    STOPPED,
    altered,
    channel_of,
    made,
    write,
)
from omq.services.channel.names import own_name
from omq.services.daemon.options import Location
from omq.storage.spool import open_spool

NAME: Final = "omq channel"
ATTEMPTS_MAX: Final = 255
"""A message does not go to POISON because its channel's host was restarted."""
Do = Callable[[Client, Location, argparse.Namespace], None]


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    do = _COMMANDS[options.command][0]
    if (do is not list_channels) != bool(options.channel):
        parser.error(f"{options.command}: a CHANNEL, except for list")
    if do is resolve and options.commit == options.backout:
        parser.error("resolve: --commit or --backout")
    location = existing(options)
    with connect(location, "omq") as connection:
        do(connection, location, options)
    return Exit.OK


# definitions


def _define(native: Client, location: Location, options: argparse.Namespace) -> None:
    name = check_queue_name(options.channel)
    try:
        info = native.queues.show(name)
    except UnknownQueue:
        info = None
    if info is not None and info.kind != Kind.TRANSMISSION.value:
        raise BadChannel(channel=name, key="its queue", reason=f"it is of kind {info.kind}",
                         allowed="a transmission queue, or none: then it is made")
    if info is not None and channel_of(info) is not None:
        raise BadChannel(channel=name, key="all of it", reason="it is defined already",
                         allowed="omq channel alter")
    channel = made(name, _keys(options))
    if info is None:
        native.queues.define(name, Kind.TRANSMISSION.value, reason=options.reason,
                             attempts_max=ATTEMPTS_MAX, death_delay_s=0,
                             **{NOTE: channel.note()})
    else:
        write(native, channel, options.reason)


def _alter(native: Client, location: Location, options: argparse.Namespace) -> None:
    said = _keys(options)
    if not said:
        raise BadRequest(reason="nothing to alter: KEY=VALUE ...")
    write(native, altered(channel_named(native, options), **said), options.reason)


def _start(native: Client, location: Location, options: argparse.Namespace) -> None:
    write(native, altered(channel_named(native, options), state=STARTED), options.reason)


def _stop(native: Client, location: Location, options: argparse.Namespace) -> None:
    write(native, altered(channel_named(native, options), state=STOPPED), options.reason)


def _delete(native: Client, location: Location, options: argparse.Namespace) -> None:
    """The queue stays: it may hold messages, and be named by others."""
    channel = channel_named(native, options)
    refuse_doubt(native, channel.name)
    native.queues.alter(channel.name, reason=options.reason, **{NOTE: None})


def _keys(options: argparse.Namespace) -> dict[str, str]:
    out = {}
    for text in options.keys:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadRequest(reason=f"{escape(text)} is not KEY=VALUE")
        if key.strip() == ORDER:
            raise BadRequest(reason="omq channel reset is for that")
        out[key.strip()] = value.strip()
    return out


# what people set right


def _reset(native: Client, location: Location, options: argparse.Namespace) -> None:
    reset(native, location, options, _keys(options))


def _ping(native: Client, location: Location, options: argparse.Namespace) -> None:
    from omq.services.channel.greeting import Hello  # what it needs is an extra
    from omq.services.channel.line import Line
    from omq.services.channel.security import credentials

    channel, settings = channel_named(native, options), client_settings(location.conf_dir)
    began = time.monotonic()
    spool = open_spool(location.paths.root, writer=False).uuid.hex()
    line = Line(channel, credentials(channel, settings, location.conf_dir),
                Hello(own_name(settings), spool, ping=True),
                settings.channel_connect_timeout_s)
    took_ms = round((time.monotonic() - began) * 1000)
    line.close(politely=True)
    told = asdict(line.greeting)
    if options.json:
        print_json({"channel": channel.name, "peer": channel.peer, "ms": took_ms, **told})
    else:
        sys.stdout.write(f"{channel.name}: {channel.peer} answers in {took_ms} ms"
                         + (f": {told['manager']}, which has batch {told['last']}\n"
                            if told["manager"] else "\n"))


_COMMANDS: Final[dict[str, tuple[Do, str]]] = {
    "define": (_define, "create a channel and its queue"), "alter": (_alter, "change its keys"),
    "start": (_start, "run it"), "stop": (_stop, "finish what is under way, then stop"),
    "show": (show_channel, "definition and state"),
    "list": (list_channels, "all outgoing and incoming channels"),
    "ping": (_ping, "connect, and show which instance answers"),
    "resolve": (resolve, "resolve what is in doubt"),
    "reset": (_reset, "set the number of the last batch that is there"),
    "delete": (_delete, "remove it; its queue stays"),
}


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Channels to other instances.", """
        omq channel define EAST host=east.example.org user=west
        omq channel define LOCAL host=127.0.0.1 port=5672 tls=no
        omq channel list
        omq channel ping EAST
        omq channel resolve EAST --commit --reason 'EAST has batch 17'
        omq channel reset EAST batch=17
        omq channel reset WEST batch=0 side=receives
        """)
    words = ", ".join(f"{name} ({text})" for name, (_do, text) in _COMMANDS.items())
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND", help=words)
    parser.add_argument("channel", nargs="?", default="", metavar="CHANNEL", help="all but list")
    keys = "; ".join(f"{name}: {key.purpose} ({key.default or 'none'})"
                     for name, key in KEYS.items() if name != ORDER)
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help=f"of define and alter. {keys}")
    parser.add_argument("--commit", action="store_true",
                        help="with resolve: the other side has what is in doubt")
    parser.add_argument("--backout", action="store_true",
                        help="with resolve: the other side does not have it; it is sent again")
    add_reason(parser)
    add_json(parser)
    return parser
