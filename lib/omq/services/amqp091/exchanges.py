"""Exchanges and bindings: a table in memory, and a message on SYSTEM.EXCHANGES for each one that is
durable.

So definitions are as durable as every message, and backups, standbys and restores have them with
the queues that they name. The queue is made with the first of them. A body is JSON:

    {"exchange": "logs", "kind": "topic", "auto_delete": false, "internal": false}
    {"exchange": "logs", "key": "order.*", "queue": "ORDERS"}
    {"exchange": "logs", "key": "order.#", "to": "shop"}       from exchange to exchange

A message's id is a hash of what it defines, so that it can be cancelled by that.

Crash argument: an answer goes out after the put's sync, or after the cancel's. An exchange that
is deleted goes first and its bindings, of it and to it, after it: a death in between leaves
bindings of an exchange that is not there, and `load` cancels these. A death before the answer
leaves the old table or the new one; where several exchanges go (`exchange_changes`), perhaps some
of them.

Invariants: 1. what is in the table and durable is on the disk; 2. a table of which that is not sure
(an error in the middle) is read anew; 3. a binding leads to a queue or to an exchange of the table.
A message comes to each exchange once on its way (`_reached`), however they are bound in a circle,
and to each queue once. Everything here but `load` and what changes the disk
(`_kept`) is for the event loop. Errors: those of put and cancel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from omq.base import names
from omq.base.errors import BadName, NoMessage, QueueExists, UnknownQueue
from omq.base.names import check_queue_name
from omq.ipc.client.connection import Client
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp091.binding_index import Binding, BindingIndex, ByKey, ByTopic, Everything

QUEUE: Final = names.EXCHANGES
"""Its `admin` is the right to declare, delete, bind and unbind."""
DIRECT, TOPIC, FANOUT = KINDS = ("direct", "topic", "fanout")
_INDEXES: Final[dict[str, Callable[[], BindingIndex]]] = {
    DIRECT: ByKey, TOPIC: ByTopic, FANOUT: Everything}
EXCHANGES_MAX, BINDINGS_MAX = 1000, 10_000
NAME_MAX: Final = 255
_ROUTES_MAX: Final = 4096
GIVEN: Final = {"amq.direct": DIRECT, "amq.topic": TOPIC, "amq.fanout": FANOUT}
"""Which the standard wants to be there always (3.1.3)."""


@dataclass(slots=True)
class Exchange:
    """`bound`: each binding, and whether it is durable; `bind` and `unbind` change it."""

    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    bound: dict[Binding, bool] = field(default_factory=dict, init=False)
    _index: BindingIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._index = _INDEXES[self.kind]()

    def bind(self, binding: Binding, *, durable: bool) -> None:
        self.bound[binding] = durable
        self._index.put(binding)

    def unbind(self, binding: Binding) -> None:
        """Nothing, if it is not there."""
        if self.bound.pop(binding, None) is not None:
            self._index.remove(binding)

    def record(self, name: str) -> dict[str, Any]:
        return {"exchange": name, "kind": self.kind, "auto_delete": self.auto_delete,
                "internal": self.internal}

    def meant(self, key: str) -> Collection[Binding]:
        """The bindings by which a message goes on."""
        return self._index.meant(key)


def binding_record(exchange: str, binding: Binding) -> dict[str, Any]:
    """As it is on the disk, and in a file of definitions."""
    place = {"to": binding.to} if binding.to else {"queue": binding.queue}
    return {"exchange": exchange, "key": binding.key, **place}


def binding_of(record: dict[str, Any]) -> Binding:
    """`binding_record` back."""
    return Binding(record["key"], record.get("queue", ""), record.get("to", ""))


class Exchanges:
    """The table. What changes it is `Directory`'s, one change at a time."""

    def __init__(self) -> None:
        self.known: dict[str, Exchange] = {}
        self.loaded = False
        self.odd: list[str] = []  # what makes no sense, until somebody tells of it
        self._routes: dict[tuple[str, str], tuple[str, ...]] = {}

    @property
    def bindings(self) -> int:
        """How many there are."""
        return sum(len(each.bound) for each in self.known.values())

    def changed(self) -> None:
        self._routes.clear()

    def routed(self, exchange: str, key: str) -> tuple[str, ...] | None:
        """Queues of omq; None: there is no such exchange."""
        if exchange not in self.known:
            return None
        queues = self._routes.get((exchange, key))
        if queues is None:
            queues = tuple(dict.fromkeys(self._reached(exchange, key)))
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            self._routes[exchange, key] = queues
        return queues

    def _reached(self, exchange: str, key: str) -> Iterator[str]:
        """Queues that a message gets to; one may come twice. What an exchange does with a key is
        always the same, so each is asked once: a circle ends, and costs what a line does."""
        asked, left = {exchange}, [exchange]
        while left:
            for each in self.known[left.pop()].meant(key):
                if each.queue:
                    yield each.queue
                elif each.to not in asked:
                    asked.add(each.to)
                    left.append(each.to)

    def of_queues(self, queues: Container[str]) -> list[tuple[str, Binding]]:
        """All bindings of these."""
        return [(name, each) for name, exchange in self.known.items() for each in exchange.bound
                if each.queue in queues]

    def take(self, records: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
        """What was read is the table from now on, with what was never on the disk; the bindings
        of exchanges, or to some, that are not there."""
        before = self.known
        found = {name: Exchange(kind) for name, kind in GIVEN.items()}
        bindings: list[dict[str, Any]] = []
        for each in records:
            if each is None:
                continue
            if "kind" in each:
                found[each["exchange"]] = Exchange(
                    each["kind"], auto_delete=each["auto_delete"], internal=each["internal"])
            else:
                bindings.append(each)
        orphans = []
        for each in bindings:
            binding = binding_of(each)
            if each["exchange"] not in found or (binding.to and binding.to not in found):
                orphans.append(each)
            else:
                found[each["exchange"]].bind(binding, durable=True)
        for name, old in before.items():
            if name not in found and not old.durable:
                found[name] = old
            elif name in found:
                for binding, durable in old.bound.items():
                    if not durable:
                        found[name].bind(binding, durable=False)
        for exchange in found.values():  # what is in memory alone may lead to what is gone by now
            for lost in [each for each in exchange.bound if each.to and each.to not in found]:
                exchange.unbind(lost)
        self.known, self.loaded = found, True
        self.changed()
        return orphans


# on the disk, in a thread of the questions

def load(native: Client) -> list[dict[str, Any] | None]:
    """What is there; None: a message that is none of these."""
    try:
        return [_read(row.body) for row in native.browse(QUEUE)]
    except UnknownQueue:
        return []


def keep(native: Client, record: dict[str, Any]) -> None:
    """It is on the disk then, once or twice."""
    message = Outgoing(body=_body(record), persistent=True, message_id=_id(record))
    try:
        native.put(QUEUE, outgoing=message)
    except UnknownQueue:
        with suppress(QueueExists):
            native.queues.define(QUEUE, attempts_max=255, death_delay_s=0,
                                 reason="an exchange was declared, or bound")
        native.forget()
        native.put(QUEUE, outgoing=message)


def drop(native: Client, records: Iterable[dict[str, Any]]) -> None:
    """In their order. MessageBusy: somebody reads SYSTEM.EXCHANGES, which nobody should."""
    for record in records:
        with suppress(NoMessage):
            native.cancel(_id(record))


def _body(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _id(record: dict[str, Any]) -> bytes:
    """Of what is defined, whatever its arguments are."""
    named = [record["exchange"]]
    if "kind" not in record:
        key, queue, to = binding_of(record)
        named += [key, queue, *([to] if to else [])]
    return hashlib.sha256(json.dumps(named).encode()).digest()[:24]


def _read(body: bytes) -> dict[str, Any] | None:
    """Whoever may put there may have put anything."""
    try:
        found = json.loads(body)
        texts = [found["exchange"]]
        if "kind" in found:
            good = found["kind"] in KINDS and {type(found["auto_delete"]),
                                               type(found["internal"])} == {bool}
        else:
            texts.append(found["key"])
            if "to" in found:
                texts.append(found["to"])
                good = bool(found["to"]) and "queue" not in found
            else:
                good = check_queue_name(found["queue"]) == found["queue"]
    except (ValueError, TypeError, KeyError, RecursionError, BadName):
        return None
    short = all(isinstance(each, str) and len(each) <= NAME_MAX for each in texts)
    return found if good and short and found["exchange"] else None
