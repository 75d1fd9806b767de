"""Which messages are meant: the words of `--where`, and how they are tested.

    --where 'queue=LOCAL state=held,deferred priority>=7 size>1M age>2h attempts>0'
    --where 'property:customer=42 and id=@ids.txt'

Terms stand for themselves or with `and` between them; all must hold. A term is a field, an operator
and a value; commas in the value of `=` and `!=` name alternatives.

    queue state                 = !=  and ~ !~ (a pattern with * and ?)
    priority size age attempts  = != < <= > >=
                                size as in omq.conf (64M), age in s m h d w (from s on)
    retries queues pid lsn      the same: deferrals by readers, queues it is on, its submitter, LSN
    persistent replayed         = yes or no
    id                          = QPoolIds or message ids; @FILE: one a line; -: of standard input
    property:NAME               alone: it has one; = != ~ !~

Cheap terms are tested on plain numbers before any record is made; a payload is read only for
`property:`, and last. A message whose payload cannot be read matches no such term.
Errors: BadRequest (what is wrong with the words), InputUnreadable.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from omq.base import sizes
from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest, InputUnreadable, OmqError
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.base.sizes import parse_size
from omq.core.index.message_ids import find_qpool
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView, RawEntry
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState
from omq.format.pool import RecordFlag

Test = Callable[[RawEntry], bool]
_TERM: Final = re.compile(r"(property:[^=!~<>\s]+|[a-z]+)(!=|<=|>=|!~|=|<|>|~)?(.*)", re.DOTALL)
_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_SPANS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STATES: Final = {state.name.lower(): int(state) for state in EntryState if state}
_FEW_IDS: Final = 2000  # up to here looking each up is cheaper than going over everything
_ENTRY: Final = {"priority": 2, "attempts": 4, "retries": 5}
_MESSAGE: Final = {"queues": 3, "size": 5, "pid": 7, "lsn": 11}
_SUBMITTED, _FLAGS = 6, 4


@dataclass(slots=True)
class Selection:
    """Parsed words. `missing`: ids that no message has, filled by `rows`."""

    text: str = ""
    queue: str | None = None  # the one queue that is named, if it is one
    tests: list[Callable[[list[str]], Test]] = field(default_factory=list)
    properties: list[Callable[[dict[str, str]], bool]] = field(default_factory=list)
    ages: list[tuple[Callable[[int, int], bool], int]] = field(default_factory=list)
    ids: list[str] | None = None
    missing: list[str] = field(default_factory=list)

    def rows(self, view: IndexView, paths: SpoolPaths, uuid: bytes, now_ns: int,
             queue: str | None = None) -> Iterator[EntryRow]:
        """The messages on queues that are meant, in the order of hand-out."""
        names = view.queue_names()
        tests = [make(names) for make in self.tests]
        tests += [_age_test(compare, seconds, now_ns) for compare, seconds in self.ages]
        chosen = self.queue if queue is None else queue
        if queue is not None and self.queue not in (None, queue):
            return
        if self.ids is None:
            source: Iterable[RawEntry] = view.raw_entries(chosen)
        else:
            source = self._with_ids(view, paths, uuid, chosen, names)
        found = (view.entry_of(raw, names) for raw in source if all(test(raw) for test in tests))
        yield from self._by_property(found, paths) if self.properties else found

    def _with_ids(self, view: IndexView, paths: SpoolPaths, uuid: bytes, queue: str | None,
                  names: list[str]) -> Iterator[RawEntry]:
        assert self.ids is not None
        wanted: dict[int, bool] = {}  # QPoolId -> it was met
        for text in self.ids:
            qpool = find_qpool(text, uuid, view, paths)
            if qpool is None:
                self.missing.append(text)
            else:
                wanted[qpool] = False
        few = len(wanted) <= _FEW_IDS
        source = (raw for qpool in wanted for raw in view.raw_of_message(qpool)) if few else (
            raw for raw in view.raw_entries(queue) if raw[3][0] in wanted)
        for raw in source:
            wanted[raw[3][0]] = True
            if queue is None or names[raw[1][0]] == queue:
                yield raw
        self.missing += [str(qpool) for qpool, met in wanted.items() if not met]

    def _by_property(self, rows: Iterable[EntryRow], paths: SpoolPaths) -> Iterator[EntryRow]:
        stored = StoredMessages(paths)
        try:
            for row in rows:
                try:
                    properties = stored.read(row.message).properties
                except OmqError:
                    continue  # see the module
                if all(test(properties) for test in self.properties):
                    yield row
        finally:
            stored.close()


def _age_test(compare: Callable[[int, int], bool], seconds: int, now_ns: int) -> Test:
    return lambda raw: compare((now_ns - raw[1][_SUBMITTED]) // NS_PER_S, seconds)


def parse(*texts: str) -> Selection:
    """The selection that several `--where` make together."""
    selection = Selection(" and ".join(text.strip() for text in texts))
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise _wrong(text, str(error)) from error
        for word in words:
            if word != "and":
                _term(selection, word)
    return selection


def _wrong(word: str, reason: str) -> BadRequest:
    return BadRequest(reason=f"--where {escape(word)!r}: {reason}")


def _term(selection: Selection, word: str) -> None:
    match = _TERM.fullmatch(word)
    if match is None:
        raise _wrong(word, "a term is FIELD OPERATOR VALUE, such as size>1M")
    name, operator, value = match[1], match[2] or "", match[3]
    if name.startswith("property:"):
        _property(selection, name.removeprefix("property:"), operator, value, word)
        return
    if not operator or not value:
        raise _wrong(word, "a term is FIELD OPERATOR VALUE, such as size>1M")
    if name == "queue":
        _queue(selection, operator, value.upper(), word)
    elif name == "state":
        _state(selection, operator, value, word)
    elif name == "id":
        _ids(selection, operator, value, word)
    elif name in ("persistent", "replayed"):
        _flag(selection, name, operator, value, word)
    elif name == "age":
        selection.ages.append((_comparison(operator, word), _amount(value, _SPANS, word)))
    elif name in _ENTRY or name in _MESSAGE:
        _number(selection, name, operator, value, word)
    else:
        raise _wrong(word, f"there is no field {escape(name)}; there are queue, state, priority, "
                     "size, age, attempts, retries, queues, pid, lsn, persistent, replayed, id, "
                     "property:NAME")


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
    raise _wrong(word, "here stand = != ~ or !~")


def _queue(selection: Selection, operator: str, value: str, word: str) -> None:
    test = _texts(operator, value, word)
    if operator == "=" and "," not in value:
        selection.queue = value

    def make(names: list[str]) -> Test:
        good = {number for number, name in enumerate(names) if test(name)}
        return lambda raw: raw[1][0] in good

    selection.tests.append(make)


def _state(selection: Selection, operator: str, value: str, word: str) -> None:
    for each in value.split(","):
        if operator in ("=", "!=") and each not in _STATES:
            raise _wrong(word, f"states are {', '.join(_STATES)}")
    test = _texts(operator, value, word)
    good = {number for name, number in _STATES.items() if test(name)}
    selection.tests.append(lambda names: lambda raw: raw[1][1] in good)


def _flag(selection: Selection, name: str, operator: str, value: str, word: str) -> None:
    bit = int(RecordFlag.PERSISTENT if name == "persistent" else RecordFlag.REPLAYED)
    if operator != "=" or value not in ("yes", "no"):
        raise _wrong(word, f"{name}=yes or {name}=no")
    wanted = value == "yes"
    selection.tests.append(lambda names: lambda raw: bool(raw[3][_FLAGS] & bit) == wanted)


def _comparison(operator: str, word: str) -> Callable[[int, int], bool]:
    if operator not in _COMPARE:
        raise _wrong(word, f"here stand {' '.join(_COMPARE)}")
    return _COMPARE[operator]


def _amount(value: str, units: dict[str, int], word: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})([A-Za-z]?)", value)
    if match is None or match[2] not in units:
        shown = " ".join(filter(None, units))
        raise _wrong(word, f"a number with {shown}" if shown else "a number")
    return int(match[1]) * units[match[2]]


def _size(value: str, word: str) -> int:
    amount = parse_size(value)
    if amount is None or amount < 0:
        raise _wrong(word, f"a size is {sizes.RULE}")
    return amount


def _number(selection: Selection, name: str, operator: str, value: str, word: str) -> None:
    if operator in ("=", "!=") and "," in value:
        listed = {_amount(each, {"": 1}, word) for each in value.split(",")}
        wanted = operator == "="
        selection.tests.append(lambda names: lambda raw: (_value(raw, name) in listed) == wanted)
        return
    compare = _comparison(operator, word)
    amount = _size(value, word) if name == "size" else _amount(value, {"": 1}, word)
    selection.tests.append(lambda names: lambda raw: compare(_value(raw, name), amount))


def _value(raw: RawEntry, name: str) -> int:
    if name == "attempts":  # one under way is not counted: EntryRow.attempts
        return max(0, raw[1][4] - (raw[1][1] == EntryState.ACTIVE))
    return raw[1][_ENTRY[name]] if name in _ENTRY else raw[3][_MESSAGE[name]]


def _property(selection: Selection, name: str, operator: str, value: str, word: str) -> None:
    if not operator:
        selection.properties.append(lambda properties: name in properties)
        return
    test = _texts(operator, value, word)
    selection.properties.append(lambda properties: test(properties.get(name, "")))


def _ids(selection: Selection, operator: str, value: str, word: str) -> None:
    if operator != "=":
        raise _wrong(word, "here stands =")
    selection.ids = [] if selection.ids is None else selection.ids
    if value == "-":
        selection.ids += _lines(sys.stdin)
    elif value.startswith("@"):
        try:
            with open(value[1:], encoding="ascii", errors="replace") as file:
                selection.ids += _lines(file)
        except OSError as error:
            raise InputUnreadable(file=escape(value[1:]), reason=error.strerror) from error
    else:
        selection.ids += value.split(",")


def _lines(lines: Iterable[str]) -> list[str]:
    """The first word of each line, so that a listing can be the list."""
    return [line.split()[0] for line in lines if line.split()]
