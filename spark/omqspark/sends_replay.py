"""What if the mail scheduler had other rules: real sends, once more through the scheduler itself.

What the scheduler was given, when, and how long each send took is in a record (sends.py). Here the
same `Scheduler` that unix.out decides with (omq.services.delivery.scheduler) gets these sends on a
clock of its own: its processes take as long for each as was noted. First with the rules that there
were: how far the waits then are from those that happened is the error of every answer (`error_s`,
`error_share`: as whatif.py has them); above ERROR_SHARE_MAX there is none.

A wait is from when the scheduler got an Mlist until a process began with it. What is not in the
record is not in the answer: how a peer's own times change with more or fewer connections at once,
what was put off before it came to the scheduler (more at a peer than its share of `qmgr_window`),
the fork of a process, processes that died. What failed and came again returns when it did.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from omq.base.errors import BadRequest
from omq.base.limits import PRIORITIES, PRIORITY_NORMAL, PRIORITY_URGENT
from omq.base.settings_key import METADATA
from omq.base.settings_qmgr import QmgrSettings
from omq.services.delivery.mlist import Mlist
from omq.services.delivery.rules import KEYS, Rules
from omq.services.delivery.scheduler import NEVER, Give, Process, Scheduler, Start
from omqtools.omqspark.replay import ERROR_SHARE_MAX, percentiles
from omqtools.omqspark.sends import Record, Send, Since

_BEFORE: Final = frozenset(("qmgr_window",))
"""It decides what comes to the scheduler, and the record begins after that."""
_END, _RULES, _COMES = range(3)  # at one instant in this order


def keys(words: Iterable[str]) -> dict[str, int]:
    """KEY=NUMBER words as settings; BadRequest: it is none of these rules, or out of range."""
    known = {each.name: each.metadata[METADATA] for each in fields(QmgrSettings)
             if each.name in KEYS.keys() - _BEFORE}
    found: dict[str, int] = {}
    for word in words:
        key, _, number = word.partition("=")
        if key not in known:
            raise BadRequest(reason=f"{word!r}: --rules takes KEY=NUMBER; keys: "
                                    f"{', '.join(sorted(known))}")
        low, high = known[key].low, known[key].high
        if not (number.isascii() and number.isdigit() and low <= int(number) <= high):
            raise BadRequest(reason=f"{word!r}: {key} is a number from {low} to {high}")
        found[key] = int(number)
    return found


class _Replay:
    """One pass; `waits[i]` is that of the i-th send."""

    def __init__(self, record: Record, changed: Mapping[str, int]) -> None:
        self._changed = changed
        self._scheduler = Scheduler(Rules().changed(changed))
        self._mlists = [_mlist(number, each) for number, each in enumerate(record.sends)]
        self._sends = record.sends
        self._ends: list[tuple[float, int, int]] = []  # of what is being sent: time, -, process
        self._count = 0  # of those that were begun with
        self.waits = [0.0] * len(record.sends)

    def run(self, since: Sequence[Since]) -> None:
        """To the end of the last send."""
        todo: list[tuple[float, int, int]] = [
            *((each.at_s, _RULES, number) for number, each in enumerate(since)),
            *((each.came_s, _COMES, number) for number, each in enumerate(self._sends))]
        todo.sort()
        at = 0
        while at < len(todo) or self._ends or self._count < len(self._sends):
            comes = todo[at][0] if at < len(todo) else NEVER
            ends = self._ends[0][0] if self._ends else NEVER
            now = min(comes, ends, self._scheduler.wake)
            assert now < NEVER, "sends wait, and the scheduler waits for nothing"
            while self._ends and self._ends[0][0] <= now:
                self._end(heapq.heappop(self._ends)[2], now)
            while at < len(todo) and todo[at][0] <= now:
                _, kind, number = todo[at]
                at += 1
                if kind == _RULES:
                    self._rule(since[number], now)
                else:
                    self._scheduler.add(self._mlists[number])
            self._decide(now)

    def _rule(self, since: Since, now: float) -> None:
        self._scheduler.rules = since.rules.changed(self._changed)
        if since.begins:  # what was begun is done with, what was not is to be sent
            self._ends.clear()
            for process in list(self._scheduler.processes.values()):
                had = self._scheduler.given_back(process, now)
                self._scheduler.ended(process, now)
                self._scheduler.again(had[1:])

    def _decide(self, now: float) -> None:
        scheduler = self._scheduler
        scheduler.wake = now
        while scheduler.wake <= now:
            for action in scheduler.decide(now):
                match action:
                    case Give(process, _):
                        self._next(process, now)
                    case Start():
                        pass
                    case _:
                        if not action.process.busy:
                            scheduler.ended(action.process, now)

    def _next(self, process: Process, now: float) -> None:
        """It begins with the first of what it has."""
        number: int = process.run[0].work
        self.waits[number] = now - self._sends[number].came_s
        self._count += 1
        heapq.heappush(self._ends, (now + self._sends[number].spent_s, self._count, process.number))

    def _end(self, number: int, now: float) -> None:
        scheduler = self._scheduler
        process = scheduler.processes[number]
        mlist = process.run[0]
        send = self._sends[mlist.work]
        if send.reached:
            if send.peer in scheduler.down:
                scheduler.is_up(send.peer)
        elif send.peer not in scheduler.down:  # one process tries it until it is reached
            scheduler.again(scheduler.leave_alone(send.channel, send.peer, now))
        scheduler.reported(process, mlist, send.spent_s, now)
        if process.run:
            self._next(process, now)


def _mlist(number: int, send: Send) -> Mlist:
    return Mlist(send.channel, send.peer, send.priority, (), number, send.came_s)


def replayed(record: Record, changed: Mapping[str, int]) -> list[float]:
    """The wait of each send with these keys of omq.conf changed, in seconds."""
    one = _Replay(record, changed)
    one.run(record.since)
    return one.waits


def rows(record: Record, changed: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """For all sends, each class of priority and each peer: what happened ("real"), the same
    replayed, and, where something is changed, what would have been ("asked")."""
    spent = np.array([each.spent_s for each in record.sends])
    told = {"real": np.array([each.wait_s for each in record.sends]),
            "replayed": np.array(replayed(record, {}))}
    if changed:
        told["asked"] = np.array(replayed(record, changed))
    for (of, name), places in _groups(record.sends).items():
        real, again = told["real"][places], told["replayed"][places]
        error_s = float(np.mean(np.abs(again - real)))
        usual = max(float(np.mean(real)), float(np.mean(spent[places])))
        share = error_s / usual if usual else 0.0
        for kind, waits in told.items():
            refused = kind == "asked" and share > ERROR_SHARE_MAX
            mine = waits[places]
            found = {f"{key}_s": value for key, value in percentiles(mine).items()}
            found["mean_s"] = float(np.mean(mine))
            yield {"of": of, "name": name, "kind": kind, "sends": len(mine)} | (
                dict.fromkeys(found) if refused else found) | {
                "spent_s": float(np.mean(spent[places])), "error_s": error_s,
                "error_share": share, "refused": refused}


def _groups(sends: Sequence[Send]) -> dict[tuple[str, str], list[int]]:
    """("all", ""), ("priority", class), ("peer", channel and name): the sends of each."""
    found: dict[tuple[str, str], list[int]] = {("all", ""): list(range(len(sends)))}
    for name, low, high in (("urgent", PRIORITY_URGENT, PRIORITIES),
                            ("normal", PRIORITY_NORMAL, PRIORITY_URGENT),
                            ("low", 0, PRIORITY_NORMAL)):
        places = [i for i, each in enumerate(sends) if low <= each.priority < high]
        if places:
            found["priority", name] = places
    peers: dict[tuple[str, str], list[int]] = {}
    for i, each in enumerate(sends):
        peers.setdefault(("peer", f"{each.channel} {each.peer}"), []).append(i)
    return found | dict(sorted(peers.items(), key=lambda one: (-len(one[1]), one[0])))
