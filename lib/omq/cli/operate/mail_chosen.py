"""Which mails `omq mail` means: by id, sender, recipient, queue, age and state, and what they are.

A mail is a message with an envelope; what a program put for itself is none, and never chosen. Its
recipients are those of the queue that it is on (`mail.orig.QUEUE`, the addresses as they were
submitted), as mailq shows them: one mail may be several messages, each for some of its recipients.
An id is that of mailq, mail.log and the reply to a client (`mail.id`, of all messages that were
made of a mail), a message id, or a QPoolId. Patterns have `*` and `?`; letters have no case.

What the index has is asked first, of a whole queue at a time; the envelope of each that is left is
read, one after the other, so memory does not depend on their number. What cannot be read is not
chosen, and named (`notes`).

Errors: BadRequest; those of core.look.selection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from omq.base.clock import wall_ns
from omq.base.errors import AccessDenied, OmqError
from omq.base.names import IDEL_NAME, escape
from omq.base.paths import SpoolPaths
from omq.core.index.message_ids import known_qpool
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.look.message_facts import MessageFacts
from omq.core.look.selection import Selection
from omq.core.look.stored import Stored, StoredMessages, message_id
from omq.core.look.terms import AllOf, AnyOf, Node, PayloadTerm
from omq.core.look.where_words import Ids, term
from omq.services.mail import mail_message as mail

NULL_SENDER: Final = "<>"
_AGE: Final = re.compile(r"(<=|>=|<|>)?(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MailFilter:
    """What was asked for; what is empty leaves nobody out. `age`: `2h` (or older), `<2h`."""

    ids: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    age: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """One of them, on one queue."""

    entry: EntryRow
    mail_id: str
    stored: Stored
    recipients: tuple[str, ...]

    @property
    def sender(self) -> str:
        return self.stored.properties.get(mail.FROM, "")


@dataclass(slots=True)
class Chosen:
    """Mails that are wanted; `rows` fills the rest."""

    wanted: MailFilter
    missing: list[str] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)

    def rows(self, view: IndexView, paths: SpoolPaths, uuid: bytes) -> Iterator[Mail]:
        """In the order of hand-out, queue by queue."""
        ids = Ids(list(self.wanted.ids))
        selection = Selection(root=AllOf(tuple(_nodes(self.wanted, ids))),
                              ids=[ids] if ids.texts else [])
        seen: set[str] = set()
        messages = StoredMessages(paths)
        try:
            for row in selection.rows(view, paths, uuid, wall_ns()):
                found = self._mail(row, messages, uuid)
                if found is not None:
                    seen.add(found.mail_id)
                    yield found
        finally:
            messages.close()
        self.unreadable |= selection.unreadable
        # The first message of a mail, whose id has its QPoolId, may be gone, and others there.
        first = {str(known_qpool(each, uuid)): each for each in ids.texts}
        self.missing += [each for each in selection.missing if first.get(each, each) not in seen]

    def notes(self) -> Iterator[str]:
        """What the user should know of the rows, once they have been taken."""
        return Selection(missing=[escape(each) for each in self.missing],
                         unreadable=self.unreadable).notes()

    def _mail(self, row: EntryRow, messages: StoredMessages, uuid: bytes) -> Mail | None:
        if row.queue == IDEL_NAME:
            return None
        try:
            stored = messages.read(row.message)
        except AccessDenied:
            raise  # "there is none" would be a guess
        except OmqError as error:
            self.unreadable[row.message.qpool] = str(error)
            return None
        properties = stored.properties
        if mail.FROM not in properties:
            return None
        to = recipients_on(row.queue, properties)
        sender = properties[mail.FROM] or NULL_SENDER
        if not (_one_of([sender], self.wanted.senders) and _one_of(to, self.wanted.recipients)):
            return None
        return Mail(row, properties.get(mail.ID) or message_id_of(stored, uuid, row), stored, to)


def recipients_on(queue: str, properties: dict[str, str]) -> tuple[str, ...]:
    """Those for whom the message is on this queue."""
    return (mail.lines(properties.get(mail.original_name(queue), ""))
            or mail.lines(properties.get(mail.to_name(queue), ""))
            or mail.lines(properties.get(mail.TO, ""))
            or mail.lines(properties.get(mail.ERROR_TO, "")))


def message_id_of(stored: Stored, uuid: bytes, row: EntryRow) -> str:
    """As clients see it."""
    return message_id(stored, uuid, row.message.qpool).hex()


def _one_of(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether one of these is meant; without patterns all are."""
    wanted = [each.casefold().replace("[", "[[]") for each in patterns]  # [192.0.2.1] is a host
    return not wanted or any(fnmatchcase(text.casefold(), pattern)
                             for text in texts for pattern in wanted)


def _nodes(wanted: MailFilter, ids: Ids) -> Iterator[Node]:
    if wanted.queues:
        yield term(f"queue={','.join(wanted.queues)}")
    if wanted.states:
        yield term(f"state={','.join(wanted.states)}")
    if wanted.age:
        operator, amount = _AGE.fullmatch(wanted.age).groups()  # type: ignore[union-attr]
        yield term(f"age{operator or '>='}{amount}")
    if ids.texts:
        listed = frozenset(ids.texts)

        def of_a_mail(facts: MessageFacts) -> bool:
            return facts.properties.get(mail.ID) in listed

        yield AnyOf((ids, PayloadTerm(of_a_mail, tuple((each.encode(),) for each in ids.texts))))
