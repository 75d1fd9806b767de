"""Which messages are meant: the selector of `--where`, and how it is tested.

    --where "customer = '42' AND (priority BETWEEN 5 AND 9 OR NOT region LIKE 'eu-%')"
    --where 'queue=LOCAL state=held,deferred priority>=7 size>1M age>2h attempts>0'
    --where 'property:customer=42 and id=@ids.txt'
    --where '(sender=al@example.com or subject~*invoice*) age<1d'

It is a selector of JMS, a subset of SQL-92, on the fields below, on correlation, reply_to,
timestamp (ms since 1970) and delivery_mode; each other name is a property. Its conditions:

    A = B   <>  !=  <  <=  >  >=        numbers calculated with + - * / ( )
    A [NOT] BETWEEN B AND C             NAME [NOT] IN ('text', 42)
    NAME [NOT] LIKE 'a%_' [ESCAPE '!']  NAME IS [NOT] NULL
    NOT  AND  OR  ( )                   of conditions; NOT binds closest, then AND

Texts are in single quotes, names with blanks in double ones. A property is a text; next to a
number it is the number that it writes. What a message does not say is NULL; what is unknown is not
chosen.

A field that stands together with its operator and value, without blanks between them, is a word:
shorter, and with more that operators ask for. Words need no `and` next to them; commas in the value
of `=` and `!=` name alternatives.

    queue state                 = !=  and ~ !~ (a pattern with * and ?)
    priority size age attempts  = != < <= > >=
                                size as in omq.conf (64M), age in s m h d w (from s on)
    retries queues pid lsn      the same: deferrals by readers, queues it is on, its submitter, LSN
    persistent replayed         = yes or no
    id                          = QPoolIds or message ids; @FILE: one a line; -: of standard input
    property:NAME               alone: it has one; = != ~ !~
    sender recipient subject    = != ~ !~  of a mail's envelope, its subject (or the property), the
                                application that put another message; letters as they are written
    header:NAME                 = != ~ !~  a field of a mail's header, decoded

The last four lines cost reading the message. Of one that cannot be read nobody can say whether it
is meant: it is left out and named. omqcheck looks for damage where nothing had to be read.

Errors: BadSelector (with the place), BadRequest (what is wrong with a word), InputUnreadable,
UnknownQueue, AccessDenied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from omq.base.errors import UnknownQueue
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index.message_ids import find_qpool
from omq.core.index.rows import EntryRow
from omq.core.index.view import CHUNK_ROWS, IndexView
from omq.core.look.message_facts import MessageFacts
from omq.core.look.selector_terms import ids_in, node_of, word
from omq.core.look.stored import StoredMessages
from omq.core.look.terms import AllOf, Columns, Node, columns_of
from omq.core.look.where_words import Ids, QueueIs
from omq.core.select.parser import Parser

__all__ = ["Selection", "parse"]
UNREADABLE_SHOWN: Final = 5


@dataclass(slots=True)
class Selection:
    """Parsed words. `missing`: ids that no message has; `unreadable`: QPoolId -> why its payload
    cannot be read. `rows` fills both."""

    text: str = ""
    root: AllOf = field(default_factory=lambda: AllOf(()))
    ids: list[Ids] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)

    def notes(self) -> Iterator[str]:
        """What the user should know of the rows, once they have been taken."""
        for text in self.missing:
            yield f"there is no message {text}"
        for qpool, why in list(self.unreadable.items())[:UNREADABLE_SHOWN]:
            yield f"whether message {qpool} is meant cannot be said: {why}"
        if len(self.unreadable) > UNREADABLE_SHOWN:
            yield f"... and {len(self.unreadable) - UNREADABLE_SHOWN} more that cannot be read"

    @property
    def queue(self) -> str | None:
        """The one queue that all must be on, if the words name one."""
        return next((part.name for part in self.root.parts if isinstance(part, QueueIs)), None)

    def rows(self, view: IndexView, paths: SpoolPaths, uuid: bytes, now_ns: int,
             queue: str | None = None) -> Iterator[EntryRow]:
        """The messages on queues that are meant, in the order of hand-out."""
        named = self.queue
        chosen = named if queue is None else queue
        queues = [row for row in view.queues() if chosen in (None, row.name)]
        if chosen is not None and not queues:
            raise UnknownQueue(queue=escape(chosen))
        if queue is not None and named not in (None, queue):
            return
        for ids in self.ids:
            self._resolve(ids, view, paths, uuid)
        messages = StoredMessages(paths)
        try:
            for row in queues:
                columns = columns_of(view.copies, row.number, paths, uuid, now_ns)
                yield from self._on(columns, view, messages)
        finally:
            messages.close()

    def _on(self, columns: Columns, view: IndexView, messages: StoredMessages
            ) -> Iterator[EntryRow]:
        found = self.root.maybe(columns, np.ones(columns.count, dtype=bool))
        picked, deep, names = np.flatnonzero(found), self.root.deep, columns.queues
        for first in range(0, len(picked), CHUNK_ROWS):
            some = picked[first : first + CHUNK_ROWS]
            numbers = columns.numbers[some]
            row_of = dict(zip(numbers.tolist(), some.tolist(), strict=True))
            for raw in view.raw_at((numbers, columns.sequences[some])):
                entry = view.entry_of(raw, names)
                facts = MessageFacts(messages, entry.message)
                if not deep or self.root.holds(columns, row_of[raw[0]], facts) is True:
                    yield entry
                elif facts.unreadable:
                    self.unreadable[entry.message.qpool] = facts.unreadable

    def _resolve(self, ids: Ids, view: IndexView, paths: SpoolPaths, uuid: bytes) -> None:
        wanted = {}
        for text in ids.texts:
            qpool = find_qpool(text, uuid, view, paths)
            if qpool is None:
                self.missing.append(text)
            else:
                wanted[qpool] = True
        ids.wanted = np.array(sorted(wanted), dtype=np.uint64)
        there = view.copies.columns_where(
            ("m_qpool",), lambda column: np.isin(column("m_qpool"), ids.wanted))[0]
        self.missing += [str(qpool) for qpool in np.setdiff1d(ids.wanted, there).tolist()]


def parse(*texts: str, files: bool = True) -> Selection:
    """The selection that several `--where` make together. `files`: `id=@FILE` and `id=-` may be
    read; not where the words come from somebody else than the user who runs this."""
    parts: list[Node] = []
    ids: list[Ids] = []
    for text in texts:
        if not text.strip():
            continue
        node = node_of(Parser[Node](text, partial(word, files=files)).parse())
        parts += node.parts if isinstance(node, AllOf) else [node]
        ids += ids_in(node)
    return Selection(" and ".join(text.strip() for text in texts), AllOf(tuple(parts)), ids)
