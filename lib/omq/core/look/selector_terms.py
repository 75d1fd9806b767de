"""A parsed selector as the tree that is tested on whole queues (core.look.terms).

A comparison of a field with a constant is tested on columns. One of a property with a text lets
pass, in a first step, whose payload has those bytes. All else is asked of each message.

Errors: BadSelector, and those of core.look.where_words for a word.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S
from omq.base.names import message_id_text
from omq.core.look.message_facts import MessageFacts
from omq.core.look.stored import message_id
from omq.core.look.terms import AllOf, AnyOf, Columns, Node, NotOf, known
from omq.core.look.where_words import GLUED, WORDS, Ids, column_value, term, wrong
from omq.core.select.names import delivery_mode, is_field, lookup
from omq.core.select.parser import Both, Condition
from omq.core.select.tokens import unquoted
from omq.core.select.values import Truth, Value, number, truth
from omq.format.index import EntryState
from omq.format.pool import RecordFlag

_ON_COLUMNS: Final = frozenset(
    ("priority", "size", "age", "attempts", "retries", "queues", "pid", "lsn"))
_NUMBERS: Final = _ON_COLUMNS - {"age"}
_BARE: Final = ("TRUE", "FALSE", "NULL")


def word(text: str, at: int, *, files: bool = True) -> tuple[Node, int] | None:
    """The word of --where that begins here, and what is after it; None: none does. `files`: see
    core.look.where_words.term."""
    end = _end(text, at)
    raw = text[at:end]
    match = GLUED.match(raw)
    if match is None:
        return _quoted(raw, end, files=files)
    name, value = match[1], raw[match.end() :]
    if not value or match[2] == "<>":
        return None
    if name in WORDS or name.startswith(("property:", "header:")):
        return term(_plain(raw, text), files=files), end
    if value[:1].isalpha() and value.upper() not in _BARE:
        raise wrong(raw, f"there is no field {name}; put texts in quotes; between two "
                    "names there are blanks")
    return None


def _quoted(raw: str, end: int, *, files: bool) -> tuple[Node, int] | None:
    """A word that is in quotes as a whole, or a property alone."""
    if raw.startswith(("property:", "header:")):
        return term(_plain(raw, raw), files=files), end
    if raw[:1] in ("'", '"') and (inner := GLUED.match(raw[1:])) is not None and (
            inner[1] in WORDS or ":" in inner[1]):
        return term(_plain(raw, raw), files=files), end
    return None


def _end(text: str, at: int) -> int:
    """After the word that begins here: up to a blank or parenthesis that is in no quotes."""
    return next((place for place, each in unquoted(text, at) if each.isspace() or each in "()"),
                len(text))


def _plain(raw: str, text: str) -> str:
    """A word without its quotes."""
    try:
        found = shlex.split(raw)
    except ValueError as error:
        raise wrong(text, str(error)) from error
    return found[0] if len(found) == 1 else raw


def node_of(found: Both[Node] | Condition | Node) -> Node:
    """A parsed selector as a tree of terms."""
    if isinstance(found, Both):
        parts = tuple(node_of(part) for part in found.parts)
        if found.kind == "NOT":
            return NotOf(parts[0])
        return AllOf(parts) if found.kind == "AND" else AnyOf(parts)
    if not isinstance(found, Condition):
        return found
    name, operator, value = found.plain or ("", "", None)
    sign = "!=" if operator == "<>" else operator
    if name in _ON_COLUMNS and type(value) is int and value >= 0:
        return term(f"{name}{sign}{value}")
    if name == "queue" and isinstance(value, str) and sign in ("=", "!=") and value.isalnum():
        return term(f"queue{sign}{value}")
    if operator == "=" and isinstance(value, str) and value and not is_field(name) and (
            name.isidentifier() and "," not in value and number(value) is None
            and truth(value) is None):  # a number may be written in other ways
        return SelectorTerm(found, term(f"property:{name}={value}"))
    return SelectorTerm(found)


def ids_in(node: Node) -> list[Ids]:
    """The lists of ids that it has, which are found before the test."""
    if isinstance(node, Ids):
        return [node]
    parts = node.parts if isinstance(node, AllOf | AnyOf) else (
        [node.part] if isinstance(node, NotOf) else [])
    return [each for part in parts for each in ids_in(part)]


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """A condition that each message is asked. `sieve`: passed by all that hold."""

    condition: Condition
    sieve: Node | None = None
    deep: bool = True

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        return among if self.sieve is None else self.sieve.maybe(columns, among)

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        ask = lookup(_Row(columns, row, facts))
        return known(lambda: self.condition.test(ask), facts)


@dataclass(frozen=True, slots=True)
class _Row:
    """A message of a queue, as a selector asks it."""

    columns: Columns
    row: int
    facts: MessageFacts

    @property
    def texts(self) -> Mapping[str, str]:
        return self.facts.properties

    def header(self, name: str) -> str:
        return self.facts.header(name)

    def field(self, name: str) -> Value:
        if name in _NUMBERS:
            return int(column_value(self.columns, name)[self.row])
        values, row = self.columns.values, self.row
        submitted, flags = int(values["e_submitted"][row]), int(values["m_flags"][row])
        if name == "queue":
            return self.columns.queues[int(values["e_queue"][row])]
        if name == "state":
            return EntryState(int(values["e_state"][row])).name.lower()
        if name == "age":
            return (self.columns.now_ns - submitted) // NS_PER_S
        if name == "timestamp":
            return submitted // 1_000_000
        if name in ("persistent", "delivery_mode"):
            lasting = bool(flags & RecordFlag.PERSISTENT)
            return lasting if name == "persistent" else delivery_mode(persistent=lasting)
        if name == "replayed":
            return bool(flags & RecordFlag.REPLAYED)
        return self._said(name) or None

    def _said(self, name: str) -> str:
        """What only the payload knows; empty: nothing."""
        facts, columns = self.facts, self.columns
        if name == "sender":
            return facts.sender
        if name == "recipient":
            return "\n".join(facts.recipients)
        if name == "subject":
            return facts.subject
        descriptor = facts.stored.descriptor
        if name == "correlation":
            return message_id_text(descriptor.correlation_id) if any(
                descriptor.correlation_id) else ""
        if name == "reply_to":
            return columns.queues[descriptor.reply_to] if (
                0 < descriptor.reply_to < len(columns.queues)) else ""
        assert name == "id"
        return message_id_text(message_id(facts.stored, columns.uuid, int(
            columns.values["m_qpool"][self.row])))
