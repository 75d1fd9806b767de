"""local.delivery: the reader of queue LOCAL; it writes each message into the Maildirs of its users.

Input: `mail.to.LOCAL` names the mailboxes, `mail.orig.LOCAL` the addresses they came from (same
order). A message that was put on LOCAL by hand has only `mail.to`; the local parts are the users.
On top of the body, which is written byte for byte, stand two header fields that final delivery
adds (RFC 5321 section 4.4): Return-Path with the sender, Delivered-To with the address.

What becomes of the message: all mailboxes written: done. A full disk or quota, or any other error
of the disk: deferred as a whole; the mailboxes written by then are found again
(omq.services.mail.maildir) and not written twice. Names that can be no mailbox, or users without
one where mailboxes are not made: one new message to ERRMGR for these, in the same atomic operation
that finishes this one.

Crash argument: killed after the last mailbox was written and before the disposition, the message
comes again, each mailbox is found written, and it is done. Nothing is delivered twice, and nothing
is finished that is not on disk.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable).
"""

from __future__ import annotations

from pathlib import Path

from omq import Outgoing
from omq.base import clock, events, modes, names
from omq.base.errors import BadName
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.maildir import Maildir, file_name, mailbox_name
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move, Service
from omq.storage.durable import FULL


class LocalDeliveryService(Service):
    """One reader process of Local Delivery."""

    title = "Local Delivery"

    def open(self) -> None:
        self.root = maildir_root(self.context.settings.maildir_root, self.context.paths.root)
        self.root.mkdir(mode=modes.DIRECTORY, parents=True, exist_ok=True)
        self.context.log.event(events.LOCAL_STARTED, REPORT)

    def reload(self) -> None:
        self.root = maildir_root(self.context.settings.maildir_root, self.context.paths.root)

    def close(self) -> None:
        self.context.log.event(events.LOCAL_STOPPED, REPORT)

    def handle(self, message: Message) -> Disposition:
        log, envelope = self.context.log, mail.Envelope.of(message.properties)
        log.event(events.LOCAL_DELIVERY_STARTED, REPORT, message_id=message.message_id)
        log.event(events.LOCAL_CREATOR, REPORT, creator=f"<{envelope.sender}>")
        log.event(events.LOCAL_MESSAGE_ID, REPORT, message_id=message.message_id)
        failures: list[mail.Failure] = []
        for user, original in recipients_of(message, self.queue):
            try:
                self._deliver(message, envelope.sender, user, original)
            except (BadName, _NoMailbox) as error:
                log.event(events.LOCAL_RECIPIENT_UNKNOWN, WARNING, recipient=original,
                          message_id=message.message_id)
                failures.append(mail.Failure(original, "5.1.1", str(error)))
            except OSError as error:
                deferred = self._failed(message, original, error)
                if isinstance(deferred, Defer):
                    return deferred
                failures.append(deferred)
        return self._finish(message, failures)

    def _deliver(self, message: Message, sender: str, user: str, original: str) -> None:
        settings, log = self.context.settings, self.context.log
        maildir, name = Maildir(self.root, user), mailbox_name(user)
        if not maildir.exists():
            if not settings.maildir_create:
                raise _NoMailbox(f"there is no mailbox {name} here")
            maildir.create()
        again = message.redelivered or message.attempts > 0 or message.defers > 0
        parts = (delivery_fields(sender, original), message.body)
        written = maildir.deliver(file_name(message.message_id, name, message.put_time_ns), parts,
                                  again=again)
        if not written:
            log.event(events.LOCAL_ALREADY_DELIVERED, REPORT, recipient=name,
                      message_id=message.message_id)
        log.event(events.LOCAL_RECIPIENT_FINISHED, REPORT, recipient=name,
                  message_id=message.message_id)

    def _failed(self, message: Message, original: str, error: OSError) -> Defer | mail.Failure:
        full = error.errno in FULL
        reason = "mailbox disk is full" if full else "mailbox cannot be written"
        settings, age_ns = self.context.settings, clock.wall_ns() - message.put_time_ns
        expired = age_ns > settings.local_expiry_s * clock.NS_PER_S and message.defers > 0
        self.context.log.event(events.LOCAL_FAILED, ERROR if expired else WARNING, reason=reason,
                               error=str(error), recipient=original, message_id=message.message_id)
        if expired:
            return mail.Failure(original, "4.2.2" if full else "4.4.7", reason)
        return Defer(float(settings.local_retry_s), f"{reason}: {error}")

    def _finish(self, message: Message, failures: list[mail.Failure]) -> Disposition:
        self.context.log.event(events.LOCAL_DELIVERY_FINISHED, REPORT,
                               message_id=message.message_id)
        if not failures:
            return Done()
        properties = {**mail.without_routing(message.properties), **mail.error_properties(failures)}
        return Move((), (Outgoing(message.body, queues=(names.ERRMGR,), priority=message.priority,
                                  properties=properties, persistent=True,
                                  correlation_id=message.correlation_id),))


class _NoMailbox(Exception):
    """The user has no mailbox and none is made."""


def maildir_root(setting: str, spool: Path) -> Path:
    """The folder of all mailboxes: the setting, or mail/ in the spool."""
    return Path(setting) if setting else spool / "mail"


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
