"""The verdict over what clients did and saw (history.py): was the promise kept?

    lost        a put was acknowledged, but no reader ever had the message in hand and ended it
    resurrected a message was handed out after its done had been acknowledged
    invented    a message was handed out that nobody put on that queue, or with other bytes
    refused     a message was handed out although its put was refused
    duplicated  a message came a second time without the flag `redelivered`, and nobody gave it back
    disordered  of one producer, queue and priority a later message was first handed out before an
                earlier one

The order of hand-outs is that of their leases, which are log sequence numbers. A hand-out that died
with its manager before any reader saw it is taken back unflagged when that reader comes back: of a
message that lived through a manager's death the order of first sights says nothing, it is not
judged. The history must be complete: at its end every queue was drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.process.history import Line

Place = tuple[str, str]  # key, queue


@dataclass(slots=True)
class Verdict:
    """Keys (with queues) of what went wrong; all empty is a promise kept."""

    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    acknowledged: int = 0  # puts
    delivered: int = 0  # hand-outs seen
    redelivered: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """What is not empty."""
        kinds = ("lost", "resurrected", "invented", "refused", "duplicated", "disordered")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}


@dataclass(slots=True)
class _Message:
    """What is known of a message on one queue."""

    tried: Line | None = None
    acknowledged: bool = False
    refused: bool = False
    got: list[Line] = field(default_factory=list)
    ended: bool = False  # a reader decided "done"; whether it counted is in doubt until ...
    done_ns: int = 0  # ... this was acknowledged
    backs: list[int] = field(default_factory=list)


def judge(lines: Iterable[Line]) -> Verdict:
    """See the module."""
    verdict = Verdict()
    messages, deaths = _collect(lines)
    for (key, queue), message in messages.items():
        _judge_one(f"{key}@{queue}", message, verdict)
    _judge_order(messages, deaths, verdict)
    return verdict


def _collect(lines: Iterable[Line]) -> tuple[dict[Place, _Message], list[int]]:
    messages: dict[Place, _Message] = defaultdict(_Message)
    queues: dict[str, list[str]] = defaultdict(list)
    answers: list[Line] = []
    deaths: list[int] = []
    for line in lines:
        op = line["op"]
        if op == "death":
            deaths.append(line["ns"])
        elif op in ("ok", "no"):
            answers.append(line)
        else:
            message = messages[line["key"], line["queue"]]
            if op == "try":
                message.tried = line
                queues[line["key"]].append(line["queue"])
            elif op == "got":
                message.got.append(line)
            elif op == "ending":
                message.ended = True
            elif op == "done":
                message.done_ns = min(message.done_ns or line["ns"], line["ns"])
            elif op == "back":
                message.backs.append(line["ns"])
            else:
                raise ValueError(f"history line {line}")
    for line in answers:
        for queue in queues[line["key"]]:
            message = messages[line["key"], queue]
            message.acknowledged |= line["op"] == "ok"
            message.refused |= line["op"] == "no"
    return messages, deaths


def _judge_one(name: str, message: _Message, verdict: Verdict) -> None:
    verdict.acknowledged += message.acknowledged
    verdict.delivered += len(message.got)
    verdict.redelivered += sum(got["redelivered"] for got in message.got)
    if message.acknowledged and not message.ended:
        verdict.lost.append(name)
    put = message.tried
    for got in message.got:
        if put is None or got["crc"] != put["crc"] or got["priority"] != put["priority"]:
            verdict.invented.append(name)
        if message.done_ns and got["ns"] > message.done_ns:
            verdict.resurrected.append(name)
    if message.got and message.refused:
        verdict.refused.append(name)
    by_lease = sorted(message.got, key=lambda got: got["lease"])
    for before, again in pairwise(by_lease):
        given_back = any(before["ns"] <= ns <= again["ns"] for ns in message.backs)
        if not again["redelivered"] and not given_back:
            verdict.duplicated.append(name)


def _judge_order(messages: dict[Place, _Message], deaths: list[int], verdict: Verdict) -> None:
    lines: dict[tuple[str, str, int], list[tuple[int, int, bool, str]]] = defaultdict(list)
    for (key, queue), message in messages.items():
        producer, _, number = key.rpartition(":")
        first = min(message.got, key=lambda got: got["lease"], default=None)
        # A flagged first sight follows a hand-out that its reader did not live to tell of.
        if first is not None and not first["redelivered"] and message.tried is not None:
            outlived = any(message.tried["ns"] <= death <= first["ns"] for death in deaths)
            lines[producer, queue, first["priority"]].append(
                (first["lease"], int(number), outlived, f"{key}@{queue}"))
    for given in lines.values():
        highest = -1
        for _, ordinal, outlived, place in sorted(given):
            if ordinal < highest and not outlived:
                verdict.disordered.append(place)
            highest = max(highest, ordinal)
