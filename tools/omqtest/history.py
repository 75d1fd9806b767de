"""What clients did and saw, and the verdict over it: was the promise kept?

One JSON line for each step, written so that a SIGKILL loses no line before it:

    try    {"op": "try", "key"}               before a put is asked for
    ok     {"op": "ok", "key"}                the put was acknowledged
    no     {"op": "no", "key"}                the put was refused
    got    {"op": "got", "key", "lease", "flag", "bad"}   handed out; flag: redelivered, bad: the
                                              body was not the one that was put
    ending {"op": "ending", "key"}            "done" was decided, not yet asked
    done   {"op": "done", "key"}              "done" was acknowledged
    back   {"op": "back", "key"}              before it is given back on purpose
    death  {"op": "death", "since"}           a manager or a reader ended without an orderly stop;
                                              since: when it still lived (default: just now)

Each line also has `ns`, CLOCK_MONOTONIC. A key is `producer:number`; what was asked and not
answered is in doubt and may have happened or not.

Where messages are put on several queues, `queue` is in every line but ok, no and death, and each
queue is a promise of its own. Where try and got have `priority` or `crc`, they must agree; order is
that of one producer, queue and priority. The order of hand-outs is that of their leases, which are
log sequence numbers. What a reader had not begun when it died goes back unflagged, and so does a
hand-out that died with its manager before any reader saw it: of a message that lived through a
death the order of first sights says nothing, it is not judged.

    lost         a put was acknowledged, but no reader ever had it in hand and ended it
    resurrected  it was handed out after its done had been acknowledged
    invented     nobody put it there, or not so, or its put was refused
    duplicated   it came a second time without the flag, and nobody gave it back
    disordered   a later message was first handed out before an earlier one
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

Line = dict[str, Any]
Place = tuple[str | int, ...]  # in which order is kept


class Sink(Protocol):
    """Where lines go."""

    def say(self, *lines: Line) -> None: ...


class HistoryFile:
    """One client's file; lines are in the kernel when `say` returns. Closed with its last user."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._closed = weakref.finalize(self, os.close, self._file)

    def say(self, *lines: Line) -> None:
        now = time.monotonic_ns()
        os.write(self._file, "".join(json.dumps({**line, "ns": now}) + "\n"
                                     for line in lines).encode())

    def close(self) -> None:
        self._closed()


def read_histories(folder: Path) -> list[Line]:
    """All lines of all clients, by time. A line that a kill cut off is left out."""
    found: list[Line] = []
    for path in sorted(folder.iterdir()):
        found += [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return sorted(found, key=lambda line: int(line["ns"]))


@dataclass(slots=True)
class Verdict:
    """Keys of what went wrong; all empty is a promise kept."""

    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    redelivered: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """What is not empty."""
        kinds = ("lost", "resurrected", "invented", "duplicated", "disordered")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}

    def add(self, other: Verdict) -> None:
        """Sum up several runs."""
        for kind, keys in other.faults.items():
            getattr(self, kind).extend(keys)
        self.acknowledged += other.acknowledged
        self.delivered += other.delivered
        self.redelivered += other.redelivered


@dataclass(slots=True)
class _Known:
    """What the lines say of one message."""

    tried: Line | None = None
    acknowledged: bool = False
    refused: bool = False
    ending: bool = False
    done_ns: int = 0  # the first
    got: list[Line] = field(default_factory=list)
    backs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A message that lies in a spool: `idle`: on no queue any more; `bad`: another body."""

    key: str
    idle: bool = False
    bad: bool = False
    fresh: bool = True  # never handed out
    place: tuple[int, int, int] = (0, 0, 0)  # queue, -priority, order on the queue


def judge_state(lines: Iterable[Line], present: list[Found]) -> Verdict:
    """Judge what a spool holds after `lines`; nobody has read it since."""
    known: dict[str, _Known] = defaultdict(_Known)
    known |= {key: message for (key, _), message in _collect(lines)[0].items()}
    verdict = Verdict(acknowledged=sum(k.acknowledged for k in known.values()))
    there: dict[str, int] = defaultdict(int)
    for found in present:
        message = known.get(found.key)
        if found.idle and found.bad:
            continue  # its container goes before its record does
        if found.bad or message is None or message.tried is None or message.refused:
            verdict.invented.append(found.key)
        if found.idle and message is not None and message.ending:
            continue  # its record waits for idel.server
        there[found.key] += not found.idle
    for key, message in known.items():
        if message.acknowledged and not message.ending and not there[key]:
            verdict.lost.append(key)
        if message.done_ns and there[key]:
            verdict.resurrected.append(key)
        if there[key] > 1:
            verdict.duplicated.append(key)
    fresh = sorted((f for f in present if f.fresh and not (f.idle or f.bad or known[f.key].backs)),
                   key=lambda f: f.place)
    _order([(f.place[:2], f.key) for f in fresh], verdict)
    return verdict


def judge(lines: Iterable[Line]) -> Verdict:
    """Judge a whole history, at whose end the queues were drained."""
    known, deaths = _collect(lines)
    verdict = Verdict()
    first_seen: list[tuple[int, Place, str]] = []
    for (key, queue), message in known.items():
        name = f"{key}@{queue}" if queue else key
        verdict.acknowledged += message.acknowledged
        verdict.delivered += len(message.got)
        verdict.redelivered += sum(bool(got["flag"]) for got in message.got)
        if message.acknowledged and not message.ending:
            verdict.lost.append(name)
        if any(message.refused or not _as_put(got, message.tried) for got in message.got):
            verdict.invented.append(name)
        if message.done_ns and any(got["ns"] > message.done_ns for got in message.got):
            verdict.resurrected.append(name)
        by_lease = sorted(message.got, key=lambda got: int(got["lease"]))
        for before, again in pairwise(by_lease):
            given_back = any(before["ns"] <= ns <= again["ns"] for ns in message.backs)
            if not again["flag"] and not given_back and before["lease"] != again["lease"]:
                verdict.duplicated.append(name)
        if by_lease and _tells_order(by_lease[0], message, deaths):
            place = (queue, by_lease[0].get("priority", 0))
            first_seen.append((int(by_lease[0]["lease"]), place, key))
    _order([(place, key) for _, place, key in sorted(first_seen)], verdict)
    return verdict


def _as_put(got: Line, tried: Line | None) -> bool:
    """Whether what was handed out is what somebody put there."""
    return tried is not None and not got.get("bad") and all(
        got.get(name) == tried.get(name) for name in ("priority", "crc"))


def _tells_order(first: Line, message: _Known, deaths: list[tuple[int, int]]) -> bool:
    """A hand-out that died with its manager, or whose reader did not live to tell of it, says
    nothing about order: nobody saw it."""
    tried_ns = message.tried["ns"] if message.tried else 0
    return not first["flag"] and not any(tried_ns <= dead_ns and since_ns <= first["ns"]
                                         for since_ns, dead_ns in deaths)


def _collect(lines: Iterable[Line]
             ) -> tuple[dict[tuple[str, str], _Known], list[tuple[int, int]]]:
    """What is known of each message on each queue, and the deaths: (still lived, was dead)."""
    known: dict[tuple[str, str], _Known] = defaultdict(_Known)
    answers: list[Line] = []
    deaths: list[tuple[int, int]] = []
    for line in lines:
        if line["op"] == "death":
            deaths.append((int(line.get("since") or line["ns"]), int(line["ns"])))
            continue
        if line["op"] in ("ok", "no"):
            answers.append(line)
            continue
        message = known[line["key"], line.get("queue", "")]
        match line["op"]:
            case "try":
                message.tried = line
            case "got":
                message.got.append(line)
            case "ending":
                message.ending = True
            case "done":
                message.done_ns = min(message.done_ns or line["ns"], line["ns"])
            case "back":
                message.backs.append(line["ns"])
            case other:
                raise ValueError(f"unknown line {other!r} in a history")
    queues: dict[str, list[_Known]] = defaultdict(list)
    for (key, _), message in known.items():
        if message.tried is not None:
            queues[key].append(message)
    for line in answers:
        for message in queues[line["key"]]:
            message.acknowledged |= line["op"] == "ok"
            message.refused |= line["op"] == "no"
    return known, deaths


def _order(seen: list[tuple[Place, str]], verdict: Verdict) -> None:
    """Of one producer and place the numbers rise."""
    highest: dict[tuple[Place, str], int] = {}
    for place, key in seen:
        producer, _, number = key.rpartition(":")
        at = (place, producer)
        if int(number) < highest.get(at, -1):
            verdict.disordered.append(key)
        highest[at] = max(highest.get(at, -1), int(number))
