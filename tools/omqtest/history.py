"""What clients did and saw, and the verdict over it: was the promise kept?

One JSON line for each step, written so that a SIGKILL loses no line before it:

    try    {"op": "try", "key"}               before a put is asked for
    ok     {"op": "ok", "key"}                the put was acknowledged
    no     {"op": "no", "key"}                the put was refused
    got    {"op": "got", "key", "lease", "flag", "bad"}   handed out; flag: redelivered, bad: the
                                              body was not the one that was put
    ending {"op": "ending", "key"}            "done" was decided, not yet asked
    done   {"op": "done", "key"}              "done" was acknowledged
    back   {"op": "back", "key"}              given back on purpose
    death  {"op": "death"}                    a manager ended without an orderly stop

Each line also has `ns`, CLOCK_MONOTONIC. A key is `producer:number`; what was asked and not
answered is in doubt and may have happened or not.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

Line = dict[str, Any]


class Sink(Protocol):
    """Where lines go."""

    def say(self, *lines: Line) -> None: ...


class HistoryFile:
    """One client's file; lines are in the kernel when `say` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, *lines: Line) -> None:
        now = time.monotonic_ns()
        os.write(self._file, "".join(json.dumps({**line, "ns": now}) + "\n"
                                     for line in lines).encode())

    def close(self) -> None:
        os.close(self._file)


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

    tried_ns: int = 0
    acknowledged: bool = False
    refused: bool = False
    ending: bool = False
    done_ns: int = 0
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
    known, _ = _collect(lines)
    verdict = Verdict(acknowledged=sum(k.acknowledged for k in known.values()))
    there: dict[str, int] = defaultdict(int)
    for found in present:
        message = known.get(found.key)
        if found.idle and found.bad:
            continue  # its container goes before its record does
        if found.bad or message is None or not message.tried_ns or message.refused:
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
    first_seen: list[tuple[int, str]] = []
    for key, message in known.items():
        verdict.acknowledged += message.acknowledged
        verdict.delivered += len(message.got)
        verdict.redelivered += sum(bool(got["flag"]) for got in message.got)
        if message.acknowledged and not message.ending:
            verdict.lost.append(key)
        if any(got["bad"] for got in message.got) or (message.got and (
                not message.tried_ns or message.refused)):
            verdict.invented.append(key)
        if message.done_ns and any(got["ns"] > message.done_ns for got in message.got):
            verdict.resurrected.append(key)
        by_lease = sorted(message.got, key=lambda got: int(got["lease"]))
        for before, again in pairwise(by_lease):
            given_back = any(before["ns"] <= ns <= again["ns"] for ns in message.backs)
            if not again["flag"] and not given_back and before["lease"] != again["lease"]:
                verdict.duplicated.append(key)
        # A hand-out that died with its manager says nothing about order: nobody saw it.
        if by_lease and not by_lease[0]["flag"] and not any(
                message.tried_ns <= ns <= by_lease[0]["ns"] for ns in deaths):
            first_seen.append((int(by_lease[0]["lease"]), key))
    _order([((), key) for _, key in sorted(first_seen)], verdict)
    return verdict


def _collect(lines: Iterable[Line]) -> tuple[dict[str, _Known], list[int]]:
    known: dict[str, _Known] = defaultdict(_Known)
    deaths: list[int] = []
    for line in lines:
        if line["op"] == "death":
            deaths.append(line["ns"])
            continue
        message = known[line["key"]]
        match line["op"]:
            case "try":
                message.tried_ns = line["ns"]
            case "ok":
                message.acknowledged = True
            case "no":
                message.refused = True
            case "got":
                message.got.append(line)
            case "ending":
                message.ending = True
            case "done":
                message.done_ns = message.done_ns or line["ns"]
            case "back":
                message.backs.append(line["ns"])
            case other:
                raise ValueError(f"unknown line {other!r} in a history")
    return known, deaths


def _order(seen: list[tuple[tuple[int, ...], str]], verdict: Verdict) -> None:
    """Of one producer and place the numbers rise."""
    highest: dict[tuple[tuple[int, ...], str], int] = {}
    for place, key in seen:
        producer, _, number = key.rpartition(":")
        at = (place, producer)
        if int(number) < highest.get(at, -1):
            verdict.disordered.append(key)
        highest[at] = max(highest.get(at, -1), int(number))
