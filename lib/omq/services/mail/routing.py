"""Which messages take the place of a submitted mail: the rules, without a queue or a process.

service.router asks `route` of what it reads; smtp.server asks `straight`, so that a mail that comes
out as one message and needs no report goes where it is read without a stop at ROUTER.

Rules:
1. A recipient that several ways lead to (given twice, by two aliases) has the message once; the
   visible way wins over the blind one. Domains have no case, mailbox names neither.
2. Fields Bcc and Resent-Bcc are removed from every copy: nobody learns of a blind recipient, not
   even the other blind ones. So is a Return-Path that somebody else wrote: delivery adds the
   one with the envelope's sender (RFC 5321 4.4). Nothing else in the body changes.
3. More than `hops_max` Received fields: the message runs in a circle; all recipients fail (5.4.6).
4. Unknown local users fail (5.1.1) while the others go on; all failures of a message go to ERRMGR
   together, for one report. The null sender, priority, correlation id and the submitter's other
   properties are kept; all messages made from a mail carry its id and time of arrival.
5. Properties are limited, so very many recipients are shared out over several messages.
6. Blind recipients whose mail stays here share a message, that of the visible ones if theirs stays
   here, too: each has a file of his own, which names nobody else, and what cannot be delivered is
   one report. Those elsewhere have a message each; beyond `blind_copies_max`, or where copies would
   exceed `blind_bytes_max`, they share some.

Errors: MapFailed alone; a message whose header is not a header is routed by its envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from omq import Outgoing
from omq.base import limits, names
from omq.base.limits import KIB
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import arrival_ns, mail_id
from omq.services.mail.routes import Destination, Routes

PROPERTIES_ROOM_BYTES: Final = 4 * KIB
"""Besides the recipients, properties have names, lengths and a sender: room kept for them."""

_DROPPED: Final = mail.BLIND_FIELDS | {b"return-path"}


class Seen(Protocol):
    """What is asked of a message: one of a queue, or what checks and rewriting made of it."""

    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...
    @property
    def message_id(self) -> str: ...
    @property
    def put_time_ns(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def correlation_id(self) -> bytes: ...


Routed = Destination | mail.Failure
Resolve = Callable[[str], tuple[list[Destination], list[mail.Failure]]]
"""A recipient's destinations and failures (Routes.resolve)."""


def route(message: Seen, routes: Routes, scan_bytes: int) -> Iterator[Outgoing]:
    """The messages that take the place of a submitted one; at least one. MapFailed."""
    properties, text = message.properties, message.body
    fields = list(mail.header_fields(text, scan_bytes))
    maps = routes.recipient_maps
    resolve = partial(routes.resolve, look=maps.ask) if maps else routes.resolve
    return _routed(text, fields, mail.Envelope.of(properties).recipients,
                   Source.of(message, properties), routes, resolve)


def straight(text: bytes, fields: mail.Fields, recipients: Sequence[str],
             properties: Mapping[str, str], priority: int, message_id: bytes, routes: Routes,
             resolve: Resolve) -> Outgoing | None:
    """The one message that takes the place of a mail; None where there are several (ROUTER's
    reader makes them in one operation, all or none), or a report is due. `properties`: what the
    mail would have on ROUTER; `message_id`: the mail's own."""
    source = Source(mail.without_routing(properties), priority, b"", message_id)
    made = _routed(text, fields, recipients, source, routes, resolve)
    only = next(made)
    if names.ERRMGR in only.queues or next(made, None) is not None:
        return None
    return only


def _routed(text: bytes, fields: mail.Fields, recipients: Sequence[str], source: Source,
            routes: Routes, resolve: Resolve) -> Iterator[Outgoing]:
    hops = mail.hops(fields)
    body = mail.without_fields(text, _DROPPED, fields)
    if not recipients:
        nobody = mail.Failure("(no recipient)", "5.1.3", "the message has no recipient")
        yield from messages_of(source, body, [nobody])
    elif hops > routes.hops_max:
        reason = f"the message has passed {hops} hosts: it runs in a circle"
        yield from messages_of(source, body, [mail.Failure(each, "5.4.6", reason)
                                              for each in recipients])
    else:
        named = mail.named_recipients(text, fields)
        visible, blind = _resolve_all(recipients, named, routes, resolve)
        failures = [each for group in blind for each in group if isinstance(each, mail.Failure)]
        reached = [[each for each in group if isinstance(each, Destination)] for group in blind]
        here = [each for group in reached for each in group if each.queue == names.LOCAL]
        # One report for all: the blind ones' too, it goes to their sender. But what is on another
        # queue, too, tells its reader of no blind one.
        only_here = all(isinstance(each, mail.Failure) or each.queue == names.LOCAL
                        for each in visible)
        yield from messages_of(source, body, [*visible, *failures, *(here if only_here else ())])
        if here and not only_here:
            yield from messages_of(source, body, here)
        away = [[each for each in group if each.queue != names.LOCAL] for group in reached]
        for group in _grouped([each for each in away if each], len(body), routes):
            yield from messages_of(source, body, group)


def _resolve_all(recipients: Iterable[str], named: frozenset[str], routes: Routes,
                 resolve: Resolve) -> tuple[list[Routed], list[list[Routed]]]:
    """(what the visible recipients resolve to, the same for each blind one), nothing twice."""
    open_ones = {name for each in named for name in (each, routes.qualified(each))}
    by_visibility: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for recipient in recipients:
        key = routes.qualified(recipient)
        seen = recipient.casefold() in open_ones or key.casefold() in open_ones
        by_visibility[seen].setdefault(key, recipient)
    taken: set[tuple[str, str]] = set()
    visible = [each for recipient in by_visibility[True].values()
               for each in _resolve(recipient, resolve, taken)]
    blind = [_resolve(recipient, resolve, taken) for key, recipient in by_visibility[False].items()
             if key not in by_visibility[True]]
    return visible, [each for each in blind if each]


def _resolve(recipient: str, resolve: Resolve, taken: set[tuple[str, str]]) -> list[Routed]:
    destinations, failures = resolve(recipient)
    fresh: list[Routed] = [each for each in destinations if each.key not in taken]
    taken.update(each.key for each in destinations)
    return fresh + list(failures)


def _grouped(blind: Sequence[list[Destination]], size: int, routes: Routes
             ) -> Iterator[list[Destination]]:
    """The blind recipients over as many messages as the limits allow: mostly one each."""
    allowed = max(1, min(routes.blind_copies_max, routes.blind_bytes_max // max(1, size)))
    each_takes = -(-len(blind) // allowed) or 1
    for start in range(0, len(blind), each_takes):
        yield [each for group in blind[start : start + each_takes] for each in group]


@dataclass(frozen=True, slots=True)
class Source:
    """What all messages that are made of a mail have of it."""

    kept: dict[str, str]  # properties
    priority: int
    correlation_id: bytes
    message_id: bytes = b""  # of the only message that may come of it

    @classmethod
    def of(cls, message: Seen, properties: Mapping[str, str] | None = None) -> Source:
        """Of this one, whose properties may be known; one that came without an id is given one."""
        found = message.properties if properties is None else properties
        first = found.get(mail.ID) or message.message_id
        return cls(mail.without_routing(found) | mail.tracing(
            mail_id(found, first), arrival_ns(found, message.put_time_ns)),
            message.priority, message.correlation_id)


def messages_of(source: Source, body: bytes, routed: Iterable[Routed]) -> Iterator[Outgoing]:
    """One message for all of these, or several where the properties would become too large."""
    room = limits.PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES - sum(
        _bytes(name) + _bytes(value) for name, value in source.kept.items())
    chunk: list[Routed] = []
    size = 0
    for each in routed:
        cost = _cost(each)
        if chunk and size + cost > room:
            yield _message(source, body, chunk)
            chunk, size = [], 0
        chunk.append(each)
        size += cost
    if chunk:
        yield _message(source, body, chunk)


def _cost(routed: Routed) -> int:
    texts = ((routed.address, routed.original) if isinstance(routed, Destination)
             else (routed.recipient, routed.status, routed.reason))
    return sum(_bytes(text) + 1 for text in texts)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _message(source: Source, body: bytes, routed: Sequence[Routed]) -> Outgoing:
    properties = dict(source.kept)
    destinations = [each for each in routed if isinstance(each, Destination)]
    failures = [each for each in routed if isinstance(each, mail.Failure)]
    queues = list(dict.fromkeys(each.queue for each in destinations))
    for queue in queues:
        here = [each for each in destinations if each.queue == queue]
        properties[mail.to_name(queue)] = "\n".join(each.address for each in here)
        properties[mail.original_name(queue)] = "\n".join(each.original for each in here)
    if failures:
        properties |= mail.error_properties(failures)
        queues.append(names.ERRMGR)
    return Outgoing(body, queues=tuple(dict.fromkeys(queues)), priority=source.priority,
                    properties=properties, persistent=True, correlation_id=source.correlation_id,
                    message_id=source.message_id)
