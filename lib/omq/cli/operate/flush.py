"""omq flush: what waits for its next try is tried now.

    omq flush UNIX            every deferred message of a queue is ready
    omq flush example.org     those for this domain, on the queues of the mail gateways
    omq flush mx.example.org  those that go to this peer of routes.conf, or to the smarthost

Gateways forget that these peers could not be reached. Messages that an operator holds stay
held. Each release is journaled (HOLD and RELEASE frames, core.engine.operate), so it outlives a
restart. Errors: NothingMeant (nothing is deferred there), UnknownQueue (neither queue nor domain),
and those of cli.operate.change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Final

from omq.base import clock
from omq.base.config import client_settings, load_queues, load_settings
from omq.base.errors import (
    Exit,
    MessageBusy,
    MessageChanged,
    NoMessage,
    NothingMeant,
    OmqError,
    UnknownQueue,
)
from omq.base.names import escape
from omq.base.services_conf import load_services
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.look.gateways import GATEWAY, states_of
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, Target, counted, target
from omq.cli.operate.command_notes import add_reason
from omq.cli.progress import looking
from omq.core.index.rows import EntryRow
from omq.core.look.selection import parse
from omq.core.look.stored import StoredMessages
from omq.services.daemon.options import Location
from omq.services.mail import mail_message as mail
from omq.services.mail.channel_names import SMTP
from omq.services.mail.routes import Peer, peer_of
from omq.services.mail.routes_file import load_routes
from omq.storage.spool import open_spool

NAME: Final = "omq flush"
Meant = Callable[[dict[str, str], str], bool]  # (properties, queue)
IsPeer = Callable[[Peer | None], bool]
OVERTAKEN: Final = {MessageChanged.status, MessageBusy.status, NoMessage.status}
"""Why it is no longer there to be released: somebody else, such as the scheduler, was quicker."""


def main(argv: list[str]) -> int:
    """The command; its exit code: 1 when nothing waits there."""
    options = _parser().parse_args(argv)
    release_mail_of(existing(options), options.what, f"{NAME} {options.what}", options)
    return Exit.OK


def release_mail_of(location: Location, what: str, command: str, options: argparse.Namespace, *,
                    channel: str = "", looks: int = 1) -> None:
    """What waits for a queue, domain or peer is ready; for what goes over the channel `what`, if
    `channel` names a gateway's queue. `looks`: so often at most, where nothing but a change since
    the look is in the way. NothingMeant and those of the module."""
    queue = what.upper()
    services = list(load_services(location.conf_dir).values())
    if channel:
        queues = [channel]
        meant, peers = _over(location, what)
    elif queue in load_queues(location.conf_dir):
        queues, meant, peers = [queue], None, None
    else:
        meant, peers = _for_peer(location, what.lower())
        queues = [each.queue for each in services if each.program == GATEWAY and each.queue]

    def found() -> list[Target]:
        with looking("omq", location.paths) as seen:
            uuid = open_spool(location.paths.root).uuid
            rows = [row for name in queues for row in parse(f"queue={name} state=deferred").rows(
                seen.view, location.paths, uuid, clock.wall_ns())]
        return [target(row) for row in (rows if meant is None else _chosen(location, rows, meant))]

    items = found()
    if not items:
        raise NothingMeant(action=f"flush {escape(what)}")
    say("omq", f"release: {counted(len(items))}")
    client_settings(location.conf_dir)  # ConfigError before anything is done
    for each in services:
        if each.program == GATEWAY and each.queue in queues:
            states = states_of(location, each)
            states.forget([name for name in states.down if peers is None or peers(peer_of(name))])
    change = Change(Doing.RELEASE)
    report = changes.carry_out(location, command, change, items, options.reason)
    while looks > 1 and report.refused and all(
            each.status in OVERTAKEN for each in report.refused):
        looks -= 1
        again = {each.qpool for each in report.refused}
        left = [each for each in found() if each[0] in again]
        report.refused.clear()
        if left:
            report += changes.carry_out(location, command, change, left, options.reason)
    if options.json:
        print_json(changes.report_record(change, report))
    else:
        sys.stdout.write(f"{len(report.done)} of {counted(len(items))}: release\n")
    for text in changes.refusals(report):
        say("omq", text)
    changes.check(report, len(items))


def _chosen(location: Location, rows: list[EntryRow], meant: Meant) -> Iterator[EntryRow]:
    stored = StoredMessages(location.paths)
    try:
        for row in rows:
            try:
                if meant(stored.read(row.message).properties, row.queue):
                    yield row
            except OmqError as error:
                say("omq", f"{row.message.qpool} stays: {error}")
    finally:
        stored.close()


def _over(location: Location, channel: str) -> tuple[Meant, IsPeer]:
    """Who has a recipient that goes over this channel; one that no route names goes by SMTP."""
    routes, settings = load_routes(location.conf_dir), load_settings(location.conf_dir)
    smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None

    def is_it(peer: Peer | None) -> bool:
        return channel == (peer.channel if peer is not None else SMTP)

    def meant(properties: dict[str, str], queue: str) -> bool:
        return any(is_it(routes.peer(domain) or smarthost)
                   for domain in _domains(properties, queue))

    return meant, is_it


def _domains(properties: dict[str, str], queue: str) -> set[str]:
    listed = properties.get(mail.to_name(queue)) or properties.get(mail.TO, "")
    return {mail.split_address(each)[1].lower() for each in mail.lines(listed)}


def _for_peer(location: Location, wanted: str) -> tuple[Meant, IsPeer]:
    """Who has a recipient in this domain, or one that goes to this peer; which peer is meant."""
    routes, settings = load_routes(location.conf_dir), load_settings(location.conf_dir)
    smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None

    def is_it(peer: Peer | None) -> bool:
        if peer is None:
            return False
        port = peer.port or settings.unix_port
        return wanted in (peer.host.lower(), str(Peer(peer.host.lower(), port)))

    known = any(map(is_it, (*routes.peers.values(), smarthost)))
    if not known and "." not in wanted and wanted not in routes.peers:
        raise UnknownQueue(queue=escape(wanted.upper()))

    def meant(properties: dict[str, str], queue: str) -> bool:
        domains = _domains(properties, queue)
        return wanted in domains or any(is_it(routes.peer(domain) or smarthost)
                                        for domain in domains)

    def is_meant(peer: Peer | None) -> bool:
        own = routes.peer(wanted) or (smarthost if "." in wanted else None)
        return is_it(peer) or (peer is not None and own is not None and own.host == peer.host)

    return meant, is_meant


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Retry now what waits for its next attempt.", """
        omq flush UNIX
        omq flush example.org --reason 'their server is back'
        """)
    parser.add_argument("what", metavar="QUEUE|PEER", help="a queue, a domain, or a mail peer")
    add_reason(parser)
    add_json(parser)
    return parser
