"""Which messages are meant: the words of `--where`, and how they are tested.

    --where 'queue=LOCAL state=held,deferred priority>=7 size>1M age>2h attempts>0'
    --where 'property:customer=42 and id=@ids.txt'
    --where '(sender=al@example.com or subject~*invoice*) age<1d'

Terms stand for themselves or with `and` between them: all must hold; of what stands on the sides
of `or` one must, and `and` binds closer. Parentheses group. A term is a field, an operator and a
value; commas in the value of `=` and `!=` name alternatives. A value with blanks is quoted within
the words: --where "subject='two words'".

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

Terms on the payload cost reading it. A message whose payload cannot be read matches none of them,
and is named. Damage among bytes that need not be decoded to say that
a message is not meant stays unseen: omqcheck looks for damage.

Errors: BadRequest (what is wrong with the words), InputUnreadable, UnknownQueue, AccessDenied.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.errors import UnknownQueue
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index.message_ids import find_qpool
from omq.core.index.rows import EntryRow
from omq.core.index.view import CHUNK_ROWS, IndexView
from omq.core.look.message_facts import MessageFacts
from omq.core.look.stored import StoredMessages
from omq.core.look.terms import AllOf, AnyOf, Columns, Node, columns_of
from omq.core.look.where_words import Ids, QueueIs, term, wrong

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
                columns = columns_of(view.copies, row.number, paths, now_ns)
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
                if not deep or self.root.holds(columns, row_of[raw[0]], facts):
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


def parse(*texts: str) -> Selection:
    """The selection that several `--where` make together."""
    parts: list[Node] = []
    ids: list[Ids] = []
    for text in texts:
        words = deque(_split(text))
        while words:
            node = _any(words, text, ids)
            parts += node.parts if isinstance(node, AllOf) else [node]
            if words:
                raise wrong(text, "a ) without its (")
    return Selection(" and ".join(text.strip() for text in texts), AllOf(tuple(parts)), ids)


def _split(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="()")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        found = list(lexer)
    except ValueError as error:
        raise wrong(text, str(error)) from error
    # `((` comes out as one word
    return [each for word in found for each in (word if not word.strip("()") else (word,))]


def _any(words: deque[str], text: str, ids: list[Ids]) -> Node:
    sides = [_all(words, text, ids)]
    while words and words[0] == "or":
        words.popleft()
        sides.append(_all(words, text, ids))
    return sides[0] if len(sides) == 1 else AnyOf(tuple(sides))


def _all(words: deque[str], text: str, ids: list[Ids]) -> Node:
    parts: list[Node] = []
    while words and words[0] not in ("or", ")"):
        word = words.popleft()
        if word == "and":
            continue
        if word == "(":
            parts.append(_any(words, text, ids))
            if not words or words.popleft() != ")":
                raise wrong(text, "a ( without its )")
            continue
        parts.append(term(word))
        if isinstance(parts[-1], Ids):
            ids.append(parts[-1])
    if not parts:
        raise wrong(text, "a term is missing")
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

