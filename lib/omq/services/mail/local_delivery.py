"""local.delivery: the reader of queue LOCAL; it writes each message into the Maildirs of its users.

Input: `mail.to.LOCAL` names the mailboxes, `mail.orig.LOCAL` the addresses they came from (same
order). A message that was put on LOCAL by hand has only `mail.to`; the local parts are the users.
On top of the body, which is written byte for byte, stand two header fields that final delivery
adds (RFC 5321 section 4.4): Return-Path with the sender, Delivered-To with the address.

What becomes of the message: all mailboxes written: done. A mailbox that cannot be written (disk or
quota full, an error of the disk) is tried again: where it is the only one, the message is deferred;
where others were written, a new message with only the failed ones takes its place on this queue,
delayed, in the same atomic operation. Names that can be no mailbox, and users without one (see
omq.services.mail.mailboxes): one new message to ERRMGR for these, in that operation too.

Crash argument: killed after the last mailbox was written and before the disposition, the message
comes again, each mailbox is found written, and it is done. Nothing is delivered twice, and nothing
is finished that is not on disk.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from omq import Outgoing
from omq.base import clock, events, modes, names
from omq.base.errors import BadName
from omq.base.event_log import ERROR, REPORT, TRACE, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import arrival_ns, delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mailboxes import Mailboxes
from omq.services.mail.maildir import Maildir, NewFile, file_name, mailbox_name, publish
from omq.services.mail.routes_file import load_routes
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move, Service
from omq.storage import durable
from omq.storage.durable import FULL

FILES_MAX: Final = 64
"""Open at once."""

RETRIED: Final = "local.retried"
"""Property of a message with the mailboxes of an earlier one that could not be written: that one's
id and time, from which the names of the files are made, so that nothing is written twice."""


class LocalDeliveryService(Service):
    """One reader process of Local Delivery."""

    title = "Local Delivery"

    def open(self) -> None:
        self.mail_log = mail_log_of(self.context)
        self._configure()
        self.root.mkdir(mode=modes.DIRECTORY, parents=True, exist_ok=True)
        self.context.log.event(events.LOCAL_STARTED, REPORT)

    def reload(self) -> None:
        self._configure()

    def close(self) -> None:
        self.mail_log.close()
        self.context.log.event(events.LOCAL_STOPPED, REPORT)

    def _configure(self) -> None:
        context = self.context
        self.mailboxes = Mailboxes.of(context.settings, context.paths.root,
                                      load_routes(context.conf_dir))
        self.root = self.mailboxes.root

    def handle(self, message: Message) -> Disposition:
        return self.handle_many([message])[0]

    def handle_many(self, messages: Sequence[Message]) -> list[Disposition]:
        """All files of a batch are written, then synced, then each folder once."""
        log, works = self.context.log, list[_Work]()
        for message in messages:
            properties = message.properties
            sender = mail.Envelope.of(properties).sender
            log.event(events.LOCAL_DELIVERY_STARTED, TRACE, message_id=message.message_id)
            log.event(events.LOCAL_CREATOR, TRACE, creator=f"<{sender}>")
            log.event(events.LOCAL_MESSAGE_ID, TRACE, message_id=message.message_id)
            works += [self._prepared(message, sender, user, original)
                      for user, original in recipients_of(message, self.queue)]
        self._publish(works)
        return [self._ended(message, [each for each in works if each.message is message])
                for message in messages]

    def _prepared(self, message: Message, sender: str, user: str, original: str) -> _Work:
        """A recipient's file, ready to be written; or what became of it already."""
        work = _Work(message, user, original)
        try:
            work.file = self._file(message, sender, user, original)
        except (BadName, _NoMailbox) as error:
            self.context.log.event(events.LOCAL_RECIPIENT_UNKNOWN, WARNING, recipient=original,
                                   message_id=message.message_id)
            work.end("bounced", "5.1.1", str(error))
        except OSError as error:
            self._failed(work, error)
        return work

    def _file(self, message: Message, sender: str, user: str, original: str) -> NewFile | None:
        maildir, name = Maildir(self.root, user), mailbox_name(user)
        if not maildir.exists():
            problem = self.mailboxes.problem(name)
            if problem:
                raise _NoMailbox(problem)
            maildir.create()
        again = message.redelivered or message.attempts > 0 or message.defers > 0
        first_id, first_ns = _first(message)
        return maildir.prepare(
            file_name(first_id, name, first_ns), (delivery_fields(sender, original), message.body),
            again=again or first_id != message.message_id)

    def _publish(self, works: Sequence[_Work]) -> None:
        waiting = [each for each in works if not each.kind]
        files = [(each, each.file) for each in waiting if each.file is not None]
        for start in range(0, len(files), FILES_MAX):
            some = files[start : start + FILES_MAX]
            errors = publish(durable.current(), [file for _, file in some])
            for (work, _), error in zip(some, errors, strict=True):
                if error is not None:
                    self._failed(work, error)
        for work in waiting:
            if not work.kind:
                self._delivered(work)

    def _delivered(self, work: _Work) -> None:
        work.end("sent", "2.0.0", "delivered to mailbox")
        log, name = self.context.log, mailbox_name(work.user)
        if work.file is None:
            log.event(events.LOCAL_ALREADY_DELIVERED, REPORT, recipient=name,
                      message_id=work.message.message_id)
        log.event(events.LOCAL_RECIPIENT_FINISHED, REPORT, recipient=name,
                  message_id=work.message.message_id)

    def _ended(self, message: Message, works: Sequence[_Work]) -> Disposition:
        properties = message.properties
        self._tell(message, properties, works)
        self.context.log.event(events.LOCAL_DELIVERY_FINISHED, REPORT,
                               message_id=message.message_id)
        return self._disposition(message, properties, works)

    def _failed(self, work: _Work, error: OSError) -> None:
        message = work.message
        full = error.errno in FULL
        reason = "mailbox disk is full" if full else "mailbox cannot be written"
        age_ns = clock.wall_ns() - arrival_ns(message.properties, message.put_time_ns)
        tried = message.defers > 0 or RETRIED in message.properties
        expired = tried and age_ns > self.context.settings.local_expiry_s * clock.NS_PER_S
        self.context.log.event(events.LOCAL_FAILED, ERROR if expired else WARNING, reason=reason,
                               error=str(error), recipient=work.original,
                               message_id=message.message_id)
        if expired:
            work.end("bounced", "4.2.2" if full else "4.4.7", reason)
        else:
            work.end("deferred", "4.2.2" if full else "4.3.0", f"{reason}: {error}")

    def _tell(self, message: Message, properties: Mapping[str, str], fates: Sequence[_Work]
              ) -> None:
        first = mail_id(properties, message.message_id)
        since = delay_s(properties, message.put_time_ns)
        self.mail_log.write(("local", delivery(first, each.original, "local", since, each.status,
                                               each.kind, each.text)) for each in fates)

    def _disposition(self, message: Message, properties: Mapping[str, str],
                     fates: Sequence[_Work]) -> Disposition:
        later = [each for each in fates if each.kind == "deferred"]
        failed = [mail.Failure(each.original, each.status, each.text) for each in fates
                  if each.kind == "bounced"]
        retry_s = float(self.context.settings.local_retry_s)
        if later and len(later) == len(fates):
            return Defer(retry_s, later[0].text)
        kept, new = mail.without_routing(properties), []
        if failed:
            new.append(_copy(message, names.ERRMGR, kept | mail.error_properties(failed), 0.0))
        if later:
            rest = {mail.to_name(self.queue): "\n".join(each.user for each in later),
                    mail.original_name(self.queue): "\n".join(each.original for each in later),
                    RETRIED: "{} {}".format(*_first(message))}
            first = mail.tracing(mail_id(properties, message.message_id),
                                 arrival_ns(properties, message.put_time_ns))
            new.append(_copy(message, self.queue, kept | first | rest, retry_s))
        return Move((), tuple(new)) if new else Done()


@dataclass(slots=True)
class _Work:
    """A recipient of a message, and what became of it: `kind` is sent, deferred or bounced, empty
    until it is known; RFC 3463 status. No file: the message is in the mailbox already."""

    message: Message
    user: str
    original: str
    file: NewFile | None = None
    kind: str = ""
    status: str = ""
    text: str = ""

    def end(self, kind: str, status: str, text: str) -> None:
        """This became of it."""
        self.kind, self.status, self.text = kind, status, text


def _first(message: Message) -> tuple[str, int]:
    """(id, put time) of the message that first tried these mailboxes."""
    first_id, _, since = message.properties.get(RETRIED, "").partition(" ")
    if first_id.isalnum() and since.isascii() and since.isdigit() and len(since) < 20:
        return first_id, int(since)
    return message.message_id, message.put_time_ns


def _copy(message: Message, queue: str, properties: dict[str, str], delay_s: float) -> Outgoing:
    return Outgoing(message.body, queues=(queue,), priority=message.priority,
                    properties=properties, persistent=True, delay_s=delay_s,
                    correlation_id=message.correlation_id)


class _NoMailbox(Exception):
    """The user has no mailbox and none is made."""


def recipients_of(message: Message, queue: str) -> list[tuple[str, str]]:
    """(mailbox, address it came from) for each recipient, each mailbox once."""
    users = mail.lines(message.properties.get(mail.to_name(queue), ""))
    originals = mail.lines(message.properties.get(mail.original_name(queue), ""))
    if not users:
        originals = mail.lines(message.properties.get(mail.TO, ""))
        users = tuple(mail.split_address(address)[0] for address in originals)
    if len(originals) != len(users):
        originals = users
    found: dict[str, tuple[str, str]] = {}
    for user, original in zip(users, originals, strict=True):
        found.setdefault(user.lower(), (user, original))
    return list(found.values()) or [("", "(no recipient)")]


def delivery_fields(sender: str, original: str) -> bytes:
    """The header fields of final delivery, to stand on top of the body."""
    text = f"Return-Path: <{mail.one_line(sender)}>\r\nDelivered-To: {mail.one_line(original)}\r\n"
    return text.encode("utf-8", "replace")


def main(argv: list[str] | None = None) -> int:
    """The program local.delivery; returns its exit code."""
    return run_service("local", LocalDeliveryService, argv)
