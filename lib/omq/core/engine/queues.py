"""Queues are made, changed and removed while the manager runs.

Invariants: 1. a change is judged whole before anything of it happens; 2. its frames are in one
block, so after a crash all of it has happened or nothing; 3. who knew a number under another name
learns so (ipc.server.sessions).

Errors: BadDefinition, UnknownQueue, QueueExists, QueueOfFile, QueueNotEmpty, QueueInUse,
TooManyQueues, WrongKind, SpoolFull.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from omq.base import limits
from omq.base.config import QueueConf
from omq.base.defined_queue import check_keys, check_name, conf_of, keys_of
from omq.base.errors import (
    QueueExists,
    QueueInUse,
    QueueNotEmpty,
    QueueOfFile,
    TooManyQueues,
    UnknownQueue,
    WrongKind,
)
from omq.base.names import SPECIAL_NAMES
from omq.core.engine import durations
from omq.core.engine.manager_notes import Books
from omq.core.engine.queue_book import QueueBook
from omq.core.engine.queue_judge import (
    OWN_KEYS,
    SYSTEM_KEYS,
    judge_alias,
    judge_key,
    judge_lifetime,
    judge_line,
    judge_remote,
    judge_ring,
)
from omq.core.engine.queue_rules import KEEPING
from omq.core.engine.state import Core
from omq.format.definition import LINE_BYTES_MAX, Definition, Kind
from omq.format.poolctrl import definitions_room

NAMING: Final = ("expired_to", "dead_letter")
"""Keys that name another queue which holds messages."""


class Queues(QueueBook):
    """See the module. `forgotten` gets the number of a queue that is gone."""

    def __init__(self, core: Core, books: Books, forgotten: Callable[[int], None]) -> None:
        super().__init__(core, books)
        self._forgotten = forgotten

    def define(self, definition: Definition, *, known: bool = False) -> None:
        """A new queue, or (`known`) another definition of one that is there."""
        name, old = check_name(definition.name), self.definitions.get(definition.name)
        if name in self._file:
            raise QueueOfFile(queue=name)
        if known and old is None:
            raise UnknownQueue(queue=name)
        if (old is not None and not known) or name in self.pauses.lines:
            raise QueueExists(queue=name)
        check_keys(name, definition.keys, (*OWN_KEYS[definition.kind], *SYSTEM_KEYS))
        if old is not None and old.kind is not definition.kind:
            raise WrongKind(queue=name, kind=old.kind.value, reason="a kind does not change")
        if name in self.numbers and not definition.holds:
            raise QueueExists(queue=name)  # it was the file's, and has its messages still
        conf = self._judged(definition)
        definition = _without_itself(definition)
        number = self.numbers.get(name, 0)
        if definition.holds and not number:
            number = self.rows.choose()
            definition = replace(definition, keys={
                **definition.keys, "born": str(self._core.next_qpool)})
        self._core.block.reserve(2, LINE_BYTES_MAX + limits.QUEUE_NAME_BYTES)
        if conf is not None and number:
            if name not in self.numbers:
                self.numbers[name] = self.rows.take(number)
            self.confs[name] = conf
        self._tell(definition)
        if number:
            self._name(name)

    def altered(self, name: str) -> Definition:
        """The definition of a queue that may get another one. QueueOfFile, UnknownQueue."""
        if name in self._file:
            raise QueueOfFile(queue=name)
        if name not in self.definitions:
            raise UnknownQueue(queue=name)
        return self.definitions[name]

    def removable(self, name: str) -> None:
        """Nothing but what is on it, or who reads it, is in the way of `remove`. QueueOfFile,
        UnknownQueue; QueueInUse when another queue names it."""
        if name in self._file or name in SPECIAL_NAMES:
            raise QueueOfFile(queue=name)
        if self.kind(name) is None:
            raise UnknownQueue(queue=name)
        self._unused(name)

    def remove(self, name: str) -> None:
        """A queue is no more. QueueNotEmpty; QueueInUse when another queue or a reader has it."""
        self.removable(name)
        number = self.numbers.get(name, 0)
        if number and self._core.t.q_depth[number]:
            raise QueueNotEmpty(queue=name, messages=self._core.t.q_depth[number])
        if number and (readers := self.rows.readers(number)):
            raise QueueInUse(queue=name, by=f"{readers} readers have it open")
        frames, room = self.pauses.reserve(name)
        self._core.block.reserve(1 + frames, len(name) + room)
        self.pauses.removed(name)
        self._forget_line(name, number)
        self.definitions.pop(name, None)
        self.confs.pop(name, None)
        if number:
            del self.numbers[name]
            self._going.discard(number)
            self.rows.give(number)
            self._forgotten(number)
            self._follow()

    def rename(self, name: str, new: str) -> None:
        """The same queue, with its messages and readers, under another name."""
        old = self._may_leave(name, new)
        if old is None or name in self._file:
            raise QueueOfFile(queue=name)
        self._unused(name)
        moved = replace(old, name=new)
        self._room(moved, *self.pauses.lines_as(name, new))
        frames, more = self.pauses.reserve(name)
        self._core.block.reserve(3 + frames,
                                 LINE_BYTES_MAX + 2 * limits.QUEUE_NAME_BYTES + more)
        del self.definitions[name]
        self._forget_line(name)
        self.pauses.renamed(name, new)
        if old.holds:
            self.numbers[new] = self.numbers.pop(name)
            self.confs[new] = replace(self.confs.pop(name), name=new)
        self._tell(moved)
        if old.holds:
            self._name(new)

    def roll_over(self, name: str, aside: str) -> None:
        """Under `name` there is a new queue, empty and as the old one was; that one is called
        `aside`, takes nothing more, and goes when it is empty."""
        number, conf = self.number(name), self.confs.get(name)
        old = self._may_leave(name, aside)
        if conf is None or name in SPECIAL_NAMES or (old and old.kind is not Kind.LOCAL):
            raise WrongKind(queue=name, kind=old.kind.value if old else "not defined any more",
                            reason="only a local queue is rolled over")
        if self._core.rules[number].drains:
            raise WrongKind(queue=name, kind=Kind.LOCAL.value,
                            reason="it was rolled over: it is drained, and goes when it is empty")
        keys = dict(old.keys) if old is not None else keys_of(conf)
        drained = Definition(aside, Kind.LOCAL, {
            **keys, "put": "inhibited",
            "drains": "yes" if self._core.rules[number].expires else KEEPING})
        paused = self.pauses.lines_as(name, aside)
        self._room(drained, *paused)
        fresh = self.rows.choose()
        self._core.block.reserve(3 + len(paused), LINE_BYTES_MAX * (1 + len(paused))
                                 + 2 * limits.QUEUE_NAME_BYTES)
        self.rows.take(fresh)
        self.numbers[aside], self.numbers[name] = number, fresh
        self.confs[aside] = replace(conf, name=aside, put_allowed=False)
        self._tell(drained)
        for line in paused:  # what an operator held of it stays held, here and there
            self.pauses.pause(line)
        self._name(aside)
        self._name(name)
        self.pauses.apply(name, fresh)

    def pause(self, name: str, key: str, *, resume: bool = False, keyed: bool = True) -> None:
        """Nothing of this key is handed out any more, or (`resume`) it is again. `keyed` False:
        also of a queue without `limit_by`, where the pause waits for that."""
        number = self.number(name)
        self._core.block.reserve(1, LINE_BYTES_MAX)
        if resume:
            self.pauses.resume(name, key)
        else:
            limits = self._core.rules[number].limits
            self.pauses.check(name, keyed=not keyed or (limits is not None and limits.keyed))
            judge_key(name, key)
            self._room(line := self.pauses.line(name, key))
            self.pauses.pause(line)
        self.pauses.apply(name, number)

    def reset(self, number: int) -> None:
        """An empty queue forgets what was on it: high water and counts."""
        t = self._core.t
        assert not t.q_depth[number], "the caller has looked"
        t.q_ever[number] = t.q_processed[number] = 0
        durations.forget(t, number)
        self._forgotten(number)

    def _may_leave(self, name: str, new: str) -> Definition | None:
        """It is there, and the other name is free; its definition, None: it is of the file."""
        check_name(new)
        if self.kind(name) is None:
            raise UnknownQueue(queue=name)
        if self.kind(new) is not None:
            raise QueueExists(queue=new)
        return self.definitions.get(name)

    def _unused(self, name: str) -> None:
        """QueueInUse when another queue names this one."""
        named = [other for other, conf in self.confs.items()
                 if other != name and name in (conf.expired_to, conf.dead_letter)]
        named += [other for other, each in self.definitions.items()
                  if name in each.words("target") or each.keys.get("transmission") == name]
        if named:
            raise QueueInUse(queue=name, by=f"queue {named[0]} names it")

    def _judged(self, definition: Definition) -> QueueConf | None:
        """What holds for its messages, or for those of queues made of it; every error that it can
        have."""
        name, kind = definition.name, definition.kind
        self._room(definition)
        if kind is Kind.ALIAS:
            judge_alias(definition, self.definitions, lambda other: self.kind(other) is not None)
            return None
        if kind is Kind.REMOTE:
            judge_remote(definition, self.definitions)
            return None
        judge_lifetime(definition)
        conf = conf_of(name, definition.keys, self._common, self._known() | {name})
        judge_ring(name, {**self.confs, name: conf})
        return conf

    def _room(self, *definitions: Definition) -> None:
        for each in definitions:
            judge_line(each)
        room = definitions_room(self._settings.dedupe_clients_max)
        used = sum(len(line) + 1 for line in self.lines())
        if used + sum(len(each.line()) + 1 for each in definitions) > room:
            raise TooManyQueues(limit=room, what="bytes of definitions")


def _without_itself(definition: Definition) -> Definition:
    """A queue that names itself names none, also when it has another name one day: a rename and a
    roll over leave what a definition says of others."""
    return replace(definition, keys={
        key: "" if key in NAMING and value == definition.name else value
        for key, value in definition.keys.items()})
