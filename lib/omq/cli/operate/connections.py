"""omq connections: who is connected to amqp.server, how much moves, and the end of one.

    omq connections                                        a line each; --links: and its links
    omq connections close 7 --reason 'asked by its owner'
    omq connections close 7 --link sender-1 --reason ...   one link of it, the rest goes on

A connection that is closed has what its client holds given back untouched, as at a stop of the
server; its client may connect again (take its right or its password away to keep it out). The
command is journaled before anything is closed. For the owner of the spool and root.

Errors: ServerAway, ConnectionUnknown, LinkUnknown, NoPermission.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from typing import Any, Final

from omq.base import clock
from omq.base.access import user_name
from omq.base.amounts import duration
from omq.base.errors import (
    ConnectionUnknown,
    Exit,
    LinkUnknown,
    NoPermission,
    ServerAway,
)
from omq.base.names import escape
from omq.base.socket_name import socket_name
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.operate.command_notes import add_reason, note_command
from omq.services.daemon.options import Location

NAME: Final = "omq connections"
SERVER: Final = "amqp.server"
_WAIT_S: Final = 10.0
_LINK_MAX: Final = 128
_ANSWER_BYTES_MAX: Final = 256 << 20


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    if (options.do == "close") != (options.connection is not None):
        parser.error("a CONNECTION, for close alone")
    if options.link is not None and options.do != "close":
        parser.error("--link: with close alone; --links shows them")
    location = existing(options)
    if options.do == "close":
        what = words(options.connection, options.link)
        close(location, options.connection, f"{NAME} close {what}", options.reason,
              by=user_name(os.getuid()), link=options.link)
        sys.stdout.write(f"connection {what} is closed\n")
        return Exit.OK
    found = listed(location)
    for each in found["told"]:
        if options.json:
            print_json(each)
        else:
            sys.stdout.write(_line(each) + "\n")
            for link in each["links"] if options.links else ():
                sys.stdout.write(f"    {link['way']:<5} {escape(link['queue']) or '-':<16} "
                                 f"{_rate(link['rate'])} {link['messages']:>12} "
                                 f"{escape(link['name'])}\n")
    if not options.json:
        sys.stdout.write(f"{found['connections']} connections\n")
    return Exit.OK


def listed(location: Location) -> dict[str, Any]:
    """`connections`: how many there are, `told`: those that can be told of. ServerAway."""
    return _ask(location, {"do": "list"})


def words(number: int, link: str | None) -> str:
    """`7`, or `7, link sender-1`."""
    return str(number) if link is None else f"{number}, link {escape(link, _LINK_MAX)}"


def close(location: Location, number: int, command: str, reason: str, *, by: str,
          link: str | None = None) -> None:
    """End one, or a link of it. The note in the journal comes first: a death between the two leaves
    an order of which nothing came. ServerAway, ConnectionUnknown, LinkUnknown."""
    found = [each for each in listed(location)["told"] if each["connection"] == number]
    if not found:
        raise ConnectionUnknown(number=number)
    if link is not None and not any(each["name"] == link for each in found[0]["links"]):
        raise LinkUnknown(number=number, link=escape(link, _LINK_MAX))
    note_command(location, command, reason, 1, "connections")
    asked = {"do": "close", "connection": number, "reason": reason, "by": by}
    answer = _ask(location, asked if link is None else {**asked, "link": link})
    if not answer.get("closed"):
        raise ConnectionUnknown(number=number) if link is None else LinkUnknown(
            number=number, link=escape(link, _LINK_MAX))


def reload(location: Location) -> None:
    """Have the server, if it runs, read its configuration and the exchanges again. ServerAway: it
    hangs."""
    try:
        _ask(location, {"do": "reload"})
    except ServerAway as error:
        if not isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
            raise


def _ask(location: Location, what: dict[str, Any]) -> dict[str, Any]:
    path = location.paths.amqp_socket
    try:
        with socket_name(path) as name, socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_WAIT_S)
            line.connect(name)
            line.sendall(json.dumps(what).encode() + b"\n")
            data = bytearray()
            while not data.endswith(b"\n") and (more := line.recv(1 << 16)):
                data += more
                if len(data) > _ANSWER_BYTES_MAX:
                    raise ServerAway(server=SERVER, reason="its answer has no end")
    except PermissionError as error:
        raise NoPermission(action=f"ask {SERVER} for its connections", what=str(path)) from error
    except OSError as error:
        raise ServerAway(server=SERVER, reason=error.strerror or str(error)) from error
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ServerAway(server=SERVER, reason="its answer has no sense") from error
    if not isinstance(found, dict) or "error" in found:
        raise ServerAway(server=SERVER, reason=escape(str(found), 200))
    return found


def _line(each: dict[str, Any]) -> str:
    age_s = max(0, clock.wall_ns() - int(each["since_ns"])) // clock.NS_PER_S
    return (f"{each['connection']:>6} {each['protocol']:<10} {escape(each['user']) or '?':<12} "
            f"{escape(each['peer']):<20} {_rate(each['puts_rate'])} put {_rate(each['takes_rate'])}"
            f" taken, {len(each['links'])} links, for {duration(age_s)}, "
            f"{escape(each['client'])}")


def _rate(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.1f}':>9}/s"


def _parser() -> argparse.ArgumentParser:
    said = "Show who is connected to amqp.server, and close a connection or one link of it."
    parser = tool_parser(NAME, said, f"""
        {NAME}
        {NAME} --links
        {NAME} close 7 --reason 'it sends the same message for ever'
        {NAME} close 7 --link sender-1 --reason 'the queue is to be emptied'
        """)
    parser.add_argument("do", nargs="?", default="list", choices=("list", "close"), metavar="DO",
                        help="list (the default) or close")
    parser.add_argument("connection", nargs="?", type=int, metavar="CONNECTION",
                        help="with close: its number")
    parser.add_argument("--links", action="store_true",
                        help="also the links of each: queue, rate, messages since the beginning")
    parser.add_argument("--link", metavar="NAME",
                        help="with close: this link alone, by the name that --links shows; of AMQP "
                             "0-9-1 the channel that it names, with all that is on it")
    add_reason(parser)
    add_json(parser)
    return parser
