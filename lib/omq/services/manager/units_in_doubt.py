"""Units of work in doubt, as the queue manager's start and its status tell of them; barriers, as a
start finds them."""

from __future__ import annotations

from collections.abc import Iterator

from omq.base import clock, events
from omq.base.checksum import crc32c
from omq.base.errors import OmqError
from omq.base.event_log import ERROR, WARNING, EventLog
from omq.base.settings import Settings
from omq.core.engine.engine import Engine
from omq.core.engine.in_doubt import InDoubt
from omq.core.engine.state import Core
from omq.core.load.pool_columns import Loaded
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.services.daemon.daemon import DaemonContext
from omq.services.manager.event_messages import EventMessages
from omq.storage.payloads import PayloadReader


def take_in_doubt(context: DaemonContext, core: Core, in_doubt: InDoubt, loaded: Loaded,
                  bodies: PayloadReader) -> None:
    """The last phase of a start, behind redo and undo: whose the prepared messages are."""

    def read(slot: int) -> bytes:
        payload = whole_payload(core, bodies, slot)
        found = message_format.bounds(payload)
        return b"" if isinstance(found, Finding) else payload[found[1] :]

    in_doubt.limit = context.settings.units_in_doubt_max
    for text in in_doubt.load(loaded.prepared, read):
        context.log.event(events.UNIT_DAMAGED, ERROR, reason=text)
    if in_doubt.units:
        oldest = min(unit.since_ns for unit in in_doubt.units.values())
        context.log.event(events.UNITS_IN_DOUBT, WARNING, units=len(in_doubt.units),
                          messages=len(loaded.prepared) - len(in_doubt.units),
                          oldest=clock.iso_time(oldest))


def take_barriers(core: Core, loaded: Loaded, bodies: PayloadReader) -> None:
    """Behind redo and undo: which messages the barriers wait for that were found."""
    core.barriers.load(core, loaded.barriers, lambda slot: whole_payload(core, bodies, slot))


def whole_payload(core: Core, bodies: PayloadReader, slot: int) -> bytes:
    """The payload of a message; empty if it cannot be read, or fails its CRC: which is reported as
    damage of the unit or the barrier."""
    t = core.t
    try:
        payload = bytes(bodies.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot],
                                    t.m_qpool[slot]))
    except OmqError:
        return b""
    return payload if crc32c(payload) == t.m_crc[slot] else b""


def doubts_text(engine: Engine) -> str:
    """For the status line."""
    count = len(engine.in_doubt.units)
    return f"{count} units of work in doubt, " if count else ""


def say_old_doubts(log: EventLog, messages: EventMessages, engine: Engine, settings: Settings,
                   warned: set[int]) -> None:
    """Tell of those that have been in doubt for long, each once."""
    for fields in old_doubts(engine, settings, warned):
        log.event(events.UNITS_IN_DOUBT, WARNING, **fields)
        messages.note("in_doubt", "", **fields)


def old_doubts(engine: Engine, settings: Settings, warned: set[int]
               ) -> Iterator[dict[str, str | int | None]]:
    """Those that have been in doubt for long and were not told of; fields of the event."""
    in_doubt = engine.in_doubt
    warned.intersection_update(in_doubt.units)
    before = engine.now_ns - settings.unit_in_doubt_warn_s * clock.NS_PER_S
    for number, unit in in_doubt.units.items():
        if unit.since_ns <= before and number not in warned:
            warned.add(number)
            yield {"unit": in_doubt.name_of(unit), "since": clock.iso_time(unit.since_ns),
                   "uid": unit.facts.uid, "name": unit.facts.name}
