"""service.router: the reader of queue ROUTER; it decides once where each recipient's copy goes.

Input: a mail message with its envelope in properties. Output, in ONE atomic operation that also
finishes the input: one message for all visible recipients, on every queue that any of them needs at
once (LOCAL, UNIX, ERRMGR, ...), with `mail.to.QUEUE` and `mail.orig.QUEUE` for each reader; and a
message of its own for every blind recipient: one that neither To nor Cc names.

Rules:
1. A recipient that several ways lead to (given twice, by two aliases) has the message once; the
   visible way wins over the blind one. Domains have no case, mailbox names neither.
2. Fields Bcc and Resent-Bcc are removed from every copy: a blind recipient is told to nobody, not
   even to the other blind ones. Nothing else in the body changes.
3. More than `hops_max` Received fields: the message runs in a circle; all recipients fail (5.4.6).
4. Unknown local users fail (5.1.1) while the others go on; all failures of a message go to ERRMGR
   together, for one report. The null sender, priority, correlation id and the submitter's other
   properties are kept; all messages made from a mail carry its id and time of arrival.
5. Properties are limited, so very many recipients are shared out over several messages.
6. Blind recipients beyond `blind_copies_max`, or whose copies would exceed `blind_bytes_max`, share
   messages among themselves. Local copies still show nobody else: each file names its own user.

Crash argument: the handler has no side effect but the disposition. Killed before it, the message
comes again and gives the same; killed after it, all has happened.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable): a message
whose header is no header is routed by its envelope alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from omq import Outgoing
from omq.base import events, fault, limits, names
from omq.base.errors import MessageTooLong, OmqError
from omq.base.event_log import REPORT, WARNING
from omq.base.limits import KIB
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import arrival_ns, delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.routes import Destination, Routes
from omq.services.mail.routes_file import load_routes
from omq.services.readers.parent import run_service
from omq.services.readers.service import Disposition, Message, Move, Service

# Beside the recipients, properties have names, lengths and a sender: room that is kept for them.
PROPERTIES_ROOM_BYTES = 4 * KIB

Routed = Destination | mail.Failure


class RouterService(Service):
    """One reader process of the Service Router."""

    title = "Service Router"

    def open(self) -> None:
        self.routes = load_routes(self.context.conf_dir)
        self.mail_log = mail_log_of(self.context)
        self.context.log.event(events.ROUTER_STARTED, REPORT)

    def reload(self) -> None:
        self.routes = load_routes(self.context.conf_dir)

    def close(self) -> None:
        self.mail_log.close()
        self.context.log.event(events.ROUTER_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        scan_bytes = self.context.settings.mail_header_scan_bytes
        new = tuple(route(message, self.routes, scan_bytes))
        self._report(message, new)
        fault.point("router.before_move")
        return Move((), new)

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        """A queue is full or closed: later. The message is too long for it: its sender is told."""
        if not isinstance(error, MessageTooLong):
            return None
        recipients = mail.Envelope.of(message.properties).recipients
        failures = [mail.Failure(each, "5.3.4", "the message is too long for its way")
                    for each in recipients]
        self._told(message, failures)
        return Move((), tuple(_messages(message, b"".join(_headers(
            message.body, self.context.settings.mail_header_scan_bytes)), failures)))

    def _report(self, message: Message, new: Sequence[Outgoing]) -> None:
        queues = sorted({queue for each in new for queue in each.queues})
        self.context.log.event(events.ROUTED, REPORT, message_id=message.message_id,
                               messages=len(new), to=" ".join(queues))
        self._told(message, [
            failure for each in new if names.ERRMGR in each.queues
            for failure in mail.failures_of(each.properties)])

    def _told(self, message: Message, failures: Sequence[mail.Failure]) -> None:
        """An event and a line for each recipient that cannot be reached."""
        for failure in failures:
            self.context.log.event(events.ROUTER_NO_ROUTE, WARNING, recipient=failure.recipient,
                                   status=failure.status, reason=failure.reason,
                                   message_id=message.message_id)
        if failures:
            first, since = mail_id(message.properties, message.message_id), delay_s(
                message.properties, message.put_time_ns)
            self.mail_log.write(
                ("error", delivery(first, each.recipient, "none", since, each.status, "bounced",
                                   each.reason)) for each in failures)


def _headers(body: bytes, scan_bytes: int) -> tuple[bytes, ...]:
    """What a report needs of a message that is too long: its header."""
    return body[: mail.header_end(body, scan_bytes)], b"\r\n"


def route(message: Message, routes: Routes, scan_bytes: int) -> Iterator[Outgoing]:
    """The messages that take the place of a submitted one; at least one."""
    envelope, body = mail.Envelope.of(message.properties), message.body
    hops = mail.hops(body, scan_bytes)
    body = mail.without_fields(body, mail.BLIND_FIELDS, scan_bytes)
    if not envelope.recipients:
        nobody = mail.Failure("(no recipient)", "5.1.3", "the message has no recipient")
        yield from _messages(message, body, [nobody])
    elif hops > routes.hops_max:
        reason = f"the message has passed {hops} hosts: it runs in a circle"
        yield from _messages(message, body, [mail.Failure(each, "5.4.6", reason)
                                             for each in envelope.recipients])
    else:
        named = mail.named_recipients(message.body, scan_bytes)
        visible, blind = _resolve_all(envelope.recipients, named, routes)
        failures = [each for group in blind for each in group if isinstance(each, mail.Failure)]
        if visible or failures:  # one report for all: the blind ones' too, it goes to their sender
            yield from _messages(message, body, [*visible, *failures])
        reached = [[each for each in group if isinstance(each, Destination)] for group in blind]
        for group in _grouped([each for each in reached if each], len(body), routes):
            yield from _messages(message, body, group)


def _resolve_all(recipients: Iterable[str], named: frozenset[str], routes: Routes
                 ) -> tuple[list[Routed], list[list[Routed]]]:
    """(what the visible recipients resolve to, the same for each blind one), nothing twice."""
    open_ones = {name for each in named for name in (each, routes.qualified(each))}
    by_visibility: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for recipient in recipients:
        key = routes.qualified(recipient)
        seen = recipient.casefold() in open_ones or key.casefold() in open_ones
        by_visibility[seen].setdefault(key, recipient)
    taken: set[tuple[str, str]] = set()
    visible = [each for recipient in by_visibility[True].values()
               for each in _resolve(recipient, routes, taken)]
    blind = [_resolve(recipient, routes, taken) for key, recipient in by_visibility[False].items()
             if key not in by_visibility[True]]
    return visible, [each for each in blind if each]


def _resolve(recipient: str, routes: Routes, taken: set[tuple[str, str]]) -> list[Routed]:
    destinations, failures = routes.resolve(recipient)
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


def _messages(message: Message, body: bytes, routed: Iterable[Routed]) -> Iterator[Outgoing]:
    """One message for all of these, or several where the properties would become too large."""
    kept = _kept(message)
    room = limits.PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES - sum(
        _bytes(name) + _bytes(value) for name, value in kept.items())
    chunk: list[Routed] = []
    size = 0
    for each in routed:
        cost = _cost(each)
        if chunk and size + cost > room:
            yield _message(message, body, chunk)
            chunk, size = [], 0
        chunk.append(each)
        size += cost
    if chunk:
        yield _message(message, body, chunk)


def _kept(message: Message) -> dict[str, str]:
    """The properties that all copies have; a mail that came without an id is given one."""
    first = mail.tracing(mail_id(message.properties, message.message_id),
                         arrival_ns(message.properties, message.put_time_ns))
    return mail.without_routing(message.properties) | first


def _cost(routed: Routed) -> int:
    texts = ((routed.address, routed.original) if isinstance(routed, Destination)
             else (routed.recipient, routed.status, routed.reason))
    return sum(_bytes(text) + 1 for text in texts)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _message(message: Message, body: bytes, routed: Sequence[Routed]) -> Outgoing:
    properties = _kept(message)
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
    return Outgoing(body, queues=tuple(dict.fromkeys(queues)), priority=message.priority,
                    properties=properties, persistent=True, correlation_id=message.correlation_id)


def main(argv: list[str] | None = None) -> int:
    """The program service.router; returns its exit code."""
    return run_service("router", RouterService, argv)
