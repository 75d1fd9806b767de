"""omqwhy QUEUE: why nothing moves on a queue, or what it waits for.

Reasons stand in the order in which they matter: the first is why. Codes are a contract. Nothing is
changed and the queue manager is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omq.base.clock import NS_PER_S
from omq.base.errors import ConfigError
from omq.base.names import IDEL_NAME, POISON_NAME
from omq.base.services_conf import load_services
from omq.cli.look.due import due_text
from omq.cli.look.service_status import Word, all_status
from omq.core.index.rows import QueueRow, ReaderRow
from omq.core.look.look import Look, Origin
from omq.format.index import EntryState, QueueFlag
from omq.services.daemon.options import Location

_UNLIMITED = 0xFFFFFFFF


@dataclass(slots=True)
class Reason:
    """One of them. `hints`: what to do."""

    code: str
    text: str
    hints: list[str] = field(default_factory=list)


@dataclass(slots=True)
class QueueAnswer:
    """A queue, and why it is as it is."""

    row: QueueRow
    readers: int
    reasons: list[Reason]


def explain_queue(location: Location, seen: Look, name: str, now_ns: int) -> QueueAnswer | None:
    """None: there is no such queue."""
    row = next((row for row in seen.view.queues() if row.name == name), None)
    if row is None:
        return None
    readers = [reader for reader in seen.view.readers() if reader.queue == name]
    reasons = [*_manager(seen), *_queue(seen, row, now_ns), *_readers(location, row, readers, seen,
                                                                      now_ns)]
    if not reasons:
        reasons = [Reason("moves", f"it moves: {row.throughput[0]:.1f} messages a minute, "
                          f"{row.ready} ready, {row.active} active")]
    return QueueAnswer(row, len(readers), reasons)


def _manager(seen: Look) -> Iterator[Reason]:
    if seen.origin in (Origin.LEFT_OVER, Origin.FILES):
        yield Reason("no_manager", "the queue manager does not run: nothing moves",
                     ["omrc starts it"])
    elif seen.origin is Origin.HUNG:
        yield Reason("hung", seen.note, ["omstat -a tells what to do"])


def _queue(seen: Look, row: QueueRow, now_ns: int) -> Iterator[Reason]:
    if row.flags & QueueFlag.SUSPENDED:
        yield Reason("get_inhibited", "the queue is held (get = inhibited in queues.conf): nobody "
                     "gets messages", [f"omrelease -q {row.name}"])
    if row.flags & QueueFlag.DRAINS:
        yield Reason("drains", "it was rolled over: it takes no more, and goes when it is empty "
                     "and nobody reads it")
    elif row.flags & QueueFlag.PUT_INHIBITED and row.name != POISON_NAME:
        yield Reason("put_inhibited", "no new messages are taken (put = inhibited in queues.conf, "
                     "or the queue is not in it any more)", [f"omrelease -q {row.name}"])
    elif 0 < row.max_depth < _UNLIMITED and row.messages >= row.max_depth:
        yield Reason("full", f"it is full: {row.messages} of {row.max_depth} messages; senders "
                     "have to wait", ["max_depth in queues.conf; readers make room"])
    if not row.messages:
        yield Reason("empty", "there is no message on it")
    elif row.name == POISON_NAME:
        yield Reason("poison", f"{row.messages} messages failed too often; they stay until "
                     "somebody looks", ["omqwhy ID has the evidence; omrequeue sends them back"])
    elif not row.ready and not row.active:
        yield from _none_ready(seen, row, now_ns)


def _none_ready(seen: Look, row: QueueRow, now_ns: int) -> Iterator[Reason]:
    if row.deferred:
        due = seen.view.copies.until(row.number, EntryState.DEFERRED)
        first = int(np.min(due)) if len(due) else 0
        deleted = row.name == IDEL_NAME
        what = "were deleted, and can be brought back" if deleted else "are deferred"
        hint = "omqdump --undo ID" if deleted else f"omq flush {row.name} tries them now"
        yield Reason("deferred", f"none is ready: {row.deferred} {what}; the first is due at "
                     f"{due_text(seen.view, first, now_ns)}", [hint])
    if row.held:
        yield Reason("held", f"none is ready: {row.held} messages are held by an operator",
                     [f"omrelease --where 'queue={row.name} state=held'"])


def _readers(location: Location, row: QueueRow, readers: list[ReaderRow], seen: Look, now_ns: int
             ) -> Iterator[Reason]:
    if row.name == POISON_NAME or row.flags & QueueFlag.SUSPENDED:
        return
    if not readers:
        yield Reason("no_reader", "nobody reads it", _who_should(location, row.name))
        return
    busy = [reader for reader in readers if reader.active]
    if row.ready and len(busy) == len(readers):
        since = [entry.until_ns for entry in seen.view.active() if entry.queue == row.name]
        oldest_s = max(0, (now_ns - min(since, default=now_ns)) // NS_PER_S)
        slowest = min(busy, key=lambda reader: reader.request_ns)
        yield Reason(
            "readers_busy", f"all {len(busy)} readers have messages, the oldest for {oldest_s} s; "
            f"{row.ready} wait", ["omqadvise tells whether more readers would help",
                                  f"omfreeq {row.name} -p {slowest.pid} releases the one that was "
                                  "silent longest"])


def _who_should(location: Location, queue: str) -> list[str]:
    """What to do about the service that reads this queue, if one does."""
    with suppress(ConfigError):
        mine = [each for each in load_services(location.conf_dir).values() if each.queue == queue]
        for status in all_status(location, mine):
            if status.state is Word.DISABLED:
                return [f"{status.conf.title} is not enabled in services.conf"]
            return [f"{status.conf.title} is {status.state}: omon {status.conf.name}",
                    f"omshowlog -s {status.conf.program} tells why"]
    return ["no service reads it: a program of yours does, or omread"]


def lines(answer: QueueAnswer) -> Iterator[str]:
    """The reasons, and what to do."""
    row = answer.row
    yield (f"{row.name}: {row.messages} messages ({row.ready} ready, {row.active} active, "
           f"{row.deferred} deferred, {row.held} held), {answer.readers} readers")
    for reason in answer.reasons:
        yield f"    {reason.text}"
        yield from (f"    -> {hint}" for hint in reason.hints)


def record(answer: QueueAnswer) -> dict[str, Any]:
    """The JSON object: a contract, keys are only added."""
    row = answer.row
    return {"queue": row.name, "why": answer.reasons[0].code, "messages": row.messages,
            "ready": row.ready, "active": row.active, "deferred": row.deferred, "held": row.held,
            "readers": answer.readers, "reasons": [
                {"code": each.code, "text": each.text, "hints": each.hints}
                for each in answer.reasons]}
