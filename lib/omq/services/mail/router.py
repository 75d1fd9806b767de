"""service.router: the reader of queue ROUTER; it decides once where each recipient's copy goes.

Input: a mail message with its envelope in properties. Output, in ONE atomic operation that also
finishes the input: one message for all visible recipients, on every queue that any of them needs at
once (LOCAL, UNIX, ERRMGR, ...), with `mail.to.QUEUE` and `mail.orig.QUEUE` for each reader; and a
message of its own for every blind recipient elsewhere: one that neither To nor Cc names.

The rules are in omq.services.mail.routing. Most mail that comes by SMTP does not pass here:
smtp.server has asked them already (`smtp_straight`).

Crash argument: the handler has no side effect but the disposition. Killed before it, the message
returns and gives the same; killed after it, all has happened.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable): a message
whose header is not one is routed by its envelope alone, and one for which a map of addresses has
no answer waits, all of it (event 1521).
"""

from __future__ import annotations

from collections.abc import Sequence

from omq import Outgoing
from omq.base import events, fault, names
from omq.base.errors import MessageTooLong, OmqError
from omq.base.event_log import REPORT, WARNING
from omq.base.rated_log import NEVER, RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.content_checks import CheckFailed
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_log import delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.router_checks import check_and_rewrite, held
from omq.services.mail.routes import Routes
from omq.services.mail.routes_file import load_routes
from omq.services.mail.routing import Source, messages_of, route
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Message, Move, Service


class RouterService(Service):
    """One reader process of the Service Router."""

    title = "Service Router"

    def open(self) -> None:
        settings = self.context.settings
        self.rated = RatedLog(self.context.log, settings.event_burst, settings.event_period_s)
        self.routes = Routes()
        self.reload()
        self.mail_log = mail_log_of(self.context)
        self.context.log.event(events.ROUTER_STARTED, REPORT)

    def reload(self) -> None:
        before, self.routes = self.routes, load_routes(
            self.context.conf_dir, mail_hostname(self.context.settings))
        before.close()

    def close(self) -> None:
        self.routes.close()
        self.rated.flush(NEVER)
        self.mail_log.close()
        self.context.log.event(events.ROUTER_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        return self.handle_many([message])[0]

    def handle_many(self, messages: Sequence[Message]) -> list[Disposition]:
        """The moves of a batch are one request: all of them, or one by one after a refusal."""
        scan_bytes = self.context.settings.mail_header_scan_bytes
        moves: list[Disposition] = []
        with self.context.log.together():
            for message in messages:
                try:
                    new = self._made(message, scan_bytes)
                except MapFailed as error:
                    moves.append(self._unanswered(message, error))
                    continue
                kept = self._kept(message, new)
                if kept is None:
                    self._report(message, new)
                moves.append(kept or Move((), new))
        fault.point("router.before_move")
        return moves

    def _made(self, message: Message, scan_bytes: int) -> tuple[Outgoing, ...]:
        """What takes the message's place; nothing for one that is discarded. MapFailed."""
        routes = self.routes
        if not (routes.checks or routes.rewriting):
            return tuple(route(message, routes, scan_bytes))
        seen = check_and_rewrite(message, routes, scan_bytes)
        first = mail_id(seen.properties, seen.message_id)
        self.mail_log.write(("cleanup", f"{first}: {each}") for each in seen.notes)
        if seen.discarded:
            return ()
        if seen.held:
            return (held(seen, first),)
        if seen.refusal:
            _, status, reason = seen.refusal.split(" ", 2)
            failures = [mail.Failure(each, status, reason) for each in
                        mail.Envelope.of(seen.properties).recipients]
            return tuple(messages_of(Source.of(seen), seen.body, failures))
        return tuple(route(seen, routes, scan_bytes))

    def _unanswered(self, message: Message, error: MapFailed) -> Defer:
        """A map has no answer: nobody else has the mail meanwhile, all of it waits."""
        if isinstance(error, CheckFailed):
            self.rated.event(events.MAIL_CHECK_FAILED, WARNING, error.source, checks=error.source,
                             reason=error.reason, message_id=message.message_id)
        else:
            self.rated.event(events.MAIL_MAP_FAILED, WARNING, error.source, map=error.source,
                             reason=error.reason, message_id=message.message_id)
        return Defer(float(self.context.settings.local_retry_s), f"a look-up: {error}")

    def _kept(self, message: Message, new: Sequence[Outgoing]) -> Defer | None:
        """With `soft_bounce` a mail of which a report would tell waits here, whole."""
        settings = self.context.settings
        failures = _failures(new) if settings.soft_bounce else []
        if not failures:
            return None
        self._told(message, failures, "deferred")
        return Defer(float(settings.local_retry_s), failures[0].reason)

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        """A queue is full or closed: later. The message is too long for it: its sender gets a
        report."""
        if not isinstance(error, MessageTooLong) or self.context.settings.soft_bounce:
            return None
        recipients = mail.Envelope.of(message.properties).recipients
        failures = [mail.Failure(each, "5.3.4", "the message is too long for its way")
                    for each in recipients]
        self._told(message, failures)
        header = b"".join(_headers(message.body, self.context.settings.mail_header_scan_bytes))
        return Move((), tuple(messages_of(Source.of(message), header, failures)))

    def _report(self, message: Message, new: Sequence[Outgoing]) -> None:
        queues = sorted({queue for each in new for queue in each.queues})
        self.context.log.event(events.ROUTED, REPORT, message_id=message.message_id,
                               messages=len(new), to=" ".join(queues))
        self._told(message, _failures(new))

    def _told(self, message: Message, failures: Sequence[mail.Failure], kind: str = "bounced"
              ) -> None:
        """An event and a line for each recipient that cannot be reached."""
        for failure in failures:
            self.context.log.event(events.ROUTER_NO_ROUTE, WARNING, recipient=failure.recipient,
                                   status=failure.status, reason=failure.reason,
                                   message_id=message.message_id)
        if failures:
            properties = message.properties
            first = mail_id(properties, message.message_id)
            since = delay_s(properties, message.put_time_ns)
            self.mail_log.write(
                ("error", delivery(first, each.recipient, "none", since, each.status if
                                   kind == "bounced" else f"4{each.status[1:]}", kind,
                                   each.reason)) for each in failures)


def _failures(new: Sequence[Outgoing]) -> list[mail.Failure]:
    """Of the recipients that cannot be reached."""
    return [failure for each in new if names.ERRMGR in each.queues
            for failure in mail.failures_of(each.properties)]


def _headers(body: bytes, scan_bytes: int) -> tuple[bytes, ...]:
    """What a report needs of a message that is too long: its header."""
    return body[: mail.header_end(body, scan_bytes)], b"\r\n"


def main(argv: list[str] | None = None) -> int:
    """The program service.router; returns its exit code."""
    return run_service("router", RouterService, argv)
