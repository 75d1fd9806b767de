"""Queues made, changed and removed beside the work on them: the engine's book of queues, through
the plane that answers clients, against one in plain dictionaries.

The table of queues is small here, so numbers are soon used again. What a queue's keys mean is
judged by the reference as ever: it has the rules of the engine once they say what the book says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omq.base import errors
from omq.base.config import QueueConf
from omq.core.engine.operate import Action, Order
from omq.core.engine.operate import Item as Targeted
from omq.core.engine.queue_rules import KEEPING, UNLIMITED
from omq.core.engine.state import POISON, SPECIAL_QUEUES
from omq.core.load.recovery import Recovered
from omq.ipc.server.open_queues import Opening
from omq.ipc.server.queue_plane import QueuePlane
from omq.ipc.server.sessions import Session
from tests.model.disk import Cut
from tests.model.driver import READERS, WIDE, A, B, C, World, encoded
from tests.model.instance import NS, Client, Instance
from tests.model.reference import ACTIVE, Draft, Refusal

ROWS: Final = 30
"""Four numbers are left beside those of the file."""
NAMES: Final = ("R0", "R1", "R2", "R3", "R4", "R5")
KEYS: Final = ("max_depth", "put", "get", "attempts_max", "lease_s", "expiry_max_s", "expired_to",
               "dead_letter", "note")
FILE: Final = {conf.name: conf for conf in (
    QueueConf("A", 1 << 20, 1 << 20, expired_to="W6", retry_delay_ms=3_000, retry_max_s=10,
              retry_backoff="exponential", dedupe_s=40, dedupe_keys_max=3),
    QueueConf("B", 1 << 20, 1 << 20, attempts_max=3, death_delay_s=5, lease_s=20,
              retry_backoff="linear", retry_max_s=100, dedupe_s=4000, duplicates="refused",
              dedupe_keys_max=3),
    QueueConf("C", 8, 400, attempts_max=1, death_delay_s=0, expiry_max_s=50, dead_letter="W7"),
    *(QueueConf(f"W{queue}", 1 << 20, 1 << 20) for queue in WIDE))}
NUMBERS: Final = {"A": A, "B": B, "C": C} | {f"W{queue}": queue for queue in WIDE}
Keys = dict[str, str]


def normal(name: str, keys: Keys) -> Keys:
    """Who names itself names none."""
    return {key: "" if key in ("expired_to", "dead_letter") and value == name else value
            for key, value in keys.items()}


@dataclass
class Book:
    """What queues there are."""

    numbers: dict[str, int] = field(default_factory=lambda: dict(NUMBERS))
    keys: dict[str, Keys] = field(default_factory=dict)  # of those made at run time
    drains: dict[str, str] = field(default_factory=dict)

    def target(self, name: str, key: str) -> str:
        if name in FILE:
            return str(getattr(FILE[name], key))
        return self.keys.get(name, {}).get(key, "")

    def named(self) -> set[str]:
        """Those that others name."""
        return {target for name in self.numbers for key in ("expired_to", "dead_letter")
                if (target := self.target(name, key)) and target != name}

    def rules(self, name: str) -> dict[str, object]:
        """What the engine must know of a queue that was made at run time."""
        keys = self.keys[name]
        dead_letter = self.target(name, "dead_letter")
        return {
            "name": name, "max_depth": int(keys.get("max_depth", "0")) or UNLIMITED,
            "put_allowed": keys.get("put") != "inhibited",
            "get_allowed": keys.get("get") != "inhibited",
            "attempts_max": int(keys.get("attempts_max", "3")),
            "lease_ns": int(keys.get("lease_s", "0")) * NS,
            "expiry_ns": int(keys.get("expiry_max_s", "0")) * NS,
            "expired_to": self.numbers.get(self.target(name, "expired_to"), 0),
            "dead_letter": self.numbers[dead_letter] if dead_letter else POISON,
            "expires": name not in self.named() and self.drains.get(name) != KEEPING,
            "drains": name in self.drains}

    def check_keys(self, name: str, keys: Keys) -> Refusal:
        """Whom it names."""
        targets = [keys[key] for key in ("expired_to", "dead_letter") if keys.get(key)]
        if any(target not in {*self.numbers, name} for target in targets):
            return errors.BadDefinition
        at, seen = normal(name, keys).get("dead_letter", ""), {name}
        while at:
            if at in seen:
                return errors.BadDefinition
            seen.add(at)
            at = self.target(at, "dead_letter")
        return None


class DefiningInstance(Instance):
    """Its queues are those of a file, and what the spool says was made at run time."""

    rows = ROWS

    def start(self) -> Recovered:
        found = super().start()
        self.plane = QueuePlane(self.server, self.settings, self.log, self._answered)
        self.answer: dict[str, Any] = {}
        return found

    def start_queues(self, found: Recovered) -> None:
        known = {number: name for name, number in NUMBERS.items()} | found.queues
        self.changes = self.engine.queues.start(FILE, {}, self.settings, known, found.definitions)
        assert (self.changes.taken_over, self.changes.unusable) == ([], [])
        self.follow()

    def follow(self) -> None:
        """The reference has this dictionary."""
        self.rules.clear()
        self.rules.update(self.core.rules)

    def _answered(self, _session: Session, answer: dict[str, Any]) -> None:
        self.answer = answer


class DefinedWorld(World):
    """See the module."""

    readers = (*READERS, (A, False), (B, False))
    instance: DefiningInstance

    def __init__(self, root: Path) -> None:
        self.book = Book()
        self._instead: Book | None = None  # after a death: this, or `book`
        self._opened: dict[tuple[int, int], str] = {}  # by session and number: the name it knows
        self._may: set[tuple[int, int]] = set()
        super().__init__(root)

    def make_instance(self, root: Path) -> Instance:
        return DefiningInstance(root, [])

    def verify(self) -> None:
        queues, book = self.instance.engine.queues, self.book
        specials = {name: number for number, name in SPECIAL_QUEUES.items()}
        assert queues.numbers == book.numbers | specials
        said = {name: {key: value for key, value in each.keys.items()
                       if key not in ("born", "drains")}
                for name, each in queues.definitions.items()}
        assert said == book.keys
        for name in book.keys:
            rules = self.instance.core.rules[book.numbers[name]]
            told = book.rules(name)
            found = {key: getattr(rules, key) for key in told}
            assert found == told, (found, told)
        super().verify()

    def _started(self, *, clean: bool) -> None:
        self._opened.clear()
        self._may.clear()
        if self._instead is not None:
            queues, new = self.instance.engine.queues, self._instead
            said = {name: {key: value for key, value in each.keys.items()
                           if key not in ("born", "drains")}
                    for name, each in queues.definitions.items()}
            if said == new.keys and new.numbers.keys() <= queues.numbers.keys():
                chosen = {name: queues.numbers[name]
                          for name, number in new.numbers.items() if number < 0}
                for number in chosen.values():  # by the manager that died
                    self._check_number(number)
                new.numbers |= chosen
                self.book = new
            self._instead = None
        super()._started(clean=clean)

    # commands

    def check(self, do: str, name: str, to: str, keys: Keys) -> Refusal:
        """Why the book refuses a command, but for want of numbers."""
        return getattr(self, f"_check_{do}")(name, to, keys)  # type: ignore[no-any-return]

    def _check_define(self, name: str, _: str, keys: Keys) -> Refusal:
        if name in FILE:
            return errors.QueueOfFile
        return errors.QueueExists if name in self.book.keys else self.book.check_keys(name, keys)

    def _check_alter(self, name: str, _: str, keys: Keys) -> Refusal:
        if name in FILE:
            return errors.QueueOfFile
        return self.book.check_keys(name, keys) if name in self.book.keys else errors.UnknownQueue

    def _check_rename(self, name: str, to: str, _: Keys) -> Refusal:
        if name not in self.book.numbers:
            return errors.UnknownQueue
        if to in self.book.numbers:
            return errors.QueueExists
        if name in FILE:
            return errors.QueueOfFile
        return errors.QueueInUse if name in self.book.named() else None

    def _check_roll_over(self, name: str, to: str, _: Keys) -> Refusal:
        if name not in self.book.numbers:
            return errors.UnknownQueue
        if to in self.book.numbers:
            return errors.QueueExists
        return errors.WrongKind if name in self.book.drains else None

    def _check_delete(self, name: str, _: str, __: Keys) -> Refusal:
        if name in FILE:
            return errors.QueueOfFile
        if name not in self.book.numbers:
            return errors.UnknownQueue
        if name in self.book.named():
            return errors.QueueInUse
        number = self.book.numbers[name]
        if self.model.on(number):
            return errors.QueueNotEmpty
        return errors.QueueInUse if self._read(number) else None

    def _read(self, number: int) -> bool:
        return any(client.queue == number for client in self.clients)

    def _after(self, do: str, name: str, to: str, keys: Keys) -> Book:
        """The book when it is done; -1: a number that only the engine knows."""
        book = deepcopy(self.book)
        if do == "define":
            book.numbers[name], book.keys[name] = -1, normal(name, keys)
        elif do == "alter":
            book.keys[name] = normal(name, keys)
        elif do == "delete":
            del book.numbers[name], book.keys[name]
            book.drains.pop(name, None)
        elif do == "rename":
            book.numbers[to], book.keys[to] = book.numbers.pop(name), book.keys.pop(name)
            if name in book.drains:
                book.drains[to] = book.drains.pop(name)
        else:
            expires = self.book.rules(name)["expires"]
            book.numbers[to], book.numbers[name] = book.numbers[name], -1
            book.keys[to] = {**book.keys[name], "put": "inhibited"}
            book.drains[to] = "yes" if expires else KEEPING
        return book

    def _ask(self, do: str, name: str, to: str, keys: Mapping[str, str | None],
             refused: list[errors.OmqError]) -> Callable[[], None]:
        def ask() -> None:
            try:
                self.instance.plane.queue(self.clients[0].live, {
                    "do": do, "queue": name, "to": to, "keys": dict(keys)})
            except errors.OmqError as error:
                refused.append(error)
        return ask

    def command(self, do: str, name: str, to: str, keys: Keys, cut: int | None = None,
                keep: Callable[[int], int] = lambda count: count) -> None:
        """define, alter, rename, roll_over or delete; the manager may die of it."""
        refusal, refused = self.check(do, name, to, keys), list[errors.OmqError]()
        said: dict[str, str | None] = dict(keys)
        if do == "alter":
            said = {key: keys.get(key) for key in KEYS}
        after = None if refusal else self._after(do, name, to, keys)
        self.model.wall, self.model.mono = self._clock
        self._last_lsn = self.instance.core.block.first_lsn - 1
        self.disk.cut = cut if after is not None else None
        try:
            self.group(self._ask(do, name, to, said, refused))
        except Cut:
            self.disk.die(keep)
            self._instead = after
            self._start(clean=False)
            self._return()
            return
        self.disk.cut = None
        if refused and isinstance(refused[0], errors.TooManyQueues):
            assert not self._free(), "a number is free"
        elif after is None:
            assert [type(error) for error in refused] == [refusal]
        else:
            assert refused == []
            self._adopt_book(after)
        self.instance.follow()
        self.finish()

    def _free(self) -> set[int]:
        """Numbers that a new queue could have."""
        origins = {item.origin for item in self.model.items.values()}
        return set(range(A, ROWS)) - set(self.book.numbers.values()) - origins

    def _check_number(self, number: int) -> None:
        assert number in self._free(), f"{number} is a queue's, or where a message comes from"

    def _adopt_book(self, after: Book) -> None:
        """It is done: who had another name open is told so."""
        there = self.instance.engine.queues.numbers
        for name, number in after.numbers.items():
            if number < 0:
                self._check_number(there[name])
                after.numbers[name] = there[name]
        names = {number: name for name, number in self.book.numbers.items()}
        now = {number: name for name, number in after.numbers.items()}
        self._may = {pair for pair in self._may if names.get(pair[1]) == now.get(pair[1])}
        self.book = after

    def clear(self, name: str) -> None:
        """What is there and nobody has is deleted."""
        refused: list[errors.OmqError] = []
        number = self.book.numbers.get(name, 0)
        self.group(self._ask("clear", name, "", {}, refused))
        if not number:
            assert [type(error) for error in refused] == [errors.UnknownQueue]
            return
        assert refused == []
        cleared = 0
        for item, place in self.model.on(number):
            order = Order(Action.DELETE, (Targeted(item.qpool, number),), b"{}")
            if place.state is not ACTIVE and self.model.refusal(order, item.qpool, number) is None:
                self.model.operate(order, item.qpool, number)
                cleared += 1
        assert self.instance.answer["cleared"] == cleared
        self.finish()

    def truncate(self, client: Client, name: str) -> None:
        """By one who reads it, when it is empty and nobody else has put there."""
        number, refused = self.book.numbers.get(name, 0), list[errors.OmqError]()

        def ask() -> None:
            try:
                self.instance.plane.queue(client.live, {"do": "truncate", "queue": name})
            except errors.OmqError as error:
                refused.append(error)

        self.group(ask)
        own = client.live.party.client
        if not number:
            assert [type(error) for error in refused] == [errors.UnknownQueue]
        elif (self.model.on(number) or client.queue != number
              or any(queue == number and session != own for session, queue in self._may)):
            assert [type(error) for error in refused] == [errors.NoTruncate]
        else:
            assert (refused, self.instance.core.t.q_ever[number]) == ([], 0)
        self.finish()

    def sweep(self) -> None:
        """A second later those that drain and are empty go, one behind another."""
        for _ in NAMES:
            self.advance(1)
            self.group(self.instance.plane.ends.sweep)
            there = self.instance.engine.queues.numbers
            gone = self.book.numbers.keys() - there.keys()
            assert gone <= self._drained()
            for name in gone:
                self._adopt_book(self._after("delete", name, "", {}))
            assert not gone & self.book.named()
            self.instance.follow()
            self.finish()
        assert not self._drained() - self.book.named()

    def _drained(self) -> set[str]:
        return {name for name in self.book.drains if not self.model.on(self.book.numbers[name])
                and not self._read(self.book.numbers[name])}

    # messages

    def open(self, client: Client, name: str) -> None:
        """The client reads this queue from now on."""
        self.leave(client, died=False, then=self.book.numbers.get(name, A))

    def put_there(self, client: Client, number: int, one: Draft) -> None:
        """On a number that this client knows, or knew."""
        session = client.live.party.client
        refusal = self._gone(session, number)
        if refusal is None:
            self._may.add((session, number))
            self.put(client, one)
            return
        self.group(lambda: self._put(client, encoded(one)))
        self.outcome(client, refusal)
        names = {number: name for name, number in self.book.numbers.items()}
        if number in names:  # it looks again
            Opening(self.instance.engine).open(client.live, {"queue": names[number]})
            self._opened[session, number] = names[number]
        self.finish()

    def _gone(self, session: int, number: int) -> Refusal:
        if (session, number) in self._may:
            return None
        names = {number: name for name, number in self.book.numbers.items()}
        if number not in names:
            known = (session, number) in self._opened
            return errors.QueueGone if known else errors.BadRequest
        known_as = self._opened.setdefault((session, number), names[number])
        return None if known_as == names[number] else errors.QueueGone
