"""What clients write down of what they do, and what must be in the tables for it: plain files and
plain Python, nothing of the analytics.

A fact is a line of JSON that stands in the file before the client goes on: what was done (`do`), to
which message on which queue, by which process, and between which two instants (`t0`, `t1`, ns).
`told` reads all facts in the order of what caused what: a hand-out counts when it returned, all
else when it was asked for. A client that dies writes so before it does.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import omq
from omq.ipc.client.message import Message

NS = 10**9
LARGE = 300 * 1024
"""Bytes of a body that is a container: more than container_threshold_bytes as shipped."""
Fact = dict[str, Any]


def number_of(message_id: str) -> int:
    return int(message_id[32:], 16)


class Notebook:
    """One process' file of facts."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.jsonl"

    def write(self, do: str, qpool: int, queue: str, t0: int, **more: Any) -> None:
        fact = {"do": do, "qpool": qpool, "queue": queue, "t0": t0, "t1": time.time_ns(),
                "pid": os.getpid(), **more}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")


class Clerk:
    """A connection of a process that writes down what it did."""

    def __init__(self, connection: omq.Connection, notes: Notebook) -> None:
        self.connection, self.notes = connection, notes

    def put(self, queues: str | Sequence[str], body: bytes, **how: Any) -> int:
        t0 = time.time_ns()
        found = number_of(self.connection.put(queues, body, **how))
        self.born(found, queues, body, t0, **how)
        return found

    def born(self, qpool: int, queues: str | Sequence[str], body: bytes, t0: int, **how: Any
             ) -> None:
        listed = [queues] if isinstance(queues, str) else list(queues)
        self.notes.write(
            "put", qpool, listed[0], t0, onto=listed, size=len(body),
            priority=how.get("priority", 4), persistent=how.get("persistent", True),
            delayed=bool(how.get("delay_s")), group=how.get("group_id", ""),
            number=how.get("group_sequence", 0), last=how.get("last_in_group", False))

    def put_many(self, queue: str, bodies: Sequence[bytes]) -> list[int]:
        t0 = time.time_ns()
        found = [number_of(each) for each in self.connection.put_many(queue, bodies)]
        for qpool, body in zip(found, bodies, strict=True):
            self.born(qpool, queue, body, t0)
        return found

    def take(self, source: omq.Reader, n: int = 1, timeout_s: float = 60.0) -> list[Message]:
        t0 = time.time_ns()
        found = source.next(n, timeout_s)
        for message in found:
            self.notes.write("give", message.qpool_id, message.queue, t0)
        return found

    def take_in(self, unit: omq.Unit, queue: str, n: int = 1, timeout_s: float = 60.0
                ) -> list[Message]:
        t0 = time.time_ns()
        found = unit.next(queue, n, timeout_s)
        for message in found:
            self.notes.write("give", message.qpool_id, queue, t0)
        return found

    def settle(self, message: Message, how: str, *arguments: Any, **named: Any) -> None:
        """done, defer, fail or release."""
        t0 = time.time_ns()
        getattr(message, how)(*arguments, **named)
        self.notes.write(how, message.qpool_id, message.queue, t0)

    def move(self, message: Message, onto: Sequence[str], new: Sequence[omq.Outgoing] = ()) -> None:
        t0 = time.time_ns()
        message.move(onto, new)
        self.notes.write("move", message.qpool_id, message.queue, t0, onto=list(onto))

    def die(self, message: Message) -> None:
        """With the message in hand."""
        assert message.body is not None  # it is being processed
        self.notes.write("die", message.qpool_id, message.queue, time.time_ns())
        os.kill(os.getpid(), 9)


@dataclass
class Rules:
    """What the test's queues.conf says of a queue."""

    attempts_max: int = 3
    dead_letter: str = "POISON"
    expired_to: str = ""


@dataclass
class Stay:
    """What a row of `stays` must say. `came`, `went`: queues, "" for outside; spans of ns; `swept`:
    on IDEL, where idel.server takes it, which writes nothing down."""

    queue: str
    visit: int
    how: str
    came: str
    priority: int
    arrived: tuple[int, int]
    delayed: bool = False
    gives: int = 0
    first_give: tuple[int, int] | None = None
    failed: int = 0
    deaths: int = 0
    put_off: int = 0
    attempts: int = 0
    reader: int | None = None
    left: tuple[int, int] | None = None
    left_how: str | None = None
    went: str | None = None
    renamed: str = ""
    swept: bool = False

    @property
    def now(self) -> str:
        """What its queue is called at the end: the answers have one name for a queue."""
        return self.renamed or self.queue


@dataclass
class Life:
    """What a row of `messages` must say, and its stays."""

    qpool: int
    pid: int
    size: int
    priority: int
    persistent: bool
    born: tuple[int, int]
    group: tuple[str, int, bool] | None = None
    stays: list[Stay] = field(default_factory=list)
    moves: int = 0
    defers: int = 0
    poisoned: int = 0
    end_how: str | None = None

    def open(self, queue: str = "") -> list[Stay]:
        """Its stays that last; on one queue, or all."""
        return [s for s in self.stays if s.left is None and queue in ("", s.queue)]

    @property
    def large(self) -> bool:
        """Its body is a container, which idel.server removes at the end."""
        return self.size >= LARGE

    def come(self, queue: str, how: str, came: str, priority: int, span: tuple[int, int],
             attempts: int = 0, *, delayed: bool = False) -> None:
        if self.open(queue):
            return  # it is there already: nothing happens
        visit = 1 + sum(s.queue == queue for s in self.stays)
        self.stays.append(Stay(queue, visit, how, came, priority, span, delayed,
                               attempts=attempts))


def read_facts(folder: Path) -> list[Fact]:
    facts = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):  # the last line of one that was killed in it
                facts.append(json.loads(line))
    return sorted(facts, key=lambda each: each["t1"] if each["do"] == "give" else each["t0"])


def told(facts: Sequence[Fact], rules: dict[str, Rules], unsure: str) -> dict[int, Life]:
    """QPoolId -> what must be in the tables. On the queue `unsure` clients may settle what has gone
    with its manager."""
    lives = {each["qpool"]: _birth(each) for each in facts if each["do"] == "put"}
    held: dict[int, dict[tuple[int, str], Fact]] = defaultdict(dict)  # by process
    for fact in facts:
        key = (fact["qpool"], fact["queue"])
        if fact["do"] == "give":
            held[fact["pid"]][key] = fact
        else:
            held[fact["pid"]].pop(key, None)
        if fact["do"] == "die":  # what it had fetched and not begun is back untouched
            for other in held.pop(fact["pid"]).values():
                _happens(lives[other["qpool"]], other | {"do": "release"}, Rules())
        if fact["do"] == "manager":
            for life in lives.values():
                if not life.persistent and life.born[1] < fact["t0"] and life.open():
                    for stay in life.open():
                        stay.left, stay.left_how, stay.went = (fact["t0"], 1 << 62), "died", ""
                    life.end_how = "died"
        elif fact["do"] == "rename":  # what has left was on a queue of the old name
            for stay in (stay for life in lives.values() for stay in life.stays):
                if stay.queue == fact["queue"] and stay.arrived[1] < fact["t0"]:
                    stay.renamed = fact["to"]
                    stay.queue = stay.queue if stay.left else fact["to"]
        elif fact["do"] != "put" and (
                fact["queue"] != unsure or lives[fact["qpool"]].open(unsure)):
            _happens(lives[fact["qpool"]], fact, rules.get(fact["queue"], Rules()))
    return lives


def _birth(fact: Fact) -> Life:
    span = (fact["t0"], fact["t1"])
    life = Life(fact["qpool"], fact["pid"], fact["size"], fact["priority"], fact["persistent"],
                span, (fact["group"], fact["number"], fact["last"]) if fact["group"] else None)
    for queue in fact["onto"]:
        life.come(queue, "put", "", fact["priority"], span, delayed=fact["delayed"])
    return life


def _happens(life: Life, fact: Fact, rules: Rules) -> None:
    do, span = fact["do"], (fact["t0"], fact["t1"])
    (stay,) = life.open(fact["queue"])
    onto = fact.get("onto", [])
    if do == "give":
        stay.gives += 1
        stay.attempts += 1
        stay.reader = fact["pid"]
        stay.first_give = stay.first_give or span
    elif do == "done":
        _leave(life, stay, "done", span, "")
    elif do == "release":
        stay.attempts -= 1
    elif do == "defer":
        stay.attempts -= 1
        stay.put_off += 1
        life.defers += 1
    elif do in ("fail", "die", "backout"):
        _failed(life, stay, do, span, rules)
    elif do == "move":
        life.moves += 1
        _leave(life, stay, "move", span, onto[0], gone=False)
        for queue in onto:
            life.come(queue, "move", stay.queue, stay.priority, span)
    elif do == "expire":
        _leave(life, stay, "expire", span, rules.expired_to)
        if rules.expired_to:
            life.come(rules.expired_to, "expire", stay.queue, stay.priority, span)
    elif do in ("hold", "free", "commit"):  # a unit's message waits until it is committed
        stay.put_off += 1
    elif do == "prepare":
        pass  # no reader has it, and it ends with its unit
    elif do == "unmade":
        _leave(life, stay, "backout", span, "")
    elif do == "clear":
        _leave(life, stay, "deleted", span, "")
    elif do == "delete":
        _leave(life, stay, "deleted", span, "", gone=False)
        if not life.open():  # it can come back from there
            stay.went = "IDEL"
            life.come("IDEL", "deleted", stay.queue, stay.priority, span)
    else:
        raise AssertionError(do)


def _leave(life: Life, stay: Stay, how: str, span: tuple[int, int], went: str, *, gone: bool = True
           ) -> None:
    stay.left, stay.left_how, stay.went = span, how, went
    if gone and not went and not life.open():
        life.end_how = how
        if life.large and how != "died":
            stay.went = "IDEL"
            life.come("IDEL", how, stay.queue, stay.priority, span)
            swept = life.open("IDEL")[0]
            swept.swept, swept.left, swept.left_how, swept.went = True, (span[0], 1 << 62), \
                "delete", ""


def _failed(life: Life, stay: Stay, do: str, span: tuple[int, int], rules: Rules) -> None:
    last = stay.attempts >= rules.attempts_max
    # a message that is backed out is at its place at once, and no failure of its reader is said
    counts = do != "backout" or last
    stay.failed += counts
    stay.deaths += do == "die"
    if last:
        life.poisoned += 1
        kept = stay.attempts if rules.dead_letter == "POISON" else 0
        _leave(life, stay, "poison", span, rules.dead_letter)
        life.come(rules.dead_letter, "poison", stay.queue, stay.priority, span, kept)
    elif do != "backout":
        life.defers += 1
        stay.put_off += 1
