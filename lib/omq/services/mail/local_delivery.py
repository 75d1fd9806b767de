"""local.delivery: the reader of queue LOCAL; it writes each message into the Maildirs of its users.

Input: `mail.to.LOCAL` names the mailboxes, `mail.orig.LOCAL` the addresses they came from (same
order). A message that was put on LOCAL by hand has only `mail.to`; the local parts are the users.
On top of the body, which is written byte for byte, are two header fields that final delivery
adds (RFC 5321 section 4.4): Return-Path with the sender, Delivered-To with the address.

What happens to the message: all mailboxes written: done. A mailbox that cannot be written (disk or
quota full, an error of the disk) is tried again: where it is the only one, the message is deferred;
where others were written, a new message with only the failed ones takes its place on this queue,
delayed, in the same atomic operation. Names that can be no mailbox, and users without one (see
omq.services.mail.mailboxes): one new message to ERRMGR for these, in that operation too.

Crash argument: killed after the last mailbox was written and before the disposition, the message
returns, each mailbox is found written, and it is done. Nothing is delivered twice, and nothing
is finished that is not on disk.

Errors: none leave `handle` but those of reading the body (BodyDamaged, BodyUnavailable).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from omq import Outgoing
from omq.base import clock, events, modes, names
from omq.base.errors import BadName
from omq.base.event_log import ERROR, REPORT, TRACE, WARNING
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import DELIVERED, dsn_requests_of
from omq.services.mail.mail_log import arrival_ns, delay_s, delivery, mail_id, mail_log_of
from omq.services.mail.mailbox_owner import Owner, acting_as, check_root
from omq.services.mail.mailbox_quota import Quotas, told_full
from omq.services.mail.mailbox_rules import MailboxRule
from omq.services.mail.mailboxes import Mailboxes
from omq.services.mail.maildir import Maildir, NewFile, file_name, folder_name, publish
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_address import plain_local
from omq.services.readers.parent import run_service
from omq.services.readers.service import Defer, Disposition, Done, Message, Move, Service
from omq.storage import durable
from omq.storage.durable import FULL

RETRIED: Final = "local.retried"
"""Property of a message with the mailboxes of an earlier one that could not be written: that one's
id and time, from which the names of the files are made, so that nothing is written twice."""


class LocalDeliveryService(Service):
    """One reader process of Local Delivery."""

    title = "Local Delivery"
    _seen: set[str]  # mailboxes that were there for an earlier message of the batch

    def open(self) -> None:
        self.mail_log = mail_log_of(self.context)
        self._configure()
        self.quotas = Quotas(self.context.paths.run)
        mode = modes.PASSAGE if self.mailboxes.routes.mailboxes.has_owners else modes.DIRECTORY
        self.root.mkdir(mode=mode, parents=True, exist_ok=True)
        self.context.log.event(events.LOCAL_STARTED, REPORT)

    def reload(self) -> None:
        self._configure()

    def close(self) -> None:
        self.mail_log.close()
        self.quotas.close()
        self.context.log.event(events.LOCAL_STOPPED, REPORT)

    def _configure(self) -> None:
        context = self.context
        self.mailboxes = Mailboxes.of(context.settings, context.paths.root,
                                      load_routes(context.conf_dir))
        self.root = self.mailboxes.root
        if self.mailboxes.routes.mailboxes.has_owners:
            check_root(self.root, context.conf_dir)

    def handle(self, message: Message) -> Disposition:
        return self.handle_many([message])[0]

    def handle_many(self, messages: Sequence[Message]) -> list[Disposition]:
        """All files of a batch are written, then synced, then each folder once."""
        with self.context.log.together():
            return self._deliver(messages)

    def _deliver(self, messages: Sequence[Message]) -> list[Disposition]:
        log, works = self.context.log, list[list[_Work]]()
        self._seen = set[str]()
        known = [message.properties for message in messages]
        for message, properties in zip(messages, known, strict=True):
            sender = mail.one_line(properties.get(mail.FROM, ""))
            log.event(events.LOCAL_DELIVERY_STARTED, TRACE, message_id=message.message_id)
            log.event(events.LOCAL_CREATOR, TRACE, creator=f"<{sender}>")
            log.event(events.LOCAL_MESSAGE_ID, TRACE, message_id=message.message_id)
            works.append([self._prepared(message, properties, sender, user, original)
                          for user, original in recipients_of(properties, self.queue)])
        self._publish([each for some in works for each in some])
        if self.context.settings.soft_bounce:
            for each in (each for some in works for each in some):
                each.soften()
        self._tell(messages, known, works)
        return [self._disposition(message, properties, some)
                for message, properties, some in zip(messages, known, works, strict=True)]

    def _prepared(self, message: Message, properties: Mapping[str, str], sender: str, user: str,
                  original: str) -> _Work:
        """A recipient's file, ready to be written; or what became of it already."""
        work = _Work(message, properties, user, original)
        try:
            work.file = self._file(work, sender)
        except (BadName, _NoMailbox) as error:
            self.context.log.event(events.LOCAL_RECIPIENT_UNKNOWN, WARNING, recipient=original,
                                   message_id=message.message_id)
            work.end("bounced", "5.1.1", str(error))
        except OSError as error:
            self._failed(work, error)
        return work

    def _file(self, work: _Work, sender: str) -> Posted | None:
        message, name = work.message, folder_name(work.user)
        rule = self.mailboxes.routes.mailboxes.of(name)
        maildir = Maildir(self.root, name, rule.owner)
        parts = (delivery_fields(sender, work.original), message.body)
        with acting_as(rule.owner):
            there = name in self._seen or maildir.exists()
        if not there:
            problem = self.mailboxes.problem(name)
            if problem:
                raise _NoMailbox(problem)
            maildir.create()
        self._seen.add(name)
        again = message.redelivered or message.attempts > 0 or message.defers > 0
        first_id, first_ns = _first(message, work.properties)
        with acting_as(rule.owner):
            file = maildir.prepare(file_name(first_id, name, first_ns), parts,
                                   again=again or RETRIED in work.properties)
        return None if file is None else Posted(maildir, rule, file)

    def _publish(self, works: Sequence[_Work]) -> None:
        waiting = [each for each in works if not each.kind]
        files = [(each, each.file) for each in waiting if each.file is not None]
        errors = publish_all([file for _, file in files], self.quotas)
        for (work, file), error in zip(files, errors, strict=True):
            if error is not None:
                self._failed(work, error)
            if file.rule.quota_bytes:
                told_full(self.context.paths.run, file.maildir.path.name,
                          full=isinstance(error, QuotaExceeded) and not error.never)
        for work in waiting:
            if not work.kind:
                self._delivered(work)

    def _delivered(self, work: _Work) -> None:
        work.end("sent", "2.0.0", "delivered to mailbox")
        log, name = self.context.log, folder_name(work.user)
        if work.file is None:
            log.event(events.LOCAL_ALREADY_DELIVERED, REPORT, recipient=name,
                      message_id=work.message.message_id)
        log.event(events.LOCAL_RECIPIENT_FINISHED, REPORT, recipient=name,
                  message_id=work.message.message_id)

    def _failed(self, work: _Work, error: OSError) -> None:
        message, settings = work.message, self.context.settings
        full, quota = error.errno in FULL, isinstance(error, QuotaExceeded)
        reason = ("mailbox is full" if quota else "mailbox disk is full" if full
                  else "mailbox cannot be written")
        age_ns = clock.wall_ns() - arrival_ns(work.properties, message.put_time_ns)
        tried = message.defers > 0 or RETRIED in work.properties
        expired = tried and age_ns > settings.local_expiry_s * clock.NS_PER_S
        refused = quota and (settings.mailbox_full == "refuse"
                             or (isinstance(error, QuotaExceeded) and error.never))
        level = ERROR if expired or refused else WARNING
        self.context.log.event(events.LOCAL_FAILED, level, reason=reason, error=str(error),
                               recipient=work.original, message_id=message.message_id)
        if refused:
            work.end("bounced", "5.2.2", f"{reason}: {error}")
        elif expired:
            work.end("bounced", "4.2.2" if full else "4.4.7", reason)
        else:
            work.end("deferred", "4.2.2" if full else "4.3.0", f"{reason}: {error}")

    def _tell(self, messages: Sequence[Message], known: Sequence[Mapping[str, str]],
              works: Sequence[Sequence[_Work]]) -> None:
        """The lines of a batch, with one write."""
        lines = list[tuple[str, str]]()
        for message, properties, some in zip(messages, known, works, strict=True):
            first = properties.get(mail.ID) or message.message_id
            first, since = mail_id(properties, first), delay_s(properties, message.put_time_ns)
            lines += [("local", delivery(first, each.told[0], "local", since, each.status,
                                         each.kind, each.text, each.told[1])) for each in some]
            self.context.log.event(events.LOCAL_DELIVERY_FINISHED, REPORT,
                                   message_id=message.message_id)
        self.mail_log.write(lines)

    def _disposition(self, message: Message, properties: Mapping[str, str],
                     fates: Sequence[_Work]) -> Disposition:
        later = [each for each in fates if each.kind == "deferred"]
        failed = [mail.Failure(each.original, each.status, each.text) for each in fates
                  if each.kind == "bounced"]
        failed += _wanted(properties, fates)
        retry_s = float(self.context.settings.local_retry_s)
        if later and len(later) == len(fates):
            return Defer(retry_s, later[0].text)
        kept, new = mail.without_routing(properties), []
        if failed:
            new.append(_copy(message, names.ERRMGR, kept | mail.error_properties(failed), 0.0))
        if later:
            rest = {mail.to_name(self.queue): "\n".join(each.user for each in later),
                    mail.original_name(self.queue): "\n".join(each.original for each in later),
                    RETRIED: "{} {}".format(*_first(message, properties))}
            first = mail.tracing(mail_id(properties, message.message_id),
                                 arrival_ns(properties, message.put_time_ns))
            new.append(_copy(message, self.queue, kept | first | rest, retry_s))
        return Move((), tuple(new)) if new else Done()


@dataclass(slots=True)
class _Work:
    """A recipient of a message, and what became of it: `kind` is sent, deferred or bounced, empty
    until it is known; RFC 3463 status. No file: the message is in the mailbox already."""

    message: Message
    properties: Mapping[str, str]
    user: str
    original: str
    file: Posted | None = None
    kind: str = ""
    status: str = ""
    text: str = ""

    @property
    def told(self) -> tuple[str, str]:
        """(who has it, the address that led there if that is of another name) for mail.log."""
        local = plain_local(mail.split_address(self.original)[0])
        own = not self.user or self.user.partition("@")[0] == local.lower()
        return (self.original, "") if own else (self.user, self.original)

    def end(self, kind: str, status: str, text: str) -> None:
        """This became of it."""
        self.kind, self.status, self.text = kind, status, text

    def soften(self) -> None:
        """What is for good is for now."""
        if self.kind == "bounced":
            self.end("deferred", f"4{self.status[1:]}", self.text)


def _wanted(properties: Mapping[str, str], fates: Sequence[_Work]) -> list[mail.Failure]:
    """Deliveries that the sender asked to be told of (NOTIFY=SUCCESS, RFC 3461)."""
    dsn_requests = dsn_requests_of(properties) if properties.get(mail.FROM) else {}
    return [mail.Failure(each.original, each.status, each.text, "", DELIVERED) for each in fates
            if each.kind == "sent" and each.original in dsn_requests
            and dsn_requests[each.original].wants(DELIVERED)]


def _first(message: Message, properties: Mapping[str, str]) -> tuple[str, int]:
    """(id, put time) of the message that first tried these mailboxes."""
    first_id, _, since = properties.get(RETRIED, "").partition(" ")
    if first_id.isalnum() and since.isascii() and since.isdigit() and len(since) < 20:
        return first_id, int(since)
    return message.message_id, message.put_time_ns


def _copy(message: Message, queue: str, properties: dict[str, str], delay_s: float) -> Outgoing:
    return Outgoing(message.body, queues=(queue,), priority=message.priority,
                    properties=properties, persistent=True, delay_s=delay_s,
                    correlation_id=message.correlation_id)


class _NoMailbox(Exception):
    """The user has no mailbox and none is made."""


def recipients_of(properties: Mapping[str, str], queue: str) -> list[tuple[str, str]]:
    """(mailbox, address it came from) for each recipient, each mailbox once."""
    users = mail.lines(properties.get(mail.to_name(queue), ""))
    originals = mail.lines(properties.get(mail.original_name(queue), ""))
    if not users:
        originals = mail.lines(properties.get(mail.TO, ""))
        users = tuple(plain_local(mail.split_address(address)[0]) for address in originals)
    if len(originals) != len(users):
        originals = users
    found: dict[str, tuple[str, str]] = {}
    for user, original in zip(users, originals, strict=True):
        found.setdefault(user.lower(), (user, original))
    return list(found.values()) or [("", "(no recipient)")]


def delivery_fields(sender: str, original: str) -> bytes:
    """The header fields of final delivery, to go on top of the body."""
    text = f"Return-Path: <{mail.one_line(sender)}>\r\nDelivered-To: {mail.one_line(original)}\r\n"
    return text.encode("utf-8", "replace")


def main(argv: list[str] | None = None) -> int:
    """The program local.delivery; returns its exit code."""
    return run_service("local", LocalDeliveryService, argv)


FILES_MAX: Final = 64
"""Open at once."""


class QuotaExceeded(OSError):
    """The mailbox has no room for a file; `never`: it would have none if it were empty."""

    def __init__(self, size: int, quota: int) -> None:
        super().__init__(errno.EDQUOT, f"no room for {size} bytes, the quota is {quota}")
        self.never = size > quota


@dataclass(frozen=True, slots=True)
class Posted:
    """A file for a mailbox."""

    maildir: Maildir
    rule: MailboxRule
    file: NewFile


def publish_all(items: Sequence[Posted], quotas: Quotas) -> list[OSError | None]:
    """Bring all of them in; what went wrong with each.

    Each owner's files are written, synced and renamed together, acting as he; those of a mailbox
    with a quota while it is locked against other deliveries. A file that finds no room is refused,
    the others go on. Crash argument: that of omq.services.mail.maildir; a lock ends with its
    process."""
    errors: list[OSError | None] = [None] * len(items)
    owners: dict[Owner | None, list[int]] = {}
    for number, item in enumerate(items):
        owners.setdefault(item.rule.owner, []).append(number)
    limited = {item.maildir.path.name for item in items if item.rule.quota_bytes}
    with ExitStack() as held:
        try:
            held.enter_context(quotas.locked(limited))
        except OSError as error:  # of the spool's disk: these wait, the others do not
            errors = [error if item.rule.quota_bytes else None for item in items]
        for owner, numbers in owners.items():
            with acting_as(owner):
                _publish(items, numbers, quotas, errors)
    return errors


def _publish(items: Sequence[Posted], numbers: Sequence[int], quotas: Quotas,
             errors: list[OSError | None]) -> None:
    for number in numbers:
        errors[number] = errors[number] or _refusal(items[number], quotas)
    ready = [number for number in numbers if errors[number] is None]
    for start in range(0, len(ready), FILES_MAX):
        some = ready[start : start + FILES_MAX]
        found = publish(durable.current(), [items[number].file for number in some])
        for number, error in zip(some, found, strict=True):
            errors[number] = error
    for maildir in {items[number].maildir.path: items[number].maildir for number in numbers
                    if items[number].rule.quota_bytes}.values():
        whole = all(errors[number] is None for number in ready
                    if items[number].maildir.path == maildir.path)
        with suppress(OSError):  # then it is counted anew
            quotas.delivered(maildir.path, whole=whole)


def _refusal(item: Posted, quotas: Quotas) -> OSError | None:
    quota, size = item.rule.quota_bytes, item.file.size
    try:
        if quota and (size > quota or not quotas.reserve(item.maildir.path, size, quota)):
            return QuotaExceeded(size, quota)
    except OSError as error:
        return error
    return None
