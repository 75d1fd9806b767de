"""omq queue: queues made, changed, shown and removed while the queue manager runs.

    omq queue define ORDERS.EU max_depth=10000
    omq queue define ORDERS.ALL --kind alias target='ORDERS.EU ORDERS.US'
    omq queue alter ORDERS.EU max_depth= description='those of the EU'
    omq queue roll-over ORDERS --to ORDERS.OLD
    omq queue show ORDERS
    omq queue clear ORDERS

Keys are those of queues.conf; an empty value takes one away. A queue of queues.conf is altered
there: the file is changed as its author would (cli.operate.services_edit) and read again. Without a
queue manager `list` and `show` read the files. In the middle of a crash: a change has happened
wholly or not, and the exit code 0 means that it has. Errors: those of omq.ipc.client.queues;
UnknownQueue, NotConfirmed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from omq.base import clock
from omq.base.config import client_settings, load_queues
from omq.base.defined_queue import keys_of
from omq.base.errors import (
    BadRequest,
    Exit,
    ManagerUnavailable,
    NotConfirmed,
    UnknownQueue,
)
from omq.base.names import escape
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.command_notes import add_reason
from omq.cli.operate.queue_hold import alter_file
from omq.core.load.offline_index import read_files
from omq.format.definition import HOLDING, Kind, read_line
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.daemon.options import Location

NAME: Final = "omq queue"
_FILE: Final = "queues.conf"


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    options.do = _COMMANDS[options.command][0]
    if (options.do is not _list) != bool(options.queue):
        parser.error(f"{options.command}: a QUEUE, except for list")
    if (options.do in (_rename, _roll_over)) != bool(options.to):
        parser.error(f"{options.command}: --to QUEUE, for rename and roll-over alone")
    if (options.do in (_pause, _resume)) != (options.key is not None):
        parser.error(f"{options.command}: --key KEY, for pause and resume alone")
    if (options.do is _why) != (options.message is not None):
        parser.error(f"{options.command}: --message ID, for why alone")
    location = existing(options)
    try:
        connection = connect(location, "omq")
    except ManagerUnavailable:
        if options.do not in (_list, _show):
            raise
        _offline(location, options)
        return Exit.OK
    with connection:
        options.do(connection, location, options)
    return Exit.OK


def _define(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.define_by(
        options.queue, options.kind,
        {key: value for key, value in _keys(options).items() if value}, reason=options.reason)


def _alter(connection: Client, location: Location, options: argparse.Namespace) -> None:
    keys = _keys(options)
    if not keys:
        raise BadRequest(reason="nothing to alter: KEY=VALUE ...")
    if connection.queues.show(options.queue).by == _FILE:
        alter_file(location, options.queue, keys, options.reason)
    else:
        connection.queues.alter_by(
            options.queue, {key: value or None for key, value in keys.items()},
            reason=options.reason)


def _rename(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.rename(options.queue, options.to, reason=options.reason)


def _roll_over(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.roll_over(options.queue, options.to, reason=options.reason)


def _delete(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.delete(options.queue, force=options.force, reason=options.reason)


def _truncate(connection: Client, location: Location, options: argparse.Namespace) -> None:
    with connection.reader(options.queue):  # only a server of it may
        connection.queues.truncate(options.queue, reason=options.reason)


def _pause(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.pause(options.queue, options.key, reason=options.reason)


def _resume(connection: Client, location: Location, options: argparse.Namespace) -> None:
    connection.queues.resume(options.queue, options.key, reason=options.reason)


def _why(connection: Client, location: Location, options: argparse.Namespace) -> None:
    said = connection.queues.waits_for(options.queue, options.message)
    sys.stdout.write(f"{said or 'no limit of work holds it: omqwhy'}\n")


def _clear(connection: Client, location: Location, options: argparse.Namespace) -> None:
    waiting = connection.queues.show(options.queue).messages
    most = client_settings(location.conf_dir).operator_confirm_messages
    if waiting > most and not options.yes:
        raise NotConfirmed(count=waiting, what="messages", action=f"clear {options.queue}; --yes")
    count = connection.queues.clear(options.queue, reason=options.reason)
    sys.stdout.write(f"{options.queue}: {count} messages deleted\n")


def _show(connection: Client, location: Location, options: argparse.Namespace) -> None:
    _print(connection.queues.show(options.queue), options)


def _list(connection: Client, location: Location, options: argparse.Namespace) -> None:
    _table(connection.queues.list(), options)


def _offline(location: Location, options: argparse.Namespace) -> None:
    say("omq", "no queue manager runs: this is what its next start will find")
    index = read_files(location.paths, clock.wall_ns())
    numbers = {name: number for number, name in index.queues.items()}
    out = {name: QueueInfo(name, Kind.LOCAL.value, _FILE, numbers.get(name, 0), 0, keys_of(conf))
           for name, conf in load_queues(location.conf_dir).items()}
    paused = defaultdict[str, list[str]](list)
    for name, line in index.definitions.items():
        found = read_line(line)
        if found is not None and found.kind is Kind.PAUSE:
            paused[found.keys.get("queue", "")].append(found.keys.get("key", ""))
        elif name not in out and found is not None:
            number = numbers.get(name, 0) if found.kind in HOLDING else 0
            out[name] = QueueInfo(name, found.kind.value, "run time", number, 0, found.keys)
    for name, number in numbers.items():
        out.setdefault(name, QueueInfo(name, Kind.LOCAL.value, "nobody", number, 0, {}))
    depth = index.tables.q_depth
    listed = [QueueInfo(each.name, each.kind, each.by, each.number,
                        depth[each.number] if each.number else 0, each.keys,
                        paused=tuple(sorted(paused[each.name])))
              for _, each in sorted(out.items())]
    if options.do is _list:
        return _table(listed, options)
    chosen = next((each for each in listed if each.name == options.queue), None)
    if chosen is None:
        raise UnknownQueue(queue=escape(options.queue))
    return _print(chosen, options)


def _print(info: QueueInfo, options: argparse.Namespace) -> None:
    if options.json:
        return print_json(_record(info))
    lines = [f"{info.name}: {info.kind}, defined by {info.by}, number {info.number}"]
    lines += [f"  {key} = {escape(value)}" for key, value in info.keys.items()]
    lines += [f"  key paused: '{escape(key)}'" for key in info.paused]
    lines += [f"  {key}: {value}" for key, value in info.facts.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return None


def _table(listed: list[QueueInfo], options: argparse.Namespace) -> None:
    if options.json:
        for info in listed:
            print_json(_record(info))
        return
    sys.stdout.write(f"{'queue':<16} {'kind':<12} {'by':<11} {'number':>6} {'messages':>9}\n")
    for info in listed:
        sys.stdout.write(f"{info.name:<16} {info.kind:<12} {info.by:<11} {info.number:>6} "
                         f"{info.messages:>9}\n")


def _record(info: QueueInfo) -> dict[str, Any]:
    told = asdict(info)
    return {"queue": told.pop("name"), **told, "keys": dict(info.keys), "facts": dict(info.facts),
            "paused": list(info.paused)}


def _keys(options: argparse.Namespace) -> dict[str, str]:
    out = {}
    for text in options.keys:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadRequest(reason=f"{escape(text)} is not KEY=VALUE")
        out[key.strip()] = value.strip()
    return out


_COMMANDS: Final[dict[str, tuple[Callable[[Client, Location, argparse.Namespace], None], str]]] = {
    "define": (_define, "make a queue"), "alter": (_alter, "change keys of one"),
    "show": (_show, "definition and contents"), "list": (_list, "all queues"),
    "clear": (_clear, "delete the messages that no reader has"),
    "truncate": (_truncate, "an empty queue forgets what was on it"),
    "pause": (_pause, "stop handing out messages of --key"),
    "resume": (_resume, "hand them out again"),
    "why": (_why, "which limit holds back --message"),
    "rename": (_rename, "give it another name"),
    "roll-over": (_roll_over, "create a new queue under its name; the old one drains and is "
                              "removed"),
    "delete": (_delete, "remove an empty queue"),
}


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Create, change, show and remove queues.", """
        omq queue define ORDERS.EU max_depth=10000
        omq queue define ALL --kind alias target='ORDERS.EU ORDERS.US'
        omq queue alter ORDERS.EU get=inhibited
        omq queue roll-over ORDERS --to ORDERS.OLD
        omq queue show ORDERS
        omq queue pause ORDERS --key tenant7
        """)
    words = ", ".join(f"{name} ({text})" for name, (_do, text) in _COMMANDS.items())
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND", help=words)
    parser.add_argument("queue", nargs="?", default="", metavar="QUEUE", help="all but list")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE",
                        help="with define and alter; an empty value removes a key")
    parser.add_argument("--kind", default=Kind.LOCAL.value, help="with define: local, alias, "
                                                                 "model, "
                        "remote, transmission")
    parser.add_argument("--to", default="", metavar="QUEUE", help="with rename and roll-over")
    parser.add_argument("--key", metavar="KEY", help="with pause and resume: a group id or a "
                        "property's value, as limit_by says; '' for messages without one")
    parser.add_argument("--message", type=int, metavar="ID", help="with why: a QPoolId")
    parser.add_argument("--force", action="store_true",
                        help="with delete: take the queue from readers that hold no message")
    parser.add_argument("--yes", action="store_true", help="with clear: do not ask")
    add_reason(parser)
    add_json(parser)
    return parser
