"""omqwhy QUEUE: why nothing moves on a queue, or what it waits for.

The causes are those of omq.cli.look.finding_causes; where there is none, what is seen of the queue
is printed instead: that it moves only where something was finished a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omq.base.amounts import counted, duration
from omq.base.clock import NS_PER_S
from omq.base.errors import ConfigError
from omq.base.names import KEPT_RECORDS
from omq.cli.look.authority_causes import refused
from omq.cli.look.cause import Cause, Severity
from omq.cli.look.finding_causes import of
from omq.cli.look.gateway_why import waits_by_peer
from omq.cli.look.gateways import Gateway, gateways
from omq.cli.look.instance_causes import MANAGER, of_instance, wrong_configuration
from omq.cli.look.service_status import Status, all_status
from omq.core.index.rows import QueueRow, ReaderRow
from omq.core.look.look import Look
from omq.format.index import EntryState
from omq.services.daemon.options import Location

MOVES: Final = 0.05
"""Messages a minute that are some: fewer are shown as 0.0."""
ORDERS: Final = frozenset({"get_inhibited", "put_inhibited", "drains"})
"""Codes of what an operator ordered: why a queue is empty, perhaps."""


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """A queue, and why it is as it is."""

    row: QueueRow
    readers: int
    reasons: list[Cause]


@dataclass(frozen=True, slots=True)
class Around:
    """What is around the queues of an instance, looked at once."""

    services: Sequence[Status] = ()
    gateways: Sequence[Gateway] = ()
    wrong: str = ""  # with the configuration


def around(location: Location) -> Around:
    """Of a wrong configuration nothing but what is wrong with it."""
    try:
        return Around(all_status(location), tuple(gateways(location)),
                      wrong_configuration(location))
    except ConfigError as error:
        return Around(wrong=str(error))


def explain_queue(location: Location, seen: Look, name: str, now_ns: int,
                  known: Around | None = None) -> QueueAnswer | None:
    """None: there is no such queue."""
    row = next((row for row in seen.view.queues() if row.name == name), None)
    if row is None:
        return None
    known = known or around(location)
    readers = [reader for reader in seen.view.readers() if reader.queue == name]
    around_it = [*of_instance(location, seen, known.services, known.gateways, known.wrong, "")]
    dead = [each for each in around_it if each.code in MANAGER]
    reasons = [*of(location, seen, row, readers, known.services, known.gateways,
                   refused(location.paths, now_ns), now_ns)]
    if not row.messages:
        orders = sum(each.code in ORDERS for each in reasons)  # they stand first
        reasons.insert(orders, Cause("empty", "there is no message on it", (), Severity.NOTE, name))
    elif not reasons and not dead:
        reasons = [_unhindered(seen, row, readers, now_ns)]
    theirs = {each.conf.name for each in known.services if each.conf.queue == name}
    rest = [each for each in around_it if each not in dead
            and (each.severity is Severity.CRITICAL or each.service in theirs)]
    peers = [Cause("put_off", text, tuple(hints), Severity.NOTE, name)
             for text, hints in waits_by_peer(location, name)]
    return QueueAnswer(row, len(readers), [*dead, *reasons, *peers, *rest])


def _unhindered(seen: Look, row: QueueRow, readers: list[ReaderRow], now_ns: int) -> Cause:
    """No cause is seen. That it moves needs evidence, too."""
    if row.name in KEPT_RECORDS:
        return Cause("still", f"its {counted(row.messages, 'message')} "
                     f"{'is a record' if row.messages == 1 else 'are records'} that "
                     f"{'stays' if row.messages == 1 else 'stay'}: nobody is to read it",
                     ("omq definitions export shows exchanges and bindings, omq channel list "
                      "channels",),
                     Severity.NOTE, row.name)
    what = f"{row.ready:,} ready, {row.active:,} active"
    if row.throughput[0] >= MOVES:
        return Cause("moves", f"it moves: {row.throughput[0]:,.1f} messages a minute, {what}", (),
                     Severity.NOTE, row.name)
    came_ns = seen.view.oldest((EntryState.READY, EntryState.ACTIVE)).get(row.number, now_ns)
    asked_ns = max((reader.request_ns for reader in readers), default=0)
    asked = f"; a reader asked {duration((now_ns - asked_ns) / NS_PER_S)} ago" if asked_ns else ""
    return Cause("still", f"nothing holds it up that is seen, and nothing was finished in the last "
                 f"minute: {what}, the oldest has been there for "
                 f"{duration((now_ns - came_ns) / NS_PER_S)}{asked}",
                 (f"omqwhy {row.name} again in a moment: what came just now is on its way",),
                 Severity.NOTE, row.name)


def lines(answer: QueueAnswer) -> Iterator[str]:
    """The reasons, and what to do."""
    row = answer.row
    yield (f"{row.name}: {counted(row.messages, 'message')} ({row.ready} ready, {row.active} "
           f"active, {row.deferred} deferred, {row.held} held), "
           f"{counted(answer.readers, 'reader')}")
    for reason in answer.reasons:
        yield f"    {reason.text}"
        yield from (f"    -> {hint}" for hint in reason.hints)


def record(answer: QueueAnswer) -> dict[str, Any]:
    """The JSON object: a contract, keys are only added."""
    row = answer.row
    return {"queue": row.name, "why": answer.reasons[0].code, "messages": row.messages,
            "ready": row.ready, "active": row.active, "deferred": row.deferred, "held": row.held,
            "readers": answer.readers, "reasons": [each.record() for each in answer.reasons]}
