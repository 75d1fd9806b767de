"""One word of --where, `FIELD OPERATOR VALUE`, as a term (core.look.terms). See core.look.selection
for what there is. Errors: BadRequest (what is wrong with the word), InputUnreadable."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import numpy as np

from omq.base import sizes
from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest, InputUnreadable
from omq.base.names import escape
from omq.base.sizes import parse_size
from omq.core.look.message_facts import MessageFacts
from omq.core.look.terms import Columns, Node, PayloadTerm, Term
from omq.format.index import EntryState
from omq.format.pool import RecordFlag

_TERM: Final = re.compile(
    r"((?:property|header):[^=!~<>\s]+|[a-z]+)(!=|<=|>=|!~|=|<|>|~)?(.*)", re.DOTALL)
GLUED: Final = re.compile(
    r"((?:property|header):[^=!~<>\s]+|[A-Za-z_$][\w$.]*)(!=|<=|>=|!~|<>|=|<|>|~)")
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_SPANS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STATES: Final = {state.name.lower(): int(state) for state in EntryState if state}
_NUMBERS: Final = {"priority": "e_priority", "attempts": "e_attempts", "retries": "e_retries",
                   "queues": "m_parts", "size": "m_size", "pid": "m_pid", "lsn": "m_lsn"}
_SHORT: Final = "a term is FIELD OPERATOR VALUE, such as size>1M"
_WILD: Final = re.compile(r"\[[^\]]*\]|[*?]")
Needles = tuple[tuple[bytes, ...], ...]  # alternatives, each with all its pieces
_PIECES_MAX: Final = 3  # each costs reading once more who passed those before
_ENCODED: Final = b"=?"  # begins an encoded word (RFC 2047)


@dataclass(slots=True)
class Ids:
    """`id=`: QPoolIds, found before the test (`wanted`, ascending)."""

    texts: list[str]
    wanted: Vector = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    deep: bool = False

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        return among & np.isin(columns.values["m_qpool"], self.wanted)

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> bool:
        return bool(np.isin(columns.values["m_qpool"][row], self.wanted))


@dataclass(frozen=True, slots=True)
class QueueIs(Term):
    """`queue=NAME`, one name: the other queues need not be looked at."""

    name: str = ""


def wrong(word: str, reason: str) -> BadRequest:
    """What is wrong with a word."""
    return BadRequest(reason=f"--where {escape(word)!r}: {reason}")


def term(word: str, *, files: bool = True) -> Node:
    """One word. `files`: who wrote it may have files and the standard input read."""
    match = _TERM.fullmatch(word)
    if match is None:
        raise wrong(word, _SHORT)
    name, operator, value = match[1], match[2] or "", match[3]
    if name.startswith("property:"):
        return _property(name.removeprefix("property:"), operator, value, word)
    if not operator or not value:
        raise wrong(word, _SHORT)
    if name.startswith("header:"):
        field_name = name.removeprefix("header:")
        return _text(lambda facts: [facts.header(field_name)], operator, value, word, in_body=True)
    make = _MAKERS.get(name) or (_number if name in _NUMBERS else None)
    if make is None:
        raise wrong(word, f"there is no field {escape(name)}; there are "
                    f"{', '.join((*_MAKERS, *_NUMBERS))}, property:NAME, header:NAME")
    if make is _ids and not files and (value == "-" or value.startswith("@")):
        raise wrong(word, "here stand ids alone")
    return make(name, operator, value, word)


def _texts(operator: str, value: str, word: str) -> Callable[[str], bool]:
    listed = value.split(",")
    if operator == "=":
        return lambda text: text in listed
    if operator == "!=":
        return lambda text: text not in listed
    if operator == "~":
        return lambda text: any(fnmatchcase(text, each) for each in listed)
    if operator == "!~":
        return lambda text: not any(fnmatchcase(text, each) for each in listed)
    raise wrong(word, "here stand = != ~ or !~")


def _queue(name: str, operator: str, value: str, word: str) -> Node:
    test = _texts(operator, value.upper(), word)

    def mask(columns: Columns) -> Vector:
        good = [number for number, name in enumerate(columns.queues) if test(name)]
        return np.isin(columns.values["e_queue"], good)

    if operator == "=" and "," not in value:
        return QueueIs(mask, name=value.upper())
    return Term(mask)


def _state(name: str, operator: str, value: str, word: str) -> Node:
    for each in value.split(","):
        if operator in ("=", "!=") and each not in _STATES:
            raise wrong(word, f"states are {', '.join(_STATES)}")
    test = _texts(operator, value, word)
    good = [number for name, number in _STATES.items() if test(name)]
    return Term(lambda columns: np.isin(columns.values["e_state"], good))


def _flag(name: str, operator: str, value: str, word: str) -> Node:
    bit = int(RecordFlag.PERSISTENT if name == "persistent" else RecordFlag.REPLAYED)
    if operator != "=" or value not in ("yes", "no"):
        raise wrong(word, f"{name}=yes or {name}=no")
    wanted = value == "yes"
    return Term(lambda columns: (columns.values["m_flags"] & bit != 0) == wanted)


def _age(name: str, operator: str, value: str, word: str) -> Node:
    compare, seconds = _comparison(operator, word), _amount(value, _SPANS, word)
    return Term(lambda columns: compare(
        (columns.now_ns - columns.values["e_submitted"]) // NS_PER_S, seconds))


def _number(name: str, operator: str, value: str, word: str) -> Node:
    if operator in ("=", "!=") and "," in value:
        listed = [_amount(each, {"": 1}, word) for each in value.split(",")]
        wanted = operator == "="
        return Term(lambda columns: np.isin(column_value(columns, name), listed) == wanted)
    compare = _comparison(operator, word)
    amount = _size(value, word) if name == "size" else _amount(value, {"": 1}, word)
    return Term(lambda columns: compare(column_value(columns, name), amount))


def column_value(columns: Columns, name: str) -> Vector:
    """A field that is a number, of all."""
    found = columns.values[_NUMBERS[name]].astype(np.int64)
    if name == "attempts":  # one under way is not counted: EntryRow.attempts
        active = columns.values["e_state"] == int(EntryState.ACTIVE)
        found = np.maximum(0, found - active)
    return found


def _comparison(operator: str, word: str) -> Callable[[Any, Any], Any]:
    if operator not in _COMPARE:
        raise wrong(word, f"here stand {' '.join(_COMPARE)}")
    return _COMPARE[operator]


def _amount(value: str, units: dict[str, int], word: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})([A-Za-z]?)", value)
    if match is None or match[2] not in units:
        shown = " ".join(filter(None, units))
        raise wrong(word, f"a number with {shown}" if shown else "a number")
    return int(match[1]) * units[match[2]]


def _size(value: str, word: str) -> int:
    amount = parse_size(value)
    if amount is None or amount < 0:
        raise wrong(word, f"a size is {sizes.RULE}")
    return amount


def _property(name: str, operator: str, value: str, word: str) -> Node:
    if not operator:
        return PayloadTerm(lambda facts: name in facts.properties, ((name.encode(),),))
    test = _texts(operator, value, word)
    needles: Needles = ()
    if not test(""):  # one that is not there counts as an empty text
        if operator == "=":  # the value stands right after the name
            needles = tuple(((name + each).encode(),) for each in value.split(","))
        elif operator == "~":
            needles = tuple((name.encode(), *_pieces(each, patterned=True, in_body=False))
                            for each in value.split(","))
    return PayloadTerm(lambda facts: test(facts.properties.get(name, "")), needles)


def _text(texts: Callable[[MessageFacts], list[str]], operator: str, value: str, word: str, *,
          in_body: bool = False) -> Node:
    """One of these texts must do; with != and !~ all of them."""
    test = _texts(operator, value, word)
    every = operator in ("!=", "!~")
    needles: Needles = ()
    if not every and not test(""):
        pieces = [_pieces(each, patterned=operator == "~", in_body=in_body)
                  for each in value.split(",")]
        if all(pieces):
            needles = (*pieces, (_ENCODED,)) if in_body else tuple(pieces)
    decide = all if every else any
    return PayloadTerm(lambda facts: decide(test(text) for text in texts(facts) or [""]), needles,
                       in_body)


def _pieces(value: str, *, patterned: bool, in_body: bool) -> tuple[bytes, ...]:
    """Pieces that the text must have, those first that few others will have: with digits, and long.
    A line of a header may be folded at blanks, and shows one where it has more."""
    pieces = _WILD.split(value) if patterned else [value]
    if in_body:
        pieces = [word for piece in pieces for word in piece.split()]
    rare = sorted(set(filter(None, pieces)), reverse=True, key=lambda piece: (
        any(map(str.isdigit, piece)), len(piece), piece))
    return tuple(piece.encode() for piece in rare[:_PIECES_MAX])


def _sender(name: str, operator: str, value: str, word: str) -> Node:
    return _text(lambda facts: [facts.sender], operator, value, word)


def _recipient(name: str, operator: str, value: str, word: str) -> Node:
    return _text(lambda facts: facts.recipients, operator, value, word)


def _subject(name: str, operator: str, value: str, word: str) -> Node:
    return _text(lambda facts: [facts.subject], operator, value, word, in_body=True)


def _ids(name: str, operator: str, value: str, word: str) -> Node:
    if operator != "=":
        raise wrong(word, "here stands =")
    if value == "-":
        return Ids(_lines(sys.stdin))
    if value.startswith("@"):
        try:
            with open(value[1:], encoding="ascii", errors="replace") as file:
                return Ids(_lines(file))
        except OSError as error:
            raise InputUnreadable(file=escape(value[1:]), reason=error.strerror) from error
    return Ids(value.split(","))


def _lines(lines: Iterable[str]) -> list[str]:
    """The first word of each line, so that a listing can be the list."""
    return [line.split()[0] for line in lines if line.split()]


_MAKERS: Final = {
    "queue": _queue, "state": _state, "age": _age, "persistent": _flag, "replayed": _flag,
    "id": _ids, "sender": _sender, "recipient": _recipient, "subject": _subject}
WORDS: Final = frozenset((*_MAKERS, *_NUMBERS))
"""The fields that words have besides property: and header:"""
