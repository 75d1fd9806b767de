"""Queues and bindings of kombu, as queues of omq: declared at run time, with a note each.

A durable queue is defined at run time unless queues.conf has it; one that is exclusive, is deleted
with its consumer or expires is a temporary queue, which goes with the connection that declared it,
also when that program is killed. The note of a queue (omq.ipc.client.queues) says what kombu calls
it and how it is bound:

    {"kombu": "celeryev.3c8a", "bound": [["celeryev", "#"]]}

So every program of the instance sees the bindings of the others, and they go with their queues.
What it read is kept for LISTED_S; who finds nothing there looks anew.

Errors: those of omq.queues. A queue of queues.conf has no note: the program that publishes declares
its bindings itself, as Celery does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from omq.base.errors import (
    NoAuthority,
    QueueExists,
    QueueOfFile,
    UnknownQueue,
)
from omq.ipc.client.connection import Client
from omq.tasks.names import queue_name
from omq.tasks.natives import Natives

LISTED_S: Final = 1.0
_KOMBU: Final = "kombu"
Keys = Mapping[str, Any]  # in the words of queues.conf
Row = tuple[str, str, str]  # exchange, routing key, queue of kombu


def _note(queue: str, bound: list[list[str]]) -> str:
    return json.dumps({_KOMBU: queue, "bound": bound}, separators=(",", ":"))


def _read(note: str) -> dict[str, Any]:
    """Of another program: {} for what kombu's is not."""
    try:
        told = json.loads(note) if note else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) and isinstance(told.get(_KOMBU), str) else {}


class Queues:
    """See the module. Of one transport; `keys`: what queues are defined with."""

    def __init__(self, natives: Natives, keys: Keys) -> None:
        self._natives, self._keys = natives, keys
        self._temporary: dict[str, str] = {}  # of kombu -> of omq; this transport's own
        self._owner: Client | None = None  # the connection that these go with
        self._others: dict[str, str] = {}  # temporary ones of the last listing
        self._listed: list[Row] = []
        self._listed_at = -LISTED_S

    # names

    def name(self, queue: str) -> str:
        """What omq calls it."""
        self._look_at_owner()
        return self._temporary.get(queue) or self._others.get(queue) or queue_name(queue)

    def is_temporary(self, queue: str) -> bool:
        """Declared by this transport, and gone with it."""
        self._look_at_owner()
        return queue in self._temporary

    # queues

    def declare(self, queue: str, *, temporary: bool, keys: Keys) -> None:
        """It is there then."""
        self._look_at_owner()
        if not temporary:
            self._define(queue, {**self._keys, **keys})
        elif queue not in self._temporary:
            self._temporary[queue] = self._natives.use(
                lambda native: native.queues.temporary(note=_note(queue, [])))
            self._owner = self._natives.generation

    def _define(self, queue: str, keys: Keys) -> None:
        name = queue_name(queue)
        try:
            self._natives.use(lambda native: native.queues.define(
                name, note=_note(queue, []), reason="declared by kombu", **keys))
        except QueueExists:
            return
        except (NoAuthority, QueueOfFile):
            self._natives.use(lambda native: native.queue_number(name))  # UnknownQueue

    def exists(self, queue: str) -> bool:
        """Whether messages can be put there."""
        name = self.name(queue)
        try:
            self._natives.use(lambda native: native.queues.show(name))
        except UnknownQueue:
            return False
        return True

    def ready(self, queue: str) -> int:
        """Messages that wait on it."""
        name = self.name(queue)
        return int(self._natives.use(lambda native: native.queues.show(name)).facts["ready"])

    def clear(self, queue: str) -> int:
        """Delete what nobody has; how many."""
        name = self.name(queue)
        return self._natives.use(lambda native: native.queues.clear(name, reason="kombu: purge"))

    def delete(self, queue: str) -> None:
        """It and what is on it; that of queues.conf stays, empty."""
        name = self.name(queue)
        try:
            self.clear(queue)
            self._natives.use(lambda native: native.queues.delete(
                name, force=True, reason="deleted by kombu"))
        except (UnknownQueue, QueueOfFile):
            pass  # nothing is left to delete, or nothing that is a program's
        self._temporary.pop(queue, None)
        self._listed_at = -LISTED_S

    def forget(self) -> None:
        """The connection ended, and the temporary queues with it."""
        self._temporary.clear()

    def _look_at_owner(self) -> None:
        """Temporary queues of a connection that has ended are gone."""
        if self._temporary and self._natives.generation is not self._owner:
            self._temporary.clear()

    # bindings

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Written down next to the queue. Two programs may do so at once: who does not find its
        binding afterwards writes it again."""
        name, row = self.name(queue), [exchange, routing_key]
        for _ in range(_TRIES):
            keys = self._natives.use(lambda native: native.queues.show(name)).keys
            bound = _read(keys.get("note", "")).get("bound", [])
            if row in bound:
                return
            note = _note(queue, [*bound, row])
            try:
                self._natives.use(lambda native, note=note: native.queues.alter(  # type: ignore[misc]
                    name, note=note, reason="bound by kombu"))
            except (QueueOfFile, NoAuthority):
                return  # see the module
            self._listed_at = -LISTED_S

    def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        name = self.name(queue)
        try:
            keys = self._natives.use(lambda native: native.queues.show(name)).keys
            bound = _read(keys.get("note", "")).get("bound", [])
            left = [each for each in bound if each != [exchange, routing_key]]
            if left != bound:
                self._natives.use(lambda native: native.queues.alter(
                    name, note=_note(queue, left), reason="unbound by kombu"))
        except (UnknownQueue, QueueOfFile):
            return  # it has no binding any more
        self._listed_at = -LISTED_S

    def bound(self, exchange: str, *, fresh: bool) -> list[Row]:
        """What is bound to an exchange."""
        now = time.monotonic()
        if fresh or now - self._listed_at >= LISTED_S:
            self._list()
            self._listed_at = now
        return [row for row in self._listed if row[0] == exchange]

    def look_for(self, queue: str) -> bool:
        """Whether somebody has a temporary queue that kombu calls so; `name` knows it then."""
        self._list()
        return queue in self._others

    def _list(self) -> None:
        rows: list[Row] = []
        others: dict[str, str] = {}
        for info in self._natives.use(lambda native: native.queues.list()):
            told = _read(info.keys.get("note", ""))
            if not told:
                continue
            if info.kind == "temporary":
                others[told[_KOMBU]] = info.name
            rows += [(exchange, key, told[_KOMBU]) for exchange, key in told.get("bound", [])]
        self._listed, self._others = rows, others


_TRIES: Final = 10
"""Programs that write at the same moment; each look behind finds what was lost."""
