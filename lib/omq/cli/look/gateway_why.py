"""omqwhy of the mail gateways: which peer a message waits for, and for what; what the deferred
messages of a gateway's queue wait for, peer by peer.

From what the scheduler publishes (services.delivery.scheduler_status), and of a message from its
recipients and routes.conf. Where one of these may not be read, or is none, there is no line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from omq.base.config import load_settings
from omq.base.errors import OmqError
from omq.base.names import escape
from omq.base.services_conf import load_services
from omq.cli.look.gateways import GATEWAY, states_of
from omq.core.index.rows import EntryRow
from omq.core.look.stored import StoredMessages
from omq.services.daemon.options import Location
from omq.services.delivery.scheduler_status import read_published
from omq.services.mail import mail_message as mail
from omq.services.mail.routes import Peer, peer_of
from omq.services.mail.routes_file import load_routes

_SHOWN: Final = 5


def waits_by_peer(location: Location, queue: str) -> Iterator[tuple[str, list[str]]]:
    """What was put off, most of it first: a text, and what to do; nothing for other queues."""
    rows = [(each["messages"], peer["peer"], cause, str(each["reason"]))
            for peer in _peers(location, queue) for cause, each in peer["put_off"].items()]
    rows.sort(key=lambda row: -row[0])
    for count, peer, cause, reason in rows[:_SHOWN]:
        yield (f"{count} deferred messages wait for {escape(peer)}: {escape(reason)}",
               [_hint(cause, peer)])
    if len(rows) > _SHOWN:
        yield f"and {len(rows) - _SHOWN} more peers", ["omq peers"]


def peers_of_message(location: Location, entry: EntryRow) -> list[tuple[str, str, str]]:
    """Of a message on a gateway's queue: each peer or domain that it waits for, the reason and what
    to do about it, where they are known."""
    found: list[tuple[str, str, str]] = []
    with suppress(OmqError, OSError):
        if not _is_gateway(location, entry.queue):
            return []
        rows = {str(each["peer"]): each for each in _peers(location, entry.queue)}
        down = {name: state.reason for conf in load_services(location.conf_dir).values()
                if conf.queue == entry.queue
                for name, state in states_of(location, conf).down.items()}
        for name in _names(location, entry):
            put_off = rows[name]["put_off"] if name in rows else {}
            most = max(put_off.items(), key=lambda each: int(each[1]["messages"]), default=None)
            if name in down:
                found.append((name, f"it was not reached: {down[name]}", _hint("down", name)))
            elif most is not None:
                found.append((name, str(most[1]["reason"]), _hint(most[0], name)))
            else:
                found.append((name, "", ""))
    return found


def _names(location: Location, entry: EntryRow) -> list[str]:
    """The peers that routes.conf and the smarthost give its recipients, else their domains."""
    stored = StoredMessages(location.paths)
    try:
        properties = stored.read(entry.message).properties
    finally:
        stored.close()
    routes, settings = load_routes(location.conf_dir), load_settings(location.conf_dir)
    smarthost = peer_of(settings.unix_smarthost) if settings.unix_smarthost else None
    listed = properties.get(mail.to_name(entry.queue)) or properties.get(mail.TO, "")
    names: dict[str, None] = {}
    for recipient in mail.lines(listed):
        domain = mail.split_address(recipient)[1].lower()
        peer = routes.peer(domain) or smarthost
        if peer is not None and peer.channel == "smtp":
            rule = routes.tls_rule(domain, peer.host)
            peer = Peer(peer.host, peer.port or settings.unix_port, rule.level if rule else "")
        names[str(peer) if peer is not None else domain] = None
    return list(names)


def _is_gateway(location: Location, queue: str) -> bool:
    return any(each.program == GATEWAY and each.queue == queue
               for each in load_services(location.conf_dir).values())


def _peers(location: Location, queue: str) -> list[dict[str, Any]]:
    with suppress(OmqError, KeyError, TypeError):
        return [peer for conf in load_services(location.conf_dir).values()
                if conf.program == GATEWAY and conf.queue == queue
                for peer in read_published(
                    location.paths.run / f"{conf.name}.peers.now.json")["peers"]]
    return []


def _hint(cause: str, peer: str) -> str:
    return {"held": f"omq peers --release {escape(peer)}",
            "down": f"omq peers --retry {escape(peer)}",
            "refused": f"omq flush {escape(peer)} tries them now"}.get(
                cause, "omq peers shows what the peer has in hand")
